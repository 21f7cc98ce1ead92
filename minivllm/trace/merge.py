"""Parts of a trace, each from one process, become one: one clock, one order, every event with its requests and step.

Interface: merge; check_messages.
Must not know: files.

What one process can't know by itself is filled in here: the steps of the caller's events (a message number leads to
the step that made the message), the requests of a call that has an id only at its end, the calls that never returned.
"""

from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec

from minivllm.trace.check import TraceError
from minivllm.trace.clock import LOGICAL_TICK_NS
from minivllm.trace.events import Event, Unfinished
from minivllm.trace.events_ipc import Message
from minivllm.trace.schema import Header, Open
from minivllm.trace.store import Part

# Their requests are those of what happens inside them.
COLLECT = ("generate", "chat", "run_engine", "llm_engine.add_request", "step", "unfinished")
# Rendered before there is a request: they belong to the request that is added next.
BEFORE_A_REQUEST = ("render_cmpl", "render_chat")
SENT = {"core_client.send": "core.receive", "core.send": "core_client.receive"}
RECEIVED = {receive: send for send, receive in SENT.items()}


def merge(parts: list[Part]) -> tuple[Header, list[Event]]:
    """One trace of the parts of one run: the caller's part, and the core's if it had a process of its own.

    Raises TraceError if a message is received before it was sent.
    """
    parts = sorted(parts, key=lambda part: part.header.processes[0].name)  # caller, core
    processes, events = [], []
    for part in parts:
        process = msgspec.structs.replace(part.header.processes[0], complete=part.complete)
        processes.append(process)
        events.append(_with_unfinished(part, process.name))
    environment = dict(parts[0].header.environment)
    pids = _pids(parts)
    if pids:  # on a logical clock nobody notes them
        environment["pids"] = pids
    if parts[0].header.clock == "logical":
        _lamport(events)
    else:
        origin = _to_one_clock(events, [process.offset_ns for process in processes])
        if "clock_ns" in environment:
            since = (environment.pop("clock_ns") - origin) / 1e9
            environment["started_at"] = environment.pop("unix_time") - since
    merged = _in_one_order(events)
    _fill_in(merged)
    header = msgspec.structs.replace(
        parts[0].header,
        processes=processes,
        part=False,
        environment=environment,
    )
    check_messages(header, merged)
    return header, merged


def _pids(parts: list[Part]) -> dict[str, int]:
    return {name: pid for part in parts for name, pid in part.header.environment.get("pids", {}).items()}


def _with_unfinished(part: Part, proc: str) -> list[Event]:
    """The events of a part, with one more for each call that began and never ended."""
    events = [line for line in part.lines if isinstance(line, Event)]
    ended = {event.seq for event in events}
    last = max((event.t1 for event in events), default=0)
    for line in part.lines:
        if isinstance(line, Open) and line.seq not in ended:
            event = Unfinished(
                line.seq, proc, line.t0, max(last, line.t0), line.parent, line.thread, line.step, of=line.of
            )
            events.append(event)
    known = {event.seq for event in events}
    for event in events:
        if event.parent not in known:
            event.parent = None  # its parent was lost with the last lines
    return events


# ---------------------------------------------------------------------- one clock, one order


def _to_one_clock(events: list[list[Event]], offsets: list[int]) -> int:
    """Bring all stamps to the caller's clock, from the first of them on; returns that one, ns."""
    origin = min((event.t0 + offset for part, offset in zip(events, offsets, strict=True) for event in part), default=0)
    for part, offset in zip(events, offsets, strict=True):
        for event in part:
            event.t0 += offset - origin
            event.t1 += offset - origin
    return origin


def _lamport(events: list[list[Event]]) -> None:
    """Push logical stamps on so that every receive comes after its send.

    Each part is walked in the order of its stamps. A receive waits until its send has its final stamp, in the other
    part, and then moves itself and all that follows it in its own part.
    """
    stamps: list[list[tuple[int, Event, bool]]] = [
        sorted(
            ((stamp, event, is_exit) for event in part for is_exit, stamp in enumerate((event.t0, event.t1))),
            key=lambda stamp: stamp[0],
        )
        for part in events
    ]
    to_come = {(event.kind, event.msg) for part in events for event in part if event.kind in SENT}
    sent: dict[tuple[str, int], int] = {}  # final stamps
    place, shift = [0] * len(events), [0] * len(events)
    moved = True
    while moved:
        moved = False
        for part, line in enumerate(stamps):
            while place[part] < len(line):
                stamp, event, is_exit = line[place[part]]
                if not is_exit and event.kind in RECEIVED:
                    message = (RECEIVED[event.kind], event.msg)
                    if message in to_come:
                        break  # the other part goes first
                    shift[part] = max(shift[part], sent.get(message, -LOGICAL_TICK_NS) + LOGICAL_TICK_NS - stamp)
                if is_exit:
                    event.t1 = stamp + shift[part]
                else:
                    event.t0 = stamp + shift[part]
                    if event.kind in SENT:
                        sent[event.kind, event.msg] = event.t0
                        to_come.discard((event.kind, event.msg))
                place[part] += 1
                moved = True


