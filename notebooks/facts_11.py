"""Facts of notebook 11: who forgets a request when, and the story of an abort that came late.

Owns: nothing; it reads a trace.
Interface: moments, knows, late_abort, late_events; LateAbort, Told.
Must not know: how anything is shown.
"""

from typing import Any, NamedTuple

from minivllm.trace import Trace
from minivllm.trace.events import Event

BLOCKS, WORKER, CALLER = "the blocks are free", "the worker has dropped the row", "the caller has the answer"


def moments(trace: Trace, request: str = "0") -> dict[str, Event]:
    """The event whose exit is each of the three moments in which a request is let go, the earliest first."""
    (request_id,) = trace.internal_ids(request)
    found = {}
    for event in trace.filter(kind=("free", "update_states", "process_outputs"), request=request):
        if event.kind == "free":
            found[BLOCKS] = event
        elif event.kind == "update_states" and request_id in event.finished_req_ids:
            found[WORKER] = event
        elif event.kind == "process_outputs" and request_id in event.finished:
            found[CALLER] = event
    return dict(sorted(found.items(), key=lambda item: item[1].t1))


def knows(trace: Trace, seq: int, request: str = "0", before: bool = False) -> dict[str, str]:
    """What each owner knows of a request after the exit of event `seq` (with `before`, at its entry)."""
    (request_id,) = trace.internal_ids(request)
    state = trace.state_at(seq, before=before)
    rows = [row.req_id for row in state.rows]
    held = state.block_tables.get(request_id, [])
    return {
        "free blocks": str(len(state.free_blocks)),
        "blocks held": " ".join(map(str, held)) or "none",
        "in the scheduler's running list": "yes" if request_id in state.running else "no",
        "note for the worker (finished_req_ids)": "yes" if request_id in state.finished_req_ids else "no",
        "row of the worker": str(rows.index(request_id)) if request_id in rows else "none",
        "open for the caller": "yes" if state.requests[request_id].is_open else "no",
    }


class LateAbort(NamedTuple):
    """An abort for a stop string, in numbers."""

    stop_string: str
    found_in: int  # step whose token completed the string
    planned: int  # the last step that gave the request tokens
    sampled: int  # tokens
    delivered: int  # of these
    abort_bytes: int | None  # None: in process there is no message
    handled: list[bool]  # for each time that the core handled the abort: whether there was something to end


def late_abort(trace: Trace, request: str = "0") -> LateAbort:
    """The abort of a request whose stop string was found by the caller. Raises StopIteration where none was."""
    (request_id,) = trace.internal_ids(request)
    found = next(e for e in trace.filter(kind="detokenize", request=request) if e.stop_string)
    plans = [e for e in trace.filter(kind="schedule") if request_id in e.num_scheduled_tokens]
    sampled = [
        e.sampled_token_ids[e.req_ids.index(request_id)] for e in trace.filter(kind="sample_tokens", request=request)
    ]
    messages = [e for e in trace.filter(kind="core_client.send") if e.message_type == "ABORT"]
    return LateAbort(
        stop_string=found.stop_string,
        found_in=found.step,
        planned=plans[-1].step,
        sampled=sum(map(len, sampled)),
        delivered=found.num_output_tokens[1],
        abort_bytes=messages[0].num_bytes if messages else None,
        handled=[request_id in e.finished for e in trace.filter(kind="finish_requests", request=request)],
    )


class Told(NamedTuple):
    """One event of a story on two lanes."""

    lane: str  # caller or core
    step: int | None
    what: str
    event: Event


def late_events(trace: Trace, request: str = "0") -> list[Told]:
    """The late abort, event by event, in the order of their entries; the row of the worker as the last."""
    story = late_abort(trace, request)
    told = []
    for event in trace.filter(request=request):
        what = _what(event, story)
        if what:
            told.append(Told(event.proc, event.step, what, event))
    return told


def _what(event: Any, story: LateAbort) -> str:
    """One sentence for the events that the story needs; "" for the others."""
    kind, step = event.kind, event.step
    if kind == "sample_tokens" and step == story.found_in:
        return f"samples the token that completes {story.stop_string!r}"
    if kind == "core.send" and step == story.found_in:
        return f"sends it, {event.num_bytes} bytes"
    if kind == "schedule" and step == story.planned:
        return f"plans step {step}"
    if kind == "detokenize" and event.stop_string:
        return "finds the stop string: for the caller the request has ended"
    if kind == "core_client.send" and event.message_type == "ABORT":
        return f"sends ABORT, {event.num_bytes} bytes"
    if kind == "core.receive" and event.message_type == "ABORT":
        return "takes ABORT in, beside the running step"
    if kind == "sample_tokens" and step == story.planned:
        return "samples one token more"
    if kind == "finish_requests":
        return "applies the abort: blocks free" if event.finished else "applies the same abort again: nothing to end"
    if kind == "update_from_output" and step == story.planned:
        return "takes the results in: this request is gone, its token is dropped"
    if kind == "update_states" and event.finished_req_ids:
        return "the worker drops the row"
    return ""
