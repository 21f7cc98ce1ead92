"""The events of two traces paired, and their fields compared.

Owns: how requests and events are paired, and which fields say something about what the engine did.
Interface: pair_requests, Pairs; differences, Difference.
Must not know: figures, or how a difference is shown.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from minivllm.trace.events import Event
from minivllm.trace.replay import Trace
from minivllm.trace.schema import COMMON

# A block hash is a name: it changes with the hash seed and the block size, and what follows from it is compared. The
# number of a message only says which came when.
IGNORED = {*COMMON, "kind", "block_hash", "block_hashes", "arrival_time", "total_ns", "msg"} - {"error"}
# They sum up what happened inside them, so they are looked at after that.
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
    "abort_requests",
}
# They are about one request, so a request's first is compared with its first.
OF_ONE_REQUEST = {
    "render_cmpl",
    "render_chat",
    "llm_engine.add_request",
    "process_inputs",
    "assign_request_id",
    "output_processor.add_request",
    "core_client.add_request",
    "core_client.send",
    "core.receive",
    "preprocess_add_request",
    "scheduler.add_request",
    "get_computed_blocks",
    "allocate_slots",
    "cache_blocks",
    "forget_uncomputed_blocks",
    "free",
    "get_cached_block",
    "touch",
    "get_new_blocks",
    "cache_full_blocks",
    "free_blocks",
    "detokenize",
}
TOLERANCE = 1e-3  # of values at detail 2: kernels round differently from machine to machine
NO_EVENT, EVENT = "no such event", "an event"

Key = tuple[int | None, str, tuple[str, ...], int]  # step, kind, requests, how many such came before


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not the same in both."""

    kind: str
    boundary: str | None  # B1..B27
    step: int | None
    requests: tuple[str, ...]  # by the names that both traces share
    field: str  # with the request or the name in it, as in num_scheduled_tokens.0; "": one has no such event
    a: Any
    b: Any
    seqs: tuple[int | None, int | None]  # of the two events

    @property
    def field_name(self) -> str:
        """The event's field, without a place in it."""
        return re.split(r"[.[]", self.field, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which request of one trace is which of the other."""

    names_a: dict[str, str]  # internal id -> shared name
    names_b: dict[str, str]
    only_a: list[str]  # shared names without a partner
    only_b: list[str]


def pair_requests(a: Trace, b: Trace) -> Pairs:
    """Pair by external id; by order of arrival where no external id is in both."""
    names_a, names_b = _named(a), _named(b)
    if not set(names_a.values()) & set(names_b.values()):  # one of them is not its engine's first run
        names_a, names_b = _by_arrival(a), _by_arrival(b)
    shown_a, shown_b = set(names_a.values()), set(names_b.values())
    only_a = [name for name in dict.fromkeys(names_a.values()) if name not in shown_b]
    only_b = [name for name in dict.fromkeys(names_b.values()) if name not in shown_a]
    return Pairs(names_a | _parents(a), names_b | _parents(b), only_a, only_b)


def _named(trace: Trace) -> dict[str, str]:
    """Internal id -> external id, with the number of the answer where there are several."""
    total, seen = Counter(trace.external_ids.values()), Counter()
    names = {}
    for internal, external in trace.external_ids.items():
        names[internal] = external if total[external] == 1 else f"{external}[{seen[external]}]"
        seen[external] += 1
    return names


def _by_arrival(trace: Trace) -> dict[str, str]:
    names = {}
    for place, (internal, external) in enumerate(trace.external_ids.items()):
        names[internal] = names[external] = str(place)
    return names


def _parents(trace: Trace) -> dict[str, str]:
    """With n > 1 the parent has an internal id of its own."""
    added = (event for event in trace if event.kind == "llm_engine.add_request" and event.n not in (None, 1))
    return {event.request_id: f"{event.external_req_id} (parent)" for event in added if event.request_id}


# ---------------------------------------------------------------------- events


def differences(a: Trace, b: Trace, pairs: Pairs, kinds: set[str]) -> Iterator[Difference]:
    """All differences between events of these kinds, in the order in which one would meet them."""
    events_a, events_b = _keyed(a, pairs.names_a, kinds), _keyed(b, pairs.names_b, kinds)
    steps, alone = set(a.steps) & set(b.steps), {*pairs.only_a, *pairs.only_b}
    for key in _in_order((a, events_a), (b, events_b)):
        one, other = events_a.get(key), events_b.get(key)
        either = one or other
        step, _, requests, _ = key
        where = either.kind, either.boundary, step, requests
        seqs = one.seq if one else None, other.seq if other else None
        if one is not None and other is not None:
            for name, left, right in _unequal_fields(one, other, pairs):
                yield Difference(*where, name, left, right, seqs)
        elif not alone.intersection(requests) and (step is None or step in steps):
            yield Difference(*where, "", EVENT if one else NO_EVENT, EVENT if other else NO_EVENT, seqs)


def _keyed(trace: Trace, names: dict[str, str], kinds: set[str]) -> dict[Key, Event]:
    seen: Counter = Counter()
    events = {}
    for event in trace:
        if event.kind in kinds:
            of = tuple(names.get(i, i) for i in event.reqs) if event.kind in OF_ONE_REQUEST else ()
            what = event.step, event.kind, of
            events[*what, seen[what]] = event
            seen[what] += 1
    return events


def _in_order(*traces: tuple[Trace, dict[Key, Event]]) -> list[Key]:
    """Keys by step, then by time; in each step those that only the second trace has come last, by its clock."""
    places: dict[Key, tuple[int, int, int]] = {}
    for number, (trace, events) in enumerate(traces):
        plans = [event for event in trace if event.kind == "schedule" and event.step is not None]
        begins = [plan.t0 for plan in plans]
        for key, event in events.items():
            time = event.t1 if event.kind in CONTAINERS else event.t0
            step = key[0]
            if step is None:  # it comes after the latest step that had begun
                begun = bisect_right(begins, time)
                step = plans[begun - 1].step if begun else 0
            places.setdefault(key, (step, number, time))
    return sorted(places, key=places.__getitem__)


# ---------------------------------------------------------------------- fields


def _unequal_fields(one: Event, other: Event, pairs: Pairs) -> Iterator[tuple[str, Any, Any]]:
    left, right = _fields(one), _fields(other)
    for name in dict.fromkeys((*left, *right)):
        # most fields are the same as they stand; the others may only differ in the ids of requests
        if name not in IGNORED and left.get(name) != right.get(name):
            plain = msgspec.to_builtins((left.get(name), right.get(name)))
            yield from _unequal(name, _renamed(plain[0], pairs.names_a), _renamed(plain[1], pairs.names_b))


def _fields(event: Event) -> dict[str, Any]:
    raw = getattr(event, "raw", None)
    return raw if isinstance(raw, dict) else msgspec.structs.asdict(event)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """With the shared names in place of internal ids; lists of what happened to each request become dicts by name."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(inner, names) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    items = [_renamed(item, names) for item in value]
    if items and all(isinstance(item, dict) and "req_id" in item for item in items):
        return {item["req_id"]: {k: v for k, v in item.items() if k != "req_id"} for item in items}
    return items


def _unequal(name: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    """(where, left, right) of what differs; of lists of one length the first place."""
    if left == right or (not left and not right and {type(left), type(right)} & {type(None)} and left != 0 != right):
        return
    if isinstance(left, float) and isinstance(right, float):
        if not math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield name, left, right
    elif isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            yield from _unequal(f"{name}.{key}", left.get(key), right.get(key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for place, (one, other) in enumerate(zip(left, right, strict=True)):
            found = next(_unequal(f"{name}[{place}]", one, other), None)
            if found is not None:
                yield found
                return
    else:
        yield name, left, right
