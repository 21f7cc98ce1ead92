"""Trace: a recorded trace to look at: by request, by step, as a tree, forwards and backwards, and the engine's state at
any event.

Owns: the events in memory, and the indices that make looking quick.
Interface: Trace.load / save; iteration and indexing; filter, children, roots, path, next, previous; state_at, cursor;
redact.
Must not know: the engine. Nothing here needs torch, a model or a running engine.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from minivllm.trace import store
from minivllm.trace.check import TraceError, check_events, check_header, ends_early, one_line_errors
from minivllm.trace.events import Event
from minivllm.trace.merge import SENT, check_messages, merge
from minivllm.trace.redact import redact
from minivllm.trace.schema import Header
from minivllm.trace.state import RULES, State

KEY_FRAME = 500  # effects between two kept states, at least
MAX_KEY_FRAMES = 64
MAX_KEPT_BLOCKS = 2**20  # free blocks in all kept states together


class Trace:
    """Events in the order of their entries. `trace[seq]` is the event with that number."""

    def __init__(self, header: Header, events: Iterable[Event], truncated: bool = False) -> None:
        self.header = header
        self.events = list(events)
        self.truncated = truncated  # the end of the file is missing
        self._place = {event.seq: place for place, event in enumerate(self.events)}

    # ------------------------------------------------------------------ files

    @classmethod
    def load(cls, path: str | Path, *more: str | Path) -> "Trace":
        """Read a trace: a file, plain or .gz; or the parts of one that was never merged, given one by one, or by the
        path that they were to become.

        Raises TraceError, with the line or the events, for what is no trace or can't be right.
        """
        paths = [Path(path), *map(Path, more)]
        if not more and not paths[0].exists():
            paths = store.find_parts(paths[0]) or paths
        parts = [store.read(part) for part in paths]
        truncated = any(part.truncated for part in parts)
        for part in parts:
            check_header(part.header)
        if all(part.header.part for part in parts):
            with one_line_errors(paths[0]):
                header, events = merge(parts)
        elif len(parts) > 1:
            raise TraceError(f"{path} and {len(more)} more: only the parts of one trace (*.part) can be read together.")
        else:
            header, events = parts[0].header, [line for line in parts[0].lines if isinstance(line, Event)]
            check_messages(header, events)
            truncated = truncated or (all(process.complete for process in header.processes) and ends_early(events))
        check_events(events)
        return cls(header, events, truncated)

    def save(self, path: str | Path) -> None:
        """Write to `path`, plain or .gz. The same trace gives the same bytes. Raises OSError."""
        store.write(Path(path), self.header, self.events)

    def redact(self) -> "Trace":
        """A copy without texts, token ids and paths: their lengths stand in their place. For bug reports."""
        header, events = redact(self.header, self.events)
        return Trace(header, events, self.truncated)

    # ------------------------------------------------------------------ events

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self.events)

    def __getitem__(self, seq: int) -> Event:
        return self.events[self._place[seq]]

    def __contains__(self, seq: int) -> bool:
        return seq in self._place

    def filter(
        self,
        request: str | None = None,
        step: int | None = None,
        kind: str | Iterable[str] | None = None,
        boundary: str | None = None,
        proc: str | None = None,
    ) -> list[Event]:
        """The events that are all of this. request: external or internal id; kind: one, or several."""
        wanted = self._matcher(request, step, kind, boundary, proc)
        return [event for event in (self.events if step is None else self._by_step.get(step, [])) if wanted(event)]

    def next(self, seq: int, **what: Any) -> Event | None:
        """The first event after `seq`; with `what`, the first that `filter` would let through."""
        wanted = self._matcher(**what)
        later = range(self._place[seq] + 1, len(self.events))
        return next((self.events[place] for place in later if wanted(self.events[place])), None)

    def previous(self, seq: int, **what: Any) -> Event | None:
        """The last event before `seq`; with `what`, the last that `filter` would let through."""
        wanted = self._matcher(**what)
        earlier = range(self._place[seq] - 1, -1, -1)
        return next((self.events[place] for place in earlier if wanted(self.events[place])), None)

    def _matcher(
        self,
        request: str | None = None,
        step: int | None = None,
        kind: str | Iterable[str] | None = None,
        boundary: str | None = None,
        proc: str | None = None,
    ) -> Callable[[Event], bool]:
        kinds = {kind} if isinstance(kind, str) else None if kind is None else set(kind)
        ids = None if request is None else set(self.internal_ids(request))
        return lambda event: (
            (step is None or event.step == step)
            and (kinds is None or event.kind in kinds)
            and (boundary is None or event.boundary == boundary)
            and (proc is None or event.proc == proc)
            and (ids is None or not ids.isdisjoint(event.reqs))
        )

    # ------------------------------------------------------------------ the tree

    @property
    def roots(self) -> list[Event]:
        """Events that happened inside no other."""
        return self._children.get(None, [])

    def children(self, event: Event | int) -> list[Event]:
        """What happened directly inside an event."""
        return self._children.get(event if isinstance(event, int) else event.seq, [])

    def parent(self, event: Event) -> Event | None:
        return None if event.parent is None else self[event.parent]

    def walk(self, event: Event | None = None, depth: int = 0) -> Iterator[tuple[int, Event]]:
        """(depth, event) of an event and all that happened inside it; of the whole trace by default."""
        if event is not None:
            yield depth, event
        for child in self.roots if event is None else self.children(event):
            yield from self.walk(child, depth if event is None else depth + 1)

    @cached_property
    def _children(self) -> dict[int | None, list[Event]]:
        children: dict[int | None, list[Event]] = {}
        for event in self.events:
            children.setdefault(event.parent, []).append(event)
        return children

    @cached_property
    def _by_step(self) -> dict[int | None, list[Event]]:
        steps: dict[int | None, list[Event]] = {}
        for event in self.events:
            steps.setdefault(event.step, []).append(event)
        return steps

    # ------------------------------------------------------------------ requests and steps

    @property
    def steps(self) -> list[int]:
        """The numbers of the core's steps, from 1."""
        return sorted(step for step in self._by_step if step is not None)

    @cached_property
    def external_ids(self) -> dict[str, str]:
        """Internal id -> external id of every request, in order of arrival; n > 1 gives several of one external id."""
        found: dict[str, str] = {}
        for event in self.events:
            if event.kind == "output_processor.add_request" and event.external_req_id is not None:
                found[event.reqs[0]] = event.external_req_id
            elif event.kind in ("preprocess_add_request", "scheduler.add_request") and event.reqs:
                found.setdefault(event.reqs[0], event.reqs[0])  # a core without a caller
        return found

    @property
    def request_ids(self) -> list[str]:
        """Internal ids, in order of arrival."""
        return list(self.external_ids)

    def internal_ids(self, request: str) -> list[str]:
        """The internal ids behind an external or internal one. Raises TraceError, which names those that there are."""
        if request in self.external_ids:
            return [request]
        found = [internal for internal, external in self.external_ids.items() if external == request]
        if not found:
            known = ", ".join(dict.fromkeys(self.external_ids.values())) or "none"
            raise TraceError(f"The trace has no request {request!r}. Its requests: {known}.")
        return found

    def path(self, request: str) -> list[Event]:
        """The events of one request in order: its way through the boundaries. request: external or internal id."""
        return self.filter(request=request)

    # ------------------------------------------------------------------ state

    def state_at(self, seq: int, before: bool = False) -> State:
        """The engine after all effects up to the exit of event `seq`; with `before`, up to its entry.

        The state is the caller's own copy.
        """
        return self._state_after(self.effects_until(seq, before)).copy()

    def effects_until(self, seq: int, before: bool = False) -> int:
        """How many effects come until the exit of event `seq`; with `before`, until its entry."""
        event = self[seq]
        return bisect_right(self._effect_times, event.t0 if before else event.t1)

    def states(self) -> Iterator[tuple[Event, State]]:
        """(event, state after it) for every event with an effect, in the order of the effects.

        It is one state, that changes from turn to turn: `copy` what is to be kept.
        """
        state = State.new(self.header.num_gpu_blocks)
        for event in self._effects:
            state.apply(event)
            yield event, state

    def final_state(self) -> State:
        """The engine after the last effect."""
        return self._state_after(len(self._effects)).copy()

    def cursor(self, seq: int | None = None) -> "Cursor":
        """Something that stands at an event and can be moved; at the first one by default."""
        return Cursor(self, self.events[0].seq if seq is None else seq)

    @cached_property
    def _effects(self) -> list[Event]:
        """Events with an effect, in the order of their effects."""
        return sorted((event for event in self.events if event.kind in RULES), key=_effect_time)

    @cached_property
    def _effect_times(self) -> list[int]:
        return list(map(_effect_time, self._effects))

    @cached_property
    def _key_frames(self) -> dict[int, State]:
        return {0: State.new(self.header.num_gpu_blocks)}

    def _state_after(self, count: int) -> State:
        """The state after `count` effects, from the nearest key frame before; leaves key frames on its way."""
        frames = self._key_frames
        places = sorted(frames)
        start = places[bisect_left(places, count + 1) - 1]
        state = frames[start]
        if start == count:
            return state
        state = state.copy()
        most = min(MAX_KEY_FRAMES, max(1, MAX_KEPT_BLOCKS // (self.header.num_gpu_blocks or 1)))
        distance = max(KEY_FRAME, len(self._effects) // most)
        for done, event in enumerate(self._effects[start:count], start=start + 1):
            state.apply(event)
            if done % distance == 0:
                frames[done] = state.copy()
        return state

    # ------------------------------------------------------------------ tables

    def rows(self) -> list[dict[str, Any]]:
        """The fields that all events have, with kind and boundary, as dicts."""
        names = ("seq", "proc", "thread", "t0", "t1", "parent", "step", "reqs", "error")
        return [
            {"kind": event.kind, "boundary": event.boundary, **{name: getattr(event, name) for name in names}}
            for event in self.events
        ]

    def to_pandas(self) -> Any:
        """`rows` as a DataFrame. Raises TraceError where pandas is not installed."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise TraceError("A DataFrame needs pandas, which is not installed: pip install pandas.") from None
        return pandas.DataFrame(self.rows())


def _effect_time(event: Event) -> int:
    """When an event changes the engine's state: at its exit; a message is on its way as soon as it is being sent."""
    return event.t0 + 1 if event.kind in SENT else event.t1


class Cursor:
    """A place in a trace. Moves return whether there was somewhere to go."""

    def __init__(self, trace: Trace, seq: int) -> None:
        self.trace = trace
        self.seq = seq

    @property
    def event(self) -> Event:
        return self.trace[self.seq]

    @property
    def state(self) -> State:
        """After the event's exit."""
        return self.trace.state_at(self.seq)

    @property
    def state_before(self) -> State:
        """At the event's entry."""
        return self.trace.state_at(self.seq, before=True)

    def forward(self, **what: Any) -> bool:
        """To the next event that `filter(**what)` lets through."""
        return self._move(self.trace.next(self.seq, **what))

    def back(self, **what: Any) -> bool:
        """To the one before."""
        return self._move(self.trace.previous(self.seq, **what))

    def step_forward(self) -> bool:
        """To the plan of the next step."""
        return self.forward(kind="schedule")

    def step_back(self) -> bool:
        """To the plan before."""
        return self.back(kind="schedule")

    def up(self) -> bool:
        """To the event that this one happened in."""
        return self._move(self.trace.parent(self.event))

    def down(self) -> bool:
        """To the first event inside this one."""
        return self._move(next(iter(self.trace.children(self.seq)), None))

    def _move(self, event: Event | None) -> bool:
        if event is None:
            return False
        self.seq = event.seq
        return True
