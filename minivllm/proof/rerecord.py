"""Whether a trace recorded anew is the one that was committed.

Traces on a logical clock are equal event by event. Two things may differ: the header's environment, and the last digits
of values that a model computed, since processors round differently. So tokens that are about equally likely may change
places.

Interface: first_difference.
Must not know: the engine.
"""

import math
from typing import Any

import msgspec

from minivllm.trace.replay import Trace

TOLERANCE = 1e-3  # of values that a model computed


def first_difference(committed: Trace, anew: Trace) -> str | None:
    """Where two recordings of one run first differ, in one line, or None if they don't."""
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
    for name in ("minivllm", "parts_sha256"):  # versions of this package and of what stands in for it
        header.pop(name, None)
    return header


def _compare(committed: Any, anew: Any, place: str) -> str | None:
    if isinstance(committed, float) and isinstance(anew, float):
        same = math.isclose(committed, anew, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return None if same else f"{place}: {committed} committed, {anew} anew"
    if _are_candidates(committed) and _are_candidates(anew):
        return _compare_candidates(committed, anew, place)
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


def _are_candidates(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(c, dict) and "logprob" in c for c in value)


def _compare_candidates(committed: list[dict], anew: list[dict], place: str) -> str | None:
    """The likeliest tokens of a row, in whatever order, those at the end of the list perhaps instead of others."""
    logprobs = [sorted((candidate["logprob"] for candidate in row), reverse=True) for row in (committed, anew)]
    difference = _compare(*logprobs, f"{place}, logprobs")
    by_id, by_id_anew = ({candidate["token_id"]: candidate for candidate in row} for row in (committed, anew))
    for token_id in [token_id for token_id in by_id if token_id in by_id_anew]:
        difference = difference or _compare(by_id[token_id], by_id_anew[token_id], f"{place}, token {token_id}")
    for token_id, candidate in (by_id | by_id_anew).items():
        if token_id not in by_id or token_id not in by_id_anew:  # only the least likely may be in one list alone
            least = logprobs[0][-1]
            difference = difference or _compare(least, candidate["logprob"], f"{place}, token {token_id}")
    return difference


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
