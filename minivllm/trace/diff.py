"""Two traces of the same workload side by side: the first difference, and what follows from it.

    from minivllm.trace.diff import diff, format_diff
    print(format_diff(diff(Trace.load("a.jsonl"), Trace.load("b.jsonl"))))

Owns: how two traces are aligned, and which fields say something about behaviour.
Interface: diff, format_diff; Diff, Difference, Compared.
Must not know: how the traces were recorded. They may differ in config, engine, commit, clock and number of processes.

Requests are paired by external id, or by order of arrival where the ids have nothing in common; then steps by number;
within a step events by kind, requests, and how often that came before. A kind that one trace does not have at all is
named, and is no first difference. Times are compared as ratios only, and only those of monotonic clocks.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import msgspec

from minivllm.trace.events import Event
from minivllm.trace.replay import Trace
from minivllm.trace.schema import COMMON

# A block's hash is a name: it changes with the hash seed and the block size, and what follows from it is compared.
# Times of arrival and durations are the clock's business. `reqs` says the same as the fields.
IGNORED = {*COMMON, "block_hash", "block_hashes", "arrival_time", "total_ns", "device_ns"} - {"error"}
# Their fields sum up what happened inside them, so they are looked at after that.
CONTAINERS = {
    "generate",
    "chat",
    "run_engine",
    "llm_engine.add_request",
    "core_client.add_request",
    "core.receive",
    "step",
    "executor.execute_model",
    "worker.execute_model",
    "sample_tokens",
    "get_output",
    "process_outputs",
}
TOLERANCE = 1e-3  # of values at detail 2; kernels round differently from machine to machine
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not the same in both.

    vLLM: none, vLLM writes no trace
    """

    kind: str
    boundary: str | None
    step: int | None
    requests: tuple[str, ...]  # names that both traces share
    field: str  # with the request or the place in it: num_scheduled_tokens.0; "" for an event that one does not have
    a: Any
    b: Any
    seqs: tuple[int | None, int | None]  # of the two events


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both traces.

    vLLM: none, see Difference
    """

    what: str
    a: Any
    b: Any

    @property
    def same(self) -> bool:
        return self.a == self.b


@dataclass(slots=True)
class Diff:
    """What two traces do not have in common.

    vLLM: none, see Difference
    """

    settings: list[Compared] = field(default_factory=list)  # of header, config and model, that differ
    only_a: dict[str, int] = field(default_factory=dict)  # kind -> events, of kinds that b does not have
    only_b: dict[str, int] = field(default_factory=dict)
    unpaired_a: list[str] = field(default_factory=list)  # requests
    unpaired_b: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)  # the first of each kind and field, in order
    count: int = 0  # of all
    figures: list[Compared] = field(default_factory=list)
    outputs: list[tuple[str, Compared]] = field(default_factory=list)  # request, its output
    ratios: list[tuple[str, float]] = field(default_factory=list)  # b's time by a's; of monotonic clocks

    @property
    def first(self) -> Difference | None:
        return self.differences[0] if self.differences else None

    @property
    def same(self) -> bool:
        """Whether the engine did the same in both, whatever its settings say."""
        return not (self.differences or self.only_a or self.only_b or self.unpaired_a or self.unpaired_b)


def diff(a: Trace, b: Trace) -> Diff:
    """Compare two traces.

    vLLM: none, see Difference
    """
    from minivllm.trace.diff_figures import figures, output_changes, time_ratios

    names_a, names_b, unpaired_a, unpaired_b = pair_requests(a, b)
    found = Diff(settings=list(_settings(a, b)), unpaired_a=unpaired_a, unpaired_b=unpaired_b)
    kinds_a, kinds_b = (Counter(event.kind for event in trace) for trace in (a, b))
    found.only_a = {kind: count for kind, count in kinds_a.items() if kind not in kinds_b}
    found.only_b = {kind: count for kind, count in kinds_b.items() if kind not in kinds_a}
    seen: set[tuple[str, str]] = set()
    for difference in _differences(a, b, names_a, names_b, set(kinds_a) & set(kinds_b)):
        found.count += 1
        what = difference.kind, difference.field.partition(".")[0]
        if what not in seen:
            seen.add(what)
            found.differences.append(difference)
    found.figures = figures(a, b)
    found.outputs = output_changes(a, b, names_a, names_b)
    found.ratios = time_ratios(a, b)
    return found


# ---------------------------------------------------------------------- pairing


def pair_requests(a: Trace, b: Trace) -> tuple[dict[str, str], dict[str, str], list[str], list[str]]:
    """(internal id -> shared name of each trace, names that only a has, that only b has)."""
    ids_a, ids_b = _named(a), _named(b)
    if not set(ids_a.values()) & set(ids_b.values()):  # another run of the same engine counts on
        ids_a, ids_b = ({i: str(place) for place, i in enumerate(ids)} for ids in (ids_a, ids_b))
    only_a = [name for name in ids_a.values() if name not in ids_b.values()]
    only_b = [name for name in ids_b.values() if name not in ids_a.values()]
    return ids_a | _parents(a), ids_b | _parents(b), only_a, only_b


def _named(trace: Trace) -> dict[str, str]:
    """Internal id -> external id, with the number of the answer where there are several."""
    total, seen = Counter(trace.external_ids.values()), Counter()
    names = {}
    for internal, external in trace.external_ids.items():
        names[internal] = external if total[external] == 1 else f"{external}[{seen[external]}]"
        seen[external] += 1
    return names


def _parents(trace: Trace) -> dict[str, str]:
    """With n > 1 the parent has an id of its own."""
    added = (event for event in trace if event.kind == "llm_engine.add_request" and event.n not in (None, 1))
    return {event.request_id: f"{event.external_req_id}[parent]" for event in added}


# ---------------------------------------------------------------------- events


def _differences(
    a: Trace, b: Trace, names_a: dict[str, str], names_b: dict[str, str], kinds: set[str]
) -> Iterator[Difference]:
    """All differences, in the order in which a reader would meet them."""
    events_a, events_b = _aligned(a, names_a, kinds), _aligned(b, names_b, kinds)
    order = list(events_a)
    order += [key for key in events_b if key not in events_a]
    order.sort(key=lambda key: _when(key, events_a, events_b))
    for key in order:
        one, other = events_a.get(key), events_b.get(key)
        either = one or other
        where = either.kind, either.boundary, key[0], key[2]
        seqs = one.seq if one else None, other.seq if other else None
        if one is None or other is None:
            yield Difference(*where, "", *("present" if event else ABSENT for event in (one, other)), seqs)
            continue
        for name, left, right in _fields(_plain(one, names_a), _plain(other, names_b)):
            yield Difference(*where, name, left, right, seqs)


Key = tuple[int | None, str, tuple[str, ...], int]  # step, kind, requests, how many such came before


def _aligned(trace: Trace, names: dict[str, str], kinds: set[str]) -> dict[Key, Event]:
    seen: Counter = Counter()
    events = {}
    for event in trace:
        if event.kind in kinds:
            what = event.step, event.kind, tuple(sorted(names.get(i, i) for i in event.reqs if event.kind not in CONTAINERS))
            events[*what, seen[what]] = event
            seen[what] += 1
    return events


def _when(key: Key, events_a: dict[Key, Event], events_b: dict[Key, Event]) -> tuple[Any, ...]:
    """Before the first step, then step by step; within one by the time in a, of a container by its end."""
    event = events_a.get(key) or events_b[key]
    step = key[0] if key[0] is not None else -1
    return step, event.t1 if event.kind in CONTAINERS else event.t0, key not in events_a