def _in_one_order(events: list[list[Event]]) -> list[Event]:
    """All events by entry, numbered from 0, their parents with them."""
    merged = sorted((event for part in events for event in part), key=attrgetter("t0", "proc", "seq"))
    number = {(event.proc, event.seq): place for place, event in enumerate(merged)}
    for event in merged:
        event.seq = number[event.proc, event.seq]
        if event.parent is not None:
            event.parent = number[event.proc, event.parent]
    return merged


# ---------------------------------------------------------------------- what one process can't know


def _fill_in(events: list[Event]) -> None:
    _number_outputs(events)
    _steps(events)
    _requests(events)


def _number_outputs(events: list[Event]) -> None:
    """Which message a `get_output` took: the first took the first that was no answer to a utility call. (One without
    outputs took none, but was woken.)"""
    received = (e.msg for e in events if e.kind == "core_client.receive" and e.message_type == "OUTPUTS")
    for event in events:
        if event.kind == "get_output" and event.num_outputs and event.error is None:
            event.msg = next(received, None)


def _steps(events: list[Event]) -> None:
    """A message belongs to the step that made it; so does what the caller does with it until it takes the next."""
    step_of_message = {event.msg: event.step for event in events if event.kind == "core.send"}
    step_inside = {event.parent: event.step for event in events if event.kind == "step"}
    latest: dict[str, int | None] = {}  # by thread of the caller
    for event in events:
        if event.kind == "core_client.receive":
            event.step = step_of_message.get(event.msg)
        elif event.kind == "get_output":
            event.step = step_of_message.get(event.msg) if event.msg is not None else step_inside.get(event.seq)
            latest[event.thread] = event.step
        elif event.kind in ("process_outputs", "abort_requests"):
            event.step = latest.get(event.thread)
        elif event.kind in ("detokenize", "finish_requests") and event.step is None and event.parent is not None:
            event.step = events[event.parent].step


def _requests(events: list[Event]) -> None:
    inside: dict[int, list[list[str]]] = {}  # by parent, the last child first
    for event in reversed(events):
        if event.kind in COLLECT:
            children = [req_id for reqs in reversed(inside.pop(event.seq, [])) for req_id in reqs]
            event.reqs = list(dict.fromkeys(children + event.reqs))
        if event.parent is not None and event.reqs:
            inside.setdefault(event.parent, []).append(event.reqs)
    for event in events:  # parents first
        if not event.reqs and event.parent is not None and event.kind not in BEFORE_A_REQUEST:
            event.reqs = list(events[event.parent].reqs)
    added_next: dict[int | None, list[str]] = {}  # by parent
    for event in reversed(events):
        if event.kind == "llm_engine.add_request":
            added_next[event.parent] = event.reqs
        elif event.kind in BEFORE_A_REQUEST:
            event.reqs = list(added_next.pop(event.parent, []))


# ---------------------------------------------------------------------- messages


def message_pairs(events: Iterable[Event]) -> Iterator[tuple[Message, Message]]:
    """(send, receive) of each message of which both are known."""
    sent: dict[tuple[str, int], Message] = {}
    received: list[Message] = []
    for event in events:
        if event.kind in SENT and event.msg is not None:
            sent[event.kind, event.msg] = event
        elif event.kind in RECEIVED and event.msg is not None:
            received.append(event)
    for receive in received:
        send = sent.get((RECEIVED[receive.kind], receive.msg))
        if send is not None:
            yield send, receive


def check_messages(header: Header, events: Iterable[Event]) -> None:
    """Raise TraceError if a message came before it was sent, by more than the clocks may be apart."""
    bound = max((process.error_bound_ns for process in header.processes), default=0)
    for send, receive in message_pairs(events):
        if receive.t0 < send.t0 - bound:
            raise TraceError(
                f"Event {receive.seq} ({receive.kind}, message {receive.msg}) at {receive.t0} ns comes before event "
                f"{send.seq} ({send.kind}) at {send.t0} ns that sent it; the clocks may be {bound} ns apart. The "
                "parts are not of one run, or a clock was set."
            )
