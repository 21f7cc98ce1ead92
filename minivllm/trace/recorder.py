"""Recorder: watches marked methods of live objects, and writes an event for every call.

Owns: one process's stack of open calls in each thread, its sequence numbers, and the events not yet written.
Interface: observe(objects…), flush, close.
Must not know: what the methods do; what an event says is its own business (`before`, `view`), and where events go is
the sink's.

With tracing off no recorder exists and no method is replaced. Whatever goes wrong here never reaches the engine: a view
that raises leaves an event without its fields and one warning.
"""

import functools
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from minivllm.boundary import boundaries
from minivllm.trace.clock import Clock, MonotonicClock
from minivllm.trace.events import Call, Event
from minivllm.trace.events_worker import Summed
from minivllm.trace.schema import EVENTS, Line, Open

if TYPE_CHECKING:
    from minivllm.config import TraceWatch

logger = logging.getLogger(__name__)

THREAD_NAMES = {"MainThread": "main", "EngineCoreOutputQueueThread": "output"}
NUMBERS_STEPS = ("step", "schedule")  # a scheduler without a core around it counts its own steps
# Written out after these: what a step or a message brought is on disk before the next one begins.
FLUSH_AFTER = ("step", "process_outputs", "llm_engine.add_request")
FLUSH_BEFORE = ("model_forward",)  # the place where a process is likeliest to die


class Sink(Protocol):
    """Where events go."""

    def write(self, lines: list[Line]) -> None: ...

    def close(self) -> None: ...


