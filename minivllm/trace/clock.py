"""Clocks of a trace: real time, or a counter that makes two recordings of the same run equal.

Interface: make_clock; MonotonicClock and LogicalClock, called for a stamp in ns; measure_offset between two processes.
Must not know: events.
"""

import time
from collections.abc import Callable
from itertools import count

import msgspec

LOGICAL_TICK_NS = 1000  # one stamp of a logical clock
ROUNDS = 16  # of the four-stamp exchange; the best one counts


class MonotonicClock:
    """Nanoseconds that never go backwards. On Linux it is one clock for all processes of the machine."""

    kind = "monotonic"
    __call__ = staticmethod(time.perf_counter_ns)  # nothing in between: it is called hundreds of times a step


class LogicalClock:
    """Every stamp is one tick after the one before. Says what came first, and nothing about how long it took."""

    kind = "logical"

    def __init__(self) -> None:
        self._ticks = count()
        self.latest = 0  # ns

    def __call__(self) -> int:
        self.latest = next(self._ticks) * LOGICAL_TICK_NS
        return self.latest

    def seconds(self) -> float:
        """The latest stamp, without a new tick."""
        return self.latest / 1e9


Clock = MonotonicClock | LogicalClock


def make_clock(kind: str) -> Clock:
    """The clock called `kind`, monotonic or logical."""
    return LogicalClock() if kind == "logical" else MonotonicClock()


class Offset(msgspec.Struct, frozen=True):
    """How far another process's clock is ahead of this one's, ns, and how far off that may be."""

    offset_ns: int = 0
    error_bound_ns: int = 0


def measure_offset(ask: Callable[[], tuple[int, int]], clock: Callable[[], int], rounds: int = ROUNDS) -> Offset:
    """Compare this process's `clock` with another's by four stamps: sent here, received there, sent there, back here.

    ask: one exchange; returns the other side's two stamps. The answer may have travelled unevenly, by at most the time
    that it was under way, so the quickest of the rounds has the smallest error. An offset within its own error is none.
    """
    best: Offset | None = None
    for _ in range(rounds):
        sent = clock()
        received_there, sent_there = ask()
        back = clock()
        bound = ((back - sent) - (sent_there - received_there) + 1) // 2
        if best is None or bound < best.error_bound_ns:
            best = Offset(((received_there - sent) + (sent_there - back)) // 2, bound)
    if abs(best.offset_ns) <= best.error_bound_ns:
        return Offset(0, best.error_bound_ns)
    return best
