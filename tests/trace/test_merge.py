"""Parts of a run, taken out of a trace again and robbed of all that only merging can know, give that trace."""

from pathlib import Path

import msgspec
import pytest

from minivllm.trace import Trace
from minivllm.trace.check import TraceError
from minivllm.trace.events import Event
from minivllm.trace.events_cache import GetCachedBlock
from minivllm.trace.events_caller import GetOutput
from minivllm.trace.events_ipc import CoreClientReceive, CoreSend
from minivllm.trace.merge import BEFORE_A_REQUEST, COLLECT, merge
from minivllm.trace.schema import Open, Process, new_header
from minivllm.trace.store import Part

TRACES = Path(__file__).parents[2] / "traces"
SECOND = 10**9
STEP_COMES_LATER = ("core_client.receive", "get_output", "process_outputs", "abort_requests", "detokenize")


def robbed(event: Event, offset: int) -> Event:
    """The event as its own process knew it, on a clock that is `offset` behind."""
    event = msgspec.structs.replace(event, t0=event.t0 - offset, t1=event.t1 - offset)
    if event.kind in COLLECT or event.kind in BEFORE_A_REQUEST:
        event.reqs = []
    if event.proc == "caller" and event.kind in STEP_COMES_LATER:
        event.step = None
    if event.kind == "get_output":
        event.msg = None
    return event


def parts_of(trace: Trace, offset: int) -> list[Part]:
    """The core's clock is `offset` ns behind."""
    found = []
    for process in trace.header.processes:
        behind = offset if process.name == "core" else 0
        process = msgspec.structs.replace(process, offset_ns=behind)
        events = [robbed(event, behind) for event in trace if event.proc == process.name]
        number = {event.seq: place for place, event in enumerate(events)}
        for event in events:
            event.seq, event.parent = number[event.seq], number.get(event.parent)
        header = msgspec.structs.replace(trace.header, processes=[process], part=True)
        found.append(Part(header, events, True, False))
    return found[::-1]


@pytest.mark.parametrize(
    ("name", "offset"),
    [("two-process-together", 0), ("two-process-late-abort", 0), ("together-wall", 5 * SECOND), ("nap", -SECOND)],
)
def test_taken_apart_and_put_together(name: str, offset: int) -> None:
    trace = Trace.load(TRACES / f"{name}.jsonl.gz")
    _, events = merge(parts_of(trace, offset))
    assert events == trace.events


# ---------------------------------------------------------------------- made by hand


def part(name: str, clock: str, *lines: object, bound: int = 0) -> Part:
    return Part(new_header(clock, 0, Process(name, error_bound_ns=bound), "test"), list(lines), True, False)


def test_a_receive_waits_for_its_send_and_comes_a_tick_later() -> None:
    caller = part("caller", "logical", CoreClientReceive(0, "caller", 1000, 2000, msg=0, message_type="OUTPUTS"))
    core = part("core", "logical", CoreSend(0, "core", 9000, 10000, msg=0, message_type="OUTPUTS"))
    _, events = merge([core, caller])
    assert [(event.kind, event.t0, event.t1) for event in events] == [
        ("core.send", 9000, 10000),
        ("core_client.receive", 10000, 11000),
    ]


def test_a_call_that_never_ended_lasts_to_the_last_that_is_known() -> None:
    lines = [Open(0, "step", 1000, None, "main", 3), GetCachedBlock(1, "core", 2000, 5000, parent=0), Open(
        2, "free", 6000, None, "main", 3
    ), GetCachedBlock(4, "core", 3000, 4000, parent=77)]  # fmt: skip
    _, events = merge([part("core", "monotonic", *lines)])
    unfinished = {event.of: (event.t0, event.t1) for event in events if event.kind == "unfinished"}
    assert unfinished == {"step": (0, 4000), "free": (5000, 5000)}
    assert [event.parent for event in events] == [None, 0, None, None]


@pytest.mark.parametrize(("early", "good"), [(100, True), (101, False)])
def test_messages_may_be_early_by_as_much_as_the_clocks_are_apart(early: int, good: bool) -> None:
    send = CoreSend(0, "core", 9000, 9500, msg=0, message_type="OUTPUTS")
    receive = CoreClientReceive(0, "caller", 9000 - early, 9900, msg=0, message_type="OUTPUTS")
    both = [part("core", "monotonic", send, bound=100), part("caller", "monotonic", receive)]
    if good:
        assert len(merge(both)[1]) == 2
    else:
        with pytest.raises(TraceError, match="comes before event"):
            merge(both)


def test_the_answer_to_a_utility_call_is_no_output() -> None:
    lines = [
        CoreClientReceive(0, "caller", 1000, 1500, msg=0, message_type="UTILITY"),
        CoreClientReceive(1, "caller", 2000, 2500, msg=1, message_type="OUTPUTS"),
        GetOutput(2, "caller", 3000, 3500, num_outputs=1),
    ]
    _, events = merge([part("caller", "monotonic", *lines)])
    assert events[-1].msg == 1
