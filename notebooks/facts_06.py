"""What notebook 06 lays out: the rows of a flat batch, places of single tokens, and who is thrown away.

Interface: labels, by_row, spans, slot_of, news.
Must not know: how anything is shown.
"""

from itertools import pairwise
from typing import Any

from minivllm.course.notebook.story import Story
from minivllm.trace.events_worker import slot_ranges


def labels(story: Story, step: int) -> list[str]:
    """The name of the request that each token of the flat batch belongs to."""
    counts = [end - start for start, end in pairwise(story.batch(step).query_start_loc)]
    return [name for name, count in zip(story.rows(step), counts, strict=True) for _ in range(count)]


def by_row(story: Story, step: int) -> list[dict[str, Any]]:
    """One line for each row of a step's batch: its tokens, positions, slots, reach and logits index.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    batch, rows = story.batch(step), []
    thrown = story.event("sample_tokens", step).discarded
    tables = story.trace.state_at(story.event("update_states", step).seq).rows
    for row, (start, end) in enumerate(pairwise(batch.query_start_loc)):
        rows.append(
            {
                "row": row,
                "request": story.rows(step)[row],
                "tokens": end - start,
                "positions": spans(batch.positions[start:end]),
                "block table": list(tables[row].block_ids),
                "slots": spans(batch.slot_mapping[start:end]),
                "seq_lens": batch.seq_lens[row],
                "logits index": batch.logits_indices[row],
                "draw": "thrown away" if tables[row].req_id in thrown else "kept",
            }
        )
    return rows


def spans(numbers: list[int]) -> str:
    """`16..31 48 64..70`."""
    return " ".join(str(first) if first == last else f"{first}..{last}" for first, last in slot_ranges(numbers))


def slot_of(story: Story, name: str, step: int, position: int) -> int:
    """Where the batch of a step puts the token of a request at a position.

    Raises LookupError where the step has no such token.

    vLLM: v1/worker/block_table.py::BlockTable.compute_slot_mapping
    """
    batch = story.batch(step)
    for owner, place, slot in zip(labels(story, step), batch.positions, batch.slot_mapping, strict=True):
        if (owner, place) == (name, position):
            return slot
    raise LookupError(f"step {step} feeds no token {position} of {name}")


def news(story: Story, step: int) -> list[dict[str, Any]]:
    """What a plan tells the worker about each request that it knows or gets to know.

    vLLM: v1/core/sched/output.py::SchedulerOutput
    """
    plan = story.plan(step)
    rows = [
        {
            "request": story.names[new.req_id],
            "as": "new",
            "token ids": f"its {new.num_prompt_tokens} prompt tokens",
            "blocks": new.block_ids,
        }
        for new in plan.scheduled_new_reqs
    ]
    for old in plan.scheduled_cached_reqs:
        rows.append(
            {
                "request": story.names[old.req_id],
                "as": "resumed" if old.resumed else "known",
                "token ids": "none",
                "blocks": old.new_block_ids or "None",
            }
        )
    return rows
