"""What the quantities share: their table, and how requests, steps and answers are found in a trace.

Owns: QUANTITIES, filled by `@quantity`.
Interface: QUANTITIES, quantity; internal_id, first, schedule_of, plans_with, updates_of, completion, counted, run.
Must not know: any quantity.

Requests are named by the caller's number, or `0/1` for the second answer of n > 1. Steps and output tokens count from
1, positions from 0.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from minivllm.trace import Trace
from minivllm.trace.events import Event

KEPT = 3  # of a long run of numbers, at its start; its end shows one

QUANTITIES: dict[str, Callable[..., str]] = {}


def quantity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function a quantity under its own name; what it returns becomes text."""
    QUANTITIES[function.__name__] = lambda *arguments: _text(function(*arguments))
    return function


def _text(found: Any) -> str:
    if isinstance(found, list | tuple):
        return ", ".join(map(_text, found))
    if isinstance(found, float):
        return f"{found:.3f}"
    return f"{found:,}" if isinstance(found, int) and not isinstance(found, bool) else str(found)


def internal_id(trace: Trace, request: str) -> str:
    """Internal id; `0`, or `0/1` for the second answer of n > 1."""
    external, _, index = request.partition("/")
    return trace.internal_ids(external)[int(index or 0)]


def first(events: Iterable[Event], what: str) -> Any:
    for event in events:
        return event
    raise LookupError(f"the trace has no {what}")


def schedule_of(trace: Trace, step: str) -> Any:
    return first(trace.filter(kind="schedule", step=int(step)), f"plan of step {step}")


def plans_with(trace: Trace, request: str) -> list[Any]:
    """The plans that give a request tokens."""
    me = internal_id(trace, request)
    return [plan for plan in trace.filter(kind="schedule") if me in plan.num_scheduled_tokens]


def updates_of(trace: Trace, request: str) -> list[Any]:
    me = internal_id(trace, request)
    return [u for event in trace.filter(kind="update_from_output") for u in event.updates if u.req_id == me]


def completion(trace: Trace, request: str) -> Any:
    """What the caller got for a request."""
    external, _, index = request.partition("/")
    done = (c for event in trace.filter(kind="run_engine") for c in event.outputs)
    return first((c for c in done if (c.request_id, c.index) == (external, int(index or 0))), f"answer to {request}")


def counted(numbers: Iterable[int], least: int = 3) -> str:
    """`41, 14 × 1`: equal numbers in a row, `least` at least, are counted."""
    words = []
    for number, same in groupby(numbers):
        times = len(list(same))
        words += [f"{times} × {number}"] if times >= least else [str(number)] * times
    return ", ".join(words)


def run(numbers: list[int]) -> str:
    """`5 6 7 … 31 4 3 2 1`: a long run of following numbers is cut."""
    words: list[str] = []
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            run = [str(number) for number in numbers[start:place]]
            words += run if len(run) <= KEPT + 2 else [*run[:KEPT], "…", run[-1]]
            start = place
    return " ".join(words)
