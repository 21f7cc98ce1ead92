"""The trace: what happened at every boundary, written while the engine runs, looked at without it.

    from minivllm.trace import Trace; from minivllm.show.table import format_life
    trace = Trace.load("traces/out/hello.jsonl")
    print(format_life(trace, "0"))

Detail 0 has ids, lengths, counters, block tables, slots, positions, message sizes. Detail 1 adds, for each layer, the
shapes of what its attention gets and the launches of kernels. Detail 2 adds values: the likeliest tokens, the length of
the hidden states, and of the layers, steps and positions that a TraceWatch names (minivllm/config.py) query, K, V and
output of attention, and what each program of a launch read and wrote.

The names below are loaded at first use. None of them needs torch, a model, or the engine.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minivllm.trace.check import TraceError
    from minivllm.trace.events import KINDS, Event
    from minivllm.trace.recorder import MemorySink, Recorder
    from minivllm.trace.replay import Cursor, Trace
    from minivllm.trace.state import State

_HOMES = {
    "KINDS": "events",
    "Event": "events",
    "MemorySink": "recorder",
    "Recorder": "recorder",
    "Cursor": "replay",
    "Trace": "replay",
    "State": "state",
    "TraceError": "check",
}

__all__ = ["KINDS", "Cursor", "Event", "MemorySink", "Recorder", "State", "Trace", "TraceError", "load"]


def load(path: str, *more: str) -> "Trace":
    """Read a trace: see Trace.load."""
    from minivllm.trace.replay import Trace

    return Trace.load(path, *more)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'minivllm.trace' has no attribute {name!r}")
    return getattr(importlib.import_module(f"minivllm.trace.{_HOMES[name]}"), name)
