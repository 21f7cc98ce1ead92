"""Processes and messages."""

from minivllm.trace import Trace
from trace_facts.lookup import first, internal_id, quantity


@quantity
def sizes(trace: Trace, kind: str) -> str:
    """Bytes of the messages of a kind, equal ones in a row counted."""
    found = [event.num_bytes for event in trace.filter(kind=kind)]
    words: list[tuple[int, int]] = []
    for size in found:
        words = [*words[:-1], (size, words[-1][1] + 1)] if words and words[-1][0] == size else [*words, (size, 1)]
    return ", ".join(f"{size}" if count == 1 else f"{count} × {size}" for size, count in words)


@quantity
def smallest(trace: Trace, kind: str) -> int:
    """Bytes of the smallest message of a kind."""
    return min(event.num_bytes for event in trace.filter(kind=kind))


@quantity
def count(trace: Trace, kind: str) -> int:
    return len(trace.filter(kind=kind))


@quantity
def calls(trace: Trace, kind: str) -> int:
    """Calls in all layers and steps."""
    return sum(event.calls or 1 for event in trace.filter(kind=kind))


@quantity
def process(trace: Trace, kind: str) -> str:
    """Where events of a kind happen."""
    return " and ".join(sorted({event.proc for event in trace.filter(kind=kind)}))


@quantity
def found_in(trace: Trace, request: str) -> str:
    """(step whose token completed the stop string, step in which the core took the abort)."""
    me = internal_id(trace, request)
    found = first((e for e in trace.filter(request=me, kind="detokenize") if e.stop_string is not None), "stop string")
    ended = first((e for e in trace.filter(kind="finish_requests") if me in e.finished), "abort")
    return f"step {found.step}, and the abort reached the core in step {ended.step}"


@quantity
def steps_in_vain(trace: Trace, request: str) -> int:
    """Steps whose token was dropped, as the request had ended meanwhile."""
    me = internal_id(trace, request)
    return sum(me in event.aborted for event in trace.filter(kind="update_from_output"))


@quantity
def ahead(trace: Trace) -> str:
    """In how many of its steps the core had planned a later step when the caller turned a step's token into text."""
    plans = trace.filter(kind="schedule")
    events = [event for event in trace.filter(kind="process_outputs") if event.step is not None]
    later = sum(any(plan.step > event.step and plan.t0 < event.t0 for plan in plans) for event in events)
    return f"{later} of {len(events)}"