class MemorySink:
    """Keeps everything in a list; for tests, and for recordings that need no file."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def write(self, lines: list[Line]) -> None:
        self.lines += lines

    def close(self) -> None:
        pass


class Frame:
    """One call that has not returned yet."""

    __slots__ = ("announced", "kind", "parent", "seq", "step", "sums", "t0")

    def __init__(self, kind: str, seq: int, parent: int | None, step: int | None) -> None:
        self.kind = kind
        self.seq = seq
        self.parent = parent
        self.step = step
        self.t0 = -1  # not stamped yet
        self.announced = False  # an Open line has been written
        self.sums: dict[str, Sum] = {}  # of once-a-layer kinds that happened inside


class Sum:
    """All calls of one once-a-layer kind within one parent."""

    __slots__ = ("calls", "event", "t0", "t1", "total_ns")

    def __init__(self, event: dict[str, Any], t0: int) -> None:
        self.event = event
        self.t0 = self.t1 = t0
        self.calls = self.total_ns = 0


class Thread:
    """What the recorder knows of one thread."""

    __slots__ = ("frames", "latest", "name")

    def __init__(self) -> None:
        name = threading.current_thread().name
        self.name = THREAD_NAMES.get(name, name)
        self.frames: list[Frame] = []
        self.latest = -1  # stamp


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = Thread()


class Recorder:
    """One process's recorder.

    detail: 0, 1 or 2 (see the package's docstring). watch: which tensors detail 2 looks at; None: none.
    """

    def __init__(
        self,
        sink: Sink,
        proc: str = "caller",
        clock: Clock | None = None,
        detail: int = 0,
        watch: "TraceWatch | None" = None,
    ) -> None:
        self.sink = sink
        self.proc = proc
        self.clock = clock or MonotonicClock()
        self.detail = detail
        self.watch = watch
        self.num_steps = 0
        self.notes: dict[Any, Any] = {}
        self._seq = count()
        self._local = _Local()
        self._pending: deque[Line] = deque()
        self._late: deque[tuple[Event, Callable[[], dict[str, Any]]]] = deque()  # events that get more fields
        self._write_lock = threading.Lock()
        self._warned = False
        os.register_at_fork(after_in_child=functools.partial(_forget, weakref.ref(self)))

    # ------------------------------------------------------------------ what is watched

    def observe(self, *owners: Any) -> None:
        """Replace the marked methods of these objects, on these objects alone."""
        for owner in owners:
            for name, kind in boundaries(type(owner)).items():
                event = EVENTS.get(kind)
                if event is None or event.min_detail > self.detail:
                    continue
                summed = self.detail == 0 and issubclass(event, Summed)
                watch = self._summed if summed else self._timed
                setattr(owner, name, watch(owner, getattr(owner, name), kind, event))

    def _timed(self, owner: Any, method: Callable, kind: str, event: type[Event]) -> Callable:
        """`method`, with an event for every call."""
        before = event.before if event.before is not Event.before else None
        view = event.view
        flush_first = kind in FLUSH_BEFORE
        numbers = count()

        @functools.wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            thread = self._local.thread
            frame = self._enter(thread, kind, owner)
            call = Call(owner, args, kwargs, self.detail, self.notes, next(numbers), frame.step, self.watch)
            problem = None
            if before is not None:
                try:
                    call.before = before(call)
                except Exception as error:
                    problem = self._not_seen(event, error)
            frame.t0 = self._stamp(thread)
            if flush_first:
                self.flush()
                frame.t0 = self._stamp(thread)
            try:
                call.out = method(*args, **kwargs)
            except BaseException as error:
                t1 = self._stamp(thread)
                if problem is None:
                    problem = self._undo(event, call)
                fields = {"error": f"{type(error).__name__}: {error}", "view_error": problem}
                self._leave(thread, frame, event, t1, fields)
                self.flush()
                raise
            t1 = self._stamp(thread)
            fields: dict[str, Any] = {"view_error": problem}
            if problem is None:
                try:
                    fields = view(call)
                except Exception as error:
                    fields = {"view_error": self._not_seen(event, error)}
            self._leave(thread, frame, event, t1, fields)
            return call.out

        return timed

    def _summed(self, owner: Any, method: Callable, kind: str, event: type[Summed]) -> Callable:
        """`method`, its calls added up within the call that they are part of."""

        local, stamp = self._local, self._stamp

        @functools.wraps(method)
        def summed(*args: Any, **kwargs: Any) -> Any:
            thread = local.thread
            if not thread.frames:
                return method(*args, **kwargs)
            t0 = stamp(thread)
            out = method(*args, **kwargs)
            t1 = stamp(thread)
            sums = thread.frames[-1].sums
            total = sums.get(kind)
            if total is None:
                call = Call(owner, args, kwargs, self.detail, self.notes, 0, None, self.watch)
                total = sums[kind] = Sum({"seq": next(self._seq), **self._summary(event, call)}, t0)
            total.calls += 1
            total.total_ns += t1 - t0
            total.t1 = t1
            return out

        return summed

    def _summary(self, event: type[Summed], call: Call) -> dict[str, Any]:
        try:
            return event.summary(call)
        except Exception as error:
            return {"view_error": self._not_seen(event, error)}

    def _undo(self, event: type[Event], call: Call) -> str | None:
        try:
            event.failed(call)
        except Exception as error:
            return self._not_seen(event, error)
        return None

    def _not_seen(self, event: type[Event], error: Exception) -> str:
        """A view has failed: warn once, and return what the event says of it. It is never the engine's concern."""
        problem = f"{type(error).__name__}: {error}"
        if not self._warned:
            self._warned = True
            logger.warning("The trace could not look at %s (%s). The run goes on.", event.__name__, problem)
        return problem

    # ------------------------------------------------------------------ entry and exit

    def _enter(self, thread: Thread, kind: str, owner: Any) -> Frame:
        parent = thread.frames[-1] if thread.frames else None
        step = parent.step if parent else None
        if step is None and kind in NUMBERS_STEPS and (kind == "schedule" or owner.scheduler.has_requests()):
            self.num_steps += 1
            step = self.num_steps
        frame = Frame(kind, next(self._seq), parent.seq if parent else None, step)
        thread.frames.append(frame)
        return frame

    def _leave(self, thread: Thread, frame: Frame, event: type[Event], t1: int, fields: dict[str, Any]) -> None:
        del thread.frames[thread.frames.index(frame) :]
        for kind, total in frame.sums.items():
            self._add_sum(thread, frame, kind, total)
        step = fields.pop("step", frame.step)
        inside, later = fields.pop("inside", ()), fields.pop("later", None)
        # seq, proc, t0, t1, parent, thread, step: given by their names they cost five times as much
        done = event(frame.seq, self.proc, frame.t0, t1, frame.parent, thread.name, step, **fields)
        self._pending.append(done)
        if later is not None:
            self._late.append((done, later))
        for cls, its_fields in inside:
            t0, t1_inside = frame.t0 + 1, max(t1 - 1, frame.t0 + 1)
            self._pending.append(
                cls(next(self._seq), self.proc, t0, t1_inside, frame.seq, thread.name, step, **its_fields)
            )
        if not thread.frames or frame.kind in FLUSH_AFTER:
            self.flush()

    def _add_sum(self, thread: Thread, frame: Frame, kind: str, total: Sum) -> None:
        self._pending.append(
            EVENTS[kind](
                proc=self.proc,
                t0=total.t0,
                t1=total.t1,
                parent=frame.seq,
                thread=thread.name,
                step=frame.step,
                calls=total.calls,
                total_ns=total.total_ns,
                **total.event,
            )
        )

    def _stamp(self, thread: Thread) -> int:
        """Now, ns. No two stamps of a thread are equal, so that nesting can be read off them."""
        now = self.clock()
        if now <= thread.latest:
            now = thread.latest + 1
        thread.latest = now
        return now

    # ------------------------------------------------------------------ writing

    def flush(self) -> None:
        """Hand what has happened to the sink, and which calls are open."""
        with self._write_lock:
            self._fill_in_late()
            take = self._pending.popleft  # other threads may append meanwhile: theirs are for the next time
            lines: list[Line] = [take() for _ in range(len(self._pending))]
            thread = self._local.thread
            for frame in thread.frames:
                if not frame.announced and frame.t0 >= 0:
                    frame.announced = True
                    lines.append(Open(frame.seq, frame.kind, frame.t0, frame.parent, thread.name, frame.step))
            if lines:
                self.sink.write(lines)

    def _fill_in_late(self) -> None:
        while self._late:
            event, later = self._late.popleft()
            try:
                for name, value in later().items():
                    setattr(event, name, value)
            except Exception as error:
                event.view_error = self._not_seen(type(event), error)

    def close(self) -> None:
        """Write the rest. What is observed afterwards is lost."""
        self.flush()
        self.sink.close()


def _forget(recorder_of_parent: "weakref.ref[Recorder]") -> None:
    """In a forked child: what happens here is no part of the parent's trace."""
    recorder = recorder_of_parent()
    if recorder is not None:
        recorder.sink = MemorySink()
        recorder.clock = MonotonicClock()  # the parent's may be one of two processes
        recorder._write_lock = threading.Lock()  # a thread that isn't here may have held it
