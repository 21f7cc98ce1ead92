"""Facts of notebook 12: a request told in advance, and told by its trace.

Owns: the lines of the form, and what each is computed from.
Interface: foretold, told, FORM, marked, score; counts, hand_overs, block_life, token_life; known_pieces.
Must not know: how anything is shown.

`foretold` knows two lengths and the size of a block, and nothing of the trace; `told` reads the same lines off a trace.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minivllm.course.notebook.names import tokens
from minivllm.show.describe import describe, ranges
from minivllm.trace import Trace
from minivllm.trace.events import KINDS

BLOCKS, PROMPT_SLOTS, DECODE_SLOTS = "block ids at step 1", "slots of the prompt", "slots of the decodes"
STEPS, BORDER, QUEUE = "steps with the model", "step of the next block", "tail of the free queue at the end"
HIT, AGAIN_TOKENS, AGAIN_TABLE = "asked again: tokens hit", "asked again: tokens in step 1", "asked again: block ids"
FORM = (BLOCKS, PROMPT_SLOTS, DECODE_SLOTS, STEPS, BORDER, QUEUE, HIT, AGAIN_TOKENS, AGAIN_TABLE)


def _list(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def foretold(prompt: int, outputs: int, block_size: int = 16) -> dict[str, str]:
    """The form of a request of `prompt` tokens that ends with its `outputs`-th, alone and first in a fresh pool.

    The slots run on without a gap, because a fresh pool hands out 1, 2, 3 … in order.
    """
    first = -(-prompt // block_size)  # blocks, rounded up
    fed = prompt + outputs - 1  # the last output is never fed
    held = -(-fed // block_size)
    hit = (prompt - 1) // block_size * block_size  # whole blocks, and one token must be left
    again = [*range(1, hit // block_size + 1), *range(held + 1, held + 1 + first - hit // block_size)]
    border = first * block_size - prompt + 2  # the step that feeds position first * block_size
    return {
        BLOCKS: _list(range(1, first + 1)),
        PROMPT_SLOTS: ranges(range(block_size, block_size + prompt)),
        DECODE_SLOTS: ranges(range(block_size + prompt, block_size + fed)) or "none",
        STEPS: str(outputs),
        BORDER: str(border) if held > first else "never",
        QUEUE: _list(range(held, 0, -1)),
        HIT: str(hit),
        AGAIN_TOKENS: str(prompt - hit),
        AGAIN_TABLE: _list(again),
    }


def told(trace: Trace) -> dict[str, str]:
    """The form, read off a trace in which one request was asked alone, and then again."""
    one, again = trace.request_ids[:2]
    plans = [plan for plan in trace.filter(kind="schedule") if plan.num_scheduled_tokens]
    mine = [plan for plan in plans if one in plan.num_scheduled_tokens]
    second = next(plan for plan in plans if again in plan.num_scheduled_tokens)
    slots = [trace.filter(kind="prepare_inputs", step=plan.step)[0].slot_mapping for plan in mine]
    grown = [plan.step for plan in mine[1:] if plan.num_blocks[one][0] < plan.num_blocks[one][1]]
    blocks = trace.state_at(mine[0].seq).block_tables[one]
    freed = trace.filter(kind="free", request=one)[0]
    return {
        BLOCKS: _list(blocks),
        PROMPT_SLOTS: ranges(slots[0]),
        DECODE_SLOTS: ranges([slot for step in slots[1:] for slot in step]) or "none",
        STEPS: str(len(mine)),
        BORDER: str(grown[0]) if grown else "never",
        QUEUE: _list(trace.state_at(freed.seq).free_order[-len(freed.block_ids) :]),
        HIT: str(second.num_computed_tokens[again][1] - second.num_scheduled_tokens[again]),
        AGAIN_TOKENS: str(second.num_scheduled_tokens[again]),
        AGAIN_TABLE: _list(trace.state_at(second.seq).block_tables[again]),
    }


def marked(mine: Mapping[str, Any], truth: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """(line, filled in, what the trace says, ✓ or ✗). What is not filled in hides the trace's answer.

    Blanks, commas and brackets do not count.
    """
    rows = []
    for line in truth:
        said = mine.get(line)
        if said is None or said == "":
            rows.append((line, "?", "open after you have filled it", ""))
        else:
            rows.append((line, str(said), truth[line], "✓" if _plain(said) == _plain(truth[line]) else "✗"))
    return rows


def _plain(text: Any) -> list[str]:
    return str(text).lower().translate(str.maketrans(",[]()", "     ")).split()


def score(trace: Trace) -> tuple[int, int, int, str]:
    """(prompt tokens, output tokens, block size, how many of the nine lines are foretold) of the first request."""
    one = trace.request_ids[0]
    prompt = trace.filter(kind="process_inputs", request=one)[0].num_prompt_tokens
    updates = [u for e in trace.filter(kind="update_from_output", request=one) for u in e.updates if u.req_id == one]
    outputs = sum(len(update.new_token_ids) for update in updates)
    size = trace.header.config["block_size"]
    rows = marked(foretold(prompt, outputs, size), told(trace))
    return prompt, outputs, size, f"{sum(mark == '✓' for *_, mark in rows)} of {len(rows)}"


# ---------------------------------------------------------------------- the whole road


class Counts(NamedTuple):
    """How often each boundary is crossed in each step."""

    boundaries: list[str]
    steps: list[str]  # "-" is before the first step and after the last; the last is the flush, if there is one
    calls: list[list[int | None]]  # by boundary and step; None: never


def counts(trace: Trace) -> Counts:
    """Calls at each boundary by step; one of a summed event counts as its layers' calls."""
    boundaries = sorted({row.boundary for row in KINDS.values() if row.boundary}, key=lambda name: int(name[1:]))
    columns: list[int | None] = [None, *trace.steps]
    found = {(boundary, step): 0 for boundary in boundaries for step in columns}
    for event in trace:
        if event.boundary is not None:
            found[event.boundary, event.step] += getattr(event, "calls", None) or 1
    calls = [[found[boundary, step] or None for step in columns] for boundary in boundaries]
    return Counts(boundaries, ["-", *map(str, trace.steps)], calls)


