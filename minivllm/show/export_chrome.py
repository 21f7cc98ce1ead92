"""A trace as Chrome trace events, which Perfetto and chrome://tracing open.

Interface: to_chrome.
Must not know: files.

What is in it: a process for each process of the engine, with a track for each thread and nested slices; one more for
the requests, with a track for each and a slice for each phase of its life; an arrow from every message's sending to its
receiving; counters. Times are microseconds; those of a logical clock are ticks, and mean order alone.

The layers that detail 0 sums up (B17, B18) overlap each other: each has a track of its own under its thread.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from minivllm.show.describe import describe
from minivllm.show.lives import Lives
from minivllm.show.phases import stages
from minivllm.trace.events import Event
from minivllm.trace.events_worker import Summed
from minivllm.trace.merge import message_pairs
from minivllm.trace.replay import Trace
from minivllm.trace.schema import COMMON

REQUESTS = "requests"  # the process that is none
MAX_ITEMS = 32  # of a list in a slice's arguments
COUNTERS = {
    "free blocks": "num_free_blocks",
    "running": "num_running",
    "waiting": "num_waiting",
}

Row = dict[str, Any]


def to_chrome(trace: Trace) -> dict[str, Any]:
    """The trace as an object of the Trace Event Format, to be written as JSON."""
    lives = Lives(trace)
    tracks = _Tracks(trace)
    rows = [*tracks.names(lives), *_slices(trace, lives, tracks), *_life_slices(lives, tracks)]
    rows += _arrows(trace, tracks)
    rows += _counters(trace, tracks)
    header = trace.header
    return {
        "traceEvents": rows,
        "displayTimeUnit": "ms",
        "otherData": {
            "minivllm": header.minivllm,
            "vllm": header.vllm,
            "clock": header.clock,
            "detail": header.detail,
            **{name: value for name, value in header.config.items() if isinstance(value, str | int | float | bool)},
        },
    }


class _Tracks:
    """Numbers of processes and threads: pid from 1, tid from 1 in each."""

    def __init__(self, trace: Trace) -> None:
        procs = [process.name for process in trace.header.processes]
        self.pids: dict[str, int] = {}
        for proc in (*procs, *(event.proc for event in trace)):
            self.pids.setdefault(proc, len(self.pids) + 1)
        self.pids[REQUESTS] = len(self.pids) + 1
        self.tids: dict[tuple[str, str], int] = {}
        for event in trace:
            proc, track = self.track(event)
            self.tids.setdefault((proc, track), sum(name[0] == proc for name in self.tids) + 1)

    @staticmethod
    def track(event: Event) -> tuple[str, str]:
        """(process, name of the thread, or of the track that a sum over layers has)."""
        if isinstance(event, Summed) and event.layer is None:
            return event.proc, f"{event.thread}: {event.kind} (all layers)"
        return event.proc, event.thread

    def of(self, event: Event) -> Row:
        proc, track = self.track(event)
        return {"pid": self.pids[proc], "tid": self.tids[proc, track]}

    def names(self, lives: Lives) -> Iterator[Row]:
        """What Perfetto calls each process and thread, and their order."""
        for proc, pid in self.pids.items():
            name = "requests, phase by phase" if proc == REQUESTS else f"minivllm {proc}"
            yield _meta("process_name", pid, 0, name=name)
            yield _meta("process_sort_index", pid, 0, sort_index=pid)
        for (proc, track), tid in self.tids.items():
            yield _meta("thread_name", self.pids[proc], tid, name=track)
            yield _meta("thread_sort_index", self.pids[proc], tid, sort_index=tid)
        for tid, life in enumerate(lives.lives.values(), start=1):
            yield _meta("thread_name", self.pids[REQUESTS], tid, name=f"request {life.name}")
            yield _meta("thread_sort_index", self.pids[REQUESTS], tid, sort_index=tid)


def _meta(what: str, pid: int, tid: int, **args: Any) -> Row:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _us(ns: int) -> float:
    return ns / 1000


# ---------------------------------------------------------------------- slices


def _slices(trace: Trace, lives: Lives, tracks: _Tracks) -> Iterator[Row]:
    for event in trace:
        boundary = event.boundary or ""
        yield {
            "ph": "X",
            "name": f"{boundary} {event.kind}".strip(),
            "cat": boundary or "step",
            **tracks.of(event),
            "ts": _us(event.t0),
            "dur": _us(event.duration),
            "args": _arguments(event, lives),
        }


def _arguments(event: Event, lives: Lives) -> Row:
    """What Perfetto shows of a selected slice: one line, then the event's own fields, long lists cut."""
    requests = [lives.name(request_id) for request_id in event.reqs]
    args: Row = {"seq": event.seq}
    if event.step is not None:
        args["step"] = event.step
    if requests:
        args["requests"] = ", ".join(requests)
    said = describe(event, event.reqs[0]) if event.reqs and event.view_error is None else ""
    if said:
        args["what"] = said
    raw = getattr(event, "raw", None)
    fields = raw if isinstance(raw, dict) else msgspec.to_builtins(event)
    for name, value in fields.items():
        if name not in COMMON and name != "kind":
            args[name] = _cut(value)
    if event.error is not None:
        args["error"] = event.error
    return args


