"""What notebook 04 counts: cells of blocks, the chain of names, and when blocks came and went.

Interface: filled, moment, deals, chain, block_sizes, prompts, lowest_slot.
Must not know: how anything is shown.
"""

from collections.abc import Mapping
from typing import Any

from minivllm.course.notebook.names import tokens
from minivllm.course.notebook.story import Story
from minivllm.course.notebook.tables import drawn
from minivllm.trace import Trace


def filled(story: Story, name: str, step: int) -> list[int]:
    """Cells in use of each block of a request, when the step's tokens are stored."""
    size, tokens = story.config("block_size"), story.computed(name, step)[1]
    return [min(size, tokens - size * place) for place in range(len(story.table(name, step)))]


def moment(story: Story, name: str, step: int) -> dict[str, Any]:
    """One step of a request as a row of a table: its counters, its blocks, their cells."""
    before, after = story.computed(name, step)
    return {
        "step": step,
        "known": story.known(name, step),
        "computed": f"{before} → {after}",
        "block table": " ".join(map(str, story.table(name, step))),
        "cells in use": " + ".join(map(str, filled(story, name, step))),
        "free blocks": story.free(step)[1],
    }


def deals(story: Story, name: str) -> list[Any]:
    """The calls of allocate_slots that took blocks out of the pool."""
    calls = story.trace.filter(kind="allocate_slots", request=story.ids[name])
    return [call for call in calls if call.new_block_ids]


def chain(story: Story, name: str) -> list[dict[str, Any]]:
    """Named blocks of a request in order: what each is called, after whom, and in which step it got the name.

    vLLM: v1/core/kv_cache_utils.py::hash_block_tokens
    """
    links: list[dict[str, Any]] = []
    size, texts = story.config("block_size"), tokens(story.prompt(name) + story.outputs(name))
    for event in story.trace.filter(kind="cache_full_blocks", request=story.ids[name]):
        for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
            place = len(links)
            links.append(
                {
                    "block": block_id,
                    "tokens": f"{place * size}..{place * size + size - 1}",
                    "their text": drawn("".join(texts[place * size : place * size + size])),
                    "name before": links[-1]["its name"] if links else "(root)",
                    "its name": block_hash[:6],
                    "named in step": event.step,
                }
            )
    return links


def block_sizes(stories: Mapping[int, Story]) -> list[dict[str, Any]]:
    """A asked twice, by block size: what the second one finds, and how many blocks the first one starts with."""
    rows = []
    for size, story in sorted(stories.items()):
        rows.append(
            {
                "block size": size,
                "blocks of A, step 1": len(story.table("A", 1)),
                "A′ finds": story.hit("A′"),
                "A′ computes": len(story.prompt("A′")) - story.hit("A′"),
            }
        )
    return rows


def prompts(story: Story) -> list[int]:
    """Tokens that each request computed until its first word, in order of arrival."""
    return [sum(story.sent(step)[name] for step in _prompt_steps(story, name)) for name in story.cast]


def _prompt_steps(story: Story, name: str) -> list[int]:
    return [plan.step for plan in story.plans(name) if plan.step <= story.first_word(name)]


def lowest_slot(trace: Trace) -> int:
    """The lowest slot that any step wrote."""
    return min(slot for event in trace.filter(kind="prepare_inputs") for slot in event.slot_mapping)
