"""Processes and messages."""

from minivllm.show.explain import explain
from minivllm.trace import Trace
from trace_facts.lookup import counted, first, internal_id, plans_with, quantity


@quantity
def sizes(trace: Trace, kind: str) -> str:
    """Bytes of the messages of a kind, equal ones in a row counted."""
    return counted((event.num_bytes for event in trace.filter(kind=kind)), least=2)


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
def steps_late(trace: Trace, request: str) -> int:
    """Steps that a request still got after the one whose token completed the stop string."""
    me = internal_id(trace, request)
    found = first((e for e in trace.filter(request=me, kind="detokenize") if e.stop_string is not None), "stop string")
    return sum(plan.step > found.step for plan in plans_with(trace, request))


@quantity
def in_vain(trace: Trace, request: str) -> str:
    """What `minivllm why` says of the step whose token was dropped, as the request had ended meanwhile."""
    me = internal_id(trace, request)
    update = first((e for e in trace.filter(kind="update_from_output") if me in e.aborted), "step in vain")
    return explain(trace, request, update.step).sentence


@quantity
def ahead(trace: Trace) -> str:
    """In how many of its steps the core had planned a later step when the caller turned a step's token into text."""
    plans = trace.filter(kind="schedule")
    events = [event for event in trace.filter(kind="process_outputs") if event.step is not None]
    later = sum(any(plan.step > event.step and plan.t0 < event.t0 for plan in plans) for event in events)
    return f"{later} of {len(events)}"