def _cut(value: Any) -> Any:
    if isinstance(value, list | tuple):
        shown = [_cut(item) for item in value[:MAX_ITEMS]]
        return shown + [f"… {len(value) - MAX_ITEMS} more"] * (len(value) > MAX_ITEMS)
    if isinstance(value, dict):
        return {key: _cut(inner) for key, inner in value.items()}
    return value


def _life_slices(lives: Lives, tracks: _Tracks) -> Iterator[Row]:
    """For each request its whole life, and in it its phases."""
    for tid, life in enumerate(lives.lives.values(), start=1):
        stretches = stages(lives, life.request_id)
        if not stretches:
            continue
        where = {"ph": "X", "pid": tracks.pids[REQUESTS], "tid": tid}
        t0, t1 = stretches[0].t0, stretches[-1].t1
        args = {"request": life.name, "request_id": life.request_id, "end": life.end}
        yield {
            **where,
            "name": f"request {life.name}",
            "cat": "request",
            "ts": _us(t0),
            "dur": _us(t1 - t0),
            "args": args,
        }
        for phase in stretches:
            args = {"request": life.name, "steps": ", ".join(map(str, phase.steps))}
            times = {"ts": _us(phase.t0), "dur": _us(phase.duration)}
            yield {**where, "name": phase.name, "cat": "phase", **times, "args": args}


# ---------------------------------------------------------------------- arrows and counters


def _arrows(trace: Trace, tracks: _Tracks) -> Iterator[Row]:
    """From the sending of each message to its receiving. Each ends in the slice that encloses its stamp."""
    for number, (send, receive) in enumerate(message_pairs(trace), start=1):
        arrow = {"cat": "message", "name": f"{send.message_type} {send.msg}", "id": number}
        yield {"ph": "s", **arrow, **tracks.of(send), "ts": _us(send.t0)}
        yield {"ph": "f", "bp": "e", **arrow, **tracks.of(receive), "ts": _us(receive.t0)}


def _counters(trace: Trace, tracks: _Tracks) -> Iterator[Row]:
    """What changed, at the moment when it had changed. They stand with the process that has the scheduler."""
    for event in trace:
        if event.kind not in ("scheduler.add_request", "schedule", "update_from_output", "finish_requests"):
            continue
        where = {"ph": "C", "pid": tracks.pids[event.proc], "tid": 0, "ts": _us(event.t1)}
        for name, field in COUNTERS.items():
            value = getattr(event, field, None)
            if value is not None:
                now = value[1] if isinstance(value, tuple) else value
                yield {**where, "name": name, "args": {name: now}}
        if event.kind == "schedule" and event.total_num_scheduled_tokens is not None:
            yield {**where, "name": "tokens per step", "args": {"tokens per step": event.total_num_scheduled_tokens}}
