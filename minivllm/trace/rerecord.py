"""Whether a trace recorded anew is the one that was committed.

Traces on a logical clock are equal event by event. Two things may differ: the header's environment, and the last digits
of values that a model computed, since processors round differently.

Interface: first_difference.
Must not know: the engine.
"""

import math
from typing import Any

import msgspec

from minivllm.trace.replay import Trace

TOLERANCE = 1e-3  # of values that a model computed


def first_difference(committed: Trace, anew: Trace) -> str | None:
    """Where two recordings of one run first differ, in one line, or None if they don't.

    vLLM: none, vLLM writes no trace
    """
    difference = _compare(_header(committed), _header(anew), "header")
    if difference:
        return difference
    for event, again in zip(committed, anew, strict=False):
        difference = _compare(msgspec.to_builtins(event), msgspec.to_builtins(again), f"event {event.seq} {event.kind}")
        if difference:
            return difference
    if len(committed) != len(anew):
        return f"{len(committed)} events committed, {len(anew)} recorded anew"
    return None


def _header(trace: Trace) -> dict[str, Any]:
    header = msgspec.to_builtins(trace.header)
    header.pop("environment", None)
    header.pop("minivllm")  # the version of this package
    return header


def _compare(committed: Any, anew: Any, place: str) -> str | None:
    if isinstance(committed, float) and isinstance(anew, float):
        same = math.isclose(committed, anew, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return None if same else f"{place}: {committed} committed, {anew} anew"
    if isinstance(committed, dict) and isinstance(anew, dict):
        for key in committed | anew:
            difference = _compare(committed.get(key), anew.get(key), f"{place}, {key}")
            if difference:
                return difference
        return None
    if isinstance(committed, list) and isinstance(anew, list) and len(committed) == len(anew):
        for index, pair in enumerate(zip(committed, anew, strict=True)):
            difference = _compare(*pair, f"{place}[{index}]")
            if difference:
                return difference
        return None
    return None if committed == anew else f"{place}: {_short(committed)} committed, {_short(anew)} anew"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