def counts_alt(found: Counts) -> str:
    """Two sentences for those who don't see the picture."""
    once = [b for b, row in zip(found.boundaries, found.calls, strict=True) if sum(1 for c in row if c) == 1]
    never = [b for b, row in zip(found.boundaries, found.calls, strict=True) if not any(row)]
    many = [b for b, row in zip(found.boundaries, found.calls, strict=True) if max(c or 0 for c in row) > 5]
    return (
        f"A table of {len(found.boundaries)} boundaries by {len(found.steps)} columns: before step 1, then the steps. "
        f"{', '.join(once)} happen in one column only, {', '.join(never) or 'none'} never, and {', '.join(many)} many "
        "times in each step with tokens."
    )


def hand_overs(trace: Trace, step: int, request: str = "0") -> list[tuple[str, str, str]]:
    """The road of one request up to the end of a step: (boundary, kind, a sentence with its numbers)."""
    (request_id,) = trace.internal_ids(request)
    rows = []
    for event in trace.filter(request=request):
        if event.boundary is not None and event.step in (None, step):
            rows.append((event.boundary, event.kind, describe(event, request_id)))
    return rows


def free_changes(trace: Trace) -> list[Any]:
    """The events of the scheduler in which the number of free blocks changes."""
    kinds = ("schedule", "update_from_output", "finish_requests")
    return [e for e in trace.filter(kind=kinds) if e.num_free_blocks[0] != e.num_free_blocks[1]]


def absent(trace: Trace) -> list[str]:
    """The boundaries that do not occur in a trace, in the order of the road."""
    found = {event.boundary for event in trace}
    wanted = {row.boundary for row in KINDS.values() if row.boundary}
    return sorted(wanted - found, key=lambda name: int(name[1:]))


def recorded(folder: Path) -> dict[str, Trace]:
    """All recorded traces of a folder, by name."""
    return {path.name.removesuffix(".jsonl.gz"): Trace.load(path) for path in sorted(folder.glob("*.jsonl.gz"))}


class Moment(NamedTuple):
    """One line of a life."""

    step: int | None
    seq: int
    what: str


def block_life(trace: Trace, block_id: int) -> list[Moment]:
    """What happens to one block: taken, named, its last cell written, freed, hit."""
    size = trace.header.config["block_size"]
    moments = []
    for event in trace.filter(kind=("get_new_blocks", "cache_full_blocks", "prepare_inputs", "free_blocks", "touch")):
        if event.kind == "prepare_inputs":
            if (block_id + 1) * size - 1 in event.slot_mapping:
                what = f"its last cell, slot {(block_id + 1) * size - 1}, gets its K and V: it is full"
                moments.append(Moment(event.step, event.seq, what))
        elif block_id in event.block_ids:
            moments.append(Moment(event.step, event.seq, _of_block(event, block_id)))
    return moments


def _of_block(event: Any, block_id: int) -> str:
    if event.kind == "get_new_blocks":
        return "is taken from the head of the free queue" + ", its name is lost" * (block_id in event.evicted_block_ids)
    if event.kind == "cache_full_blocks":
        return "gets its name: from now on others can find it"
    count = event.ref_cnts[event.block_ids.index(block_id)]
    if event.kind == "touch":
        return f"is found by its name and touched: {count} owner{'s' * (count != 1)}"
    return "returns to the tail of the free queue, with its name" if count == 0 else f"loses an owner: {count} left"


def token_life(trace: Trace, request: str, index: int) -> list[Moment]:
    """What happens to one output token of a request: sampled, counted, shown, fed, written, read, freed.

    index: of the token, prompt included.
    """
    (request_id,) = trace.internal_ids(request)
    moments: list[Moment] = []
    for event in trace.filter(request=request):
        what = _of_token(event, request_id, index)
        if event.kind == "detokenize" and moments and event.step == moments[0].step:
            what = f"becomes text on the caller's side: {event.new_text!r}"
        if what:
            moments.append(Moment(event.step, event.seq, what))
    return moments


def _of_token(event: Any, request_id: str, index: int) -> str:
    if event.kind == "update_from_output":
        update = next((one for one in event.updates if one.req_id == request_id), None)
        if update is not None and update.num_tokens == (index, index + 1):
            return f"is sampled, id {update.new_token_ids[0]}: known tokens {index} → {index + 1}"
    elif event.kind == "prepare_inputs" and index in event.positions:
        place = event.positions.index(index)
        return f"is fed as position {index}: its K and V go to slot {event.slot_mapping[place]}"
    elif event.kind == "attention" and event.max_seq_len == index + 2:
        return f"is read by all {event.calls} layers, as key and value of the next token's query"
    elif event.kind == "free":
        return "its cell goes back with the block"
    return ""


def known_pieces(trace: Trace) -> dict[int, str]:
    """Token id -> text, of the prompts and outputs of a trace, from data.json: the viewer needs no tokenizer then."""
    prompts = [event.prompt_token_ids for event in trace.filter(kind=("render_chat", "render_cmpl"))]
    outputs = [update.new_token_ids for e in trace.filter(kind="update_from_output") for update in e.updates]
    ids = sorted({token_id for part in (*prompts, *outputs) for token_id in part})
    return dict(zip(ids, tokens(ids), strict=True))
