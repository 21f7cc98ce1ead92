"""What notebook 05 counts: turns of a step, tries of a preempted request, and which slots were ever written.

Interface: turns, tries, resumption, sides, preemptions, shortages, cells_written.
Must not know: how anything is shown.
"""

from collections import Counter
from typing import Any, NamedTuple

from minivllm.course.notebook.story import Story


def turns(story: Story, step: int) -> list[dict[str, Any]]:
    """What happened to blocks while a step was planned, in order."""
    rows = []
    for event in story.trace.filter(kind=("allocate_slots", "free"), step=step):
        name, gone = story.names[event.reqs[0]], event.kind == "free"
        if not gone and not event.new_block_ids and not event.refused:
            continue
        rows.append(
            {
                "who": name,
                "what": "preempted: gives back" if gone else "refused" if event.refused else "takes",
                "tokens": "–" if gone else event.num_new_tokens,
                "blocks": _blocks(event) or "–",
                "free blocks": " → ".join(map(str, event.num_free_blocks)),
            }
        )
    return rows


def _blocks(event: Any) -> str:
    return " ".join(map(str, event.block_ids if event.kind == "free" else event.new_block_ids))


def tries(story: Story, name: str) -> list[dict[str, Any]]:
    """The refused attempts to admit a request: what it would find, need, and what is free."""
    refused = [e for e in story.trace.filter(kind="allocate_slots", request=story.ids[name]) if e.refused]
    return [
        {
            "step": event.step,
            "found": " ".join(map(str, event.hit_block_ids)) or "–",
            "blocks needed": event.blocks_needed,
            "blocks free": event.num_free_blocks[0],
            "free queue": " ".join(map(str, story.trace.state_at(event.seq, before=True).free_order)),
        }
        for event in refused
        if event.full_sequence_must_fit  # a try from the waiting queue; a running request asks for one chunk
    ]


class Resumption(NamedTuple):
    """The plan that brought a request back.

    vLLM: v1/core/sched/output.py::CachedRequestData
    """

    step: int
    found: int  # tokens
    computed: int  # tokens, in this step
    own_words: int  # of them, output that the request had already
    twice: int  # of them, computed before it was preempted
    table: list[int]  # all its blocks


def resumption(story: Story, name: str) -> Resumption:
    """The first plan that brings a preempted request back.

    Raises LookupError where it is never preempted.

    vLLM: v1/core/sched/output.py::CachedRequestData
    """
    for plan in story.trace.filter(kind="schedule"):
        for cached in plan.scheduled_cached_reqs:
            if cached.resumed and cached.req_id == story.ids[name]:
                found, computed = cached.num_computed_tokens, plan.num_scheduled_tokens[cached.req_id]
                own_words = found + computed - max(found, len(story.prompt(name)))
                before = next(one for _, victim, one in preemptions(story) if victim == name).num_computed_tokens
                return Resumption(plan.step, found, computed, own_words, before - found, cached.new_block_ids)
    raise LookupError(f"{name} is never preempted")


def sides(story: Story, name: str, step: int) -> list[dict[str, Any]]:
    """A request before and after the plan of a step.

    vLLM: v1/request.py::Request
    """
    seq, request_id = story.at(step), story.ids[name]
    rows = []
    for when, before in (("before", True), ("after", False)):
        state = story.trace.state_at(seq, before=before)
        request = state.requests[request_id]
        place = f"place {state.waiting.index(request_id)}" if request_id in state.waiting else None
        rows.append(
            {
                name: when,
                "status": request.status,
                "computed": request.num_computed_tokens,
                "known": request.num_tokens,
                "own words": request.num_output_tokens,
                "block table": state.block_tables.get(request_id, []),
                "in the waiting queue": place,
            }
        )
    return rows


def preemptions(story: Story) -> list[tuple[int, str, Any]]:
    """(step, victim, the numbers) of every preemption."""
    plans = story.trace.filter(kind="schedule")
    return [(plan.step, story.names[one.req_id], one) for plan in plans for one in plan.preemptions]


def shortages(stories: dict[str, Story]) -> list[dict[str, Any]]:
    """One row for each pool: who goes, when, and what is computed again."""
    rows = []
    for what, story in stories.items():
        gone = preemptions(story)
        back = resumption(story, gone[0][1]) if gone else None
        rows.append(
            {
                "pool": what,
                "usable blocks": story.trace.header.num_gpu_blocks - 1,
                "victim": f"{gone[0][1]} in step {gone[0][0]}" if gone else None,
                "found on return": back and back.found,
                "computed on return": back and back.computed,
                "of them, twice": back and back.twice,
                "steps in all": story.steps,
            }
        )
    return rows


def cells_written(story: Story, before_step: int) -> dict[int, int]:
    """Block -> how many of its cells any earlier step wrote. Blocks that were never written are missing."""
    size = story.config("block_size")
    batches = [event for event in story.trace.filter(kind="prepare_inputs") if event.step < before_step]
    written = {slot for batch in batches for slot in batch.slot_mapping}
    return dict(sorted(Counter(slot // size for slot in written).items()))
