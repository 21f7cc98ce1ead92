"""Where a request's time went.

Owns: the rule that says in which phase a request is at each moment.
Interface: phases, stages, Phase, PHASES.
Must not know: how a phase is said, drawn or exported.

The phases follow each other without a gap, from the first thing done for a request to its last output. What runs
beside them, such as making text of one token while the core computes the next, is no phase: see `Life.beside`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from minivllm.show.lives import Life, Lives, StepEvents

# phase -> what it is, in the order of a life
PHASES = {
    "input": "rendered, checked and registered by the caller",
    "ipc": "on its way between the processes",
    "queue": "waiting to be admitted",
    "prefill": "steps that computed its prompt",
    "decode": "steps that computed one token each",
    "preempted": "waiting again, without its blocks",
    "recompute": "steps that computed again what the preemption cost",
    "paused": "running, and without tokens in a step",
    "between": "between two steps",
    "detokenize": "its tokens became text, while nothing else ran",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a request's life. Times in ns from the first event of the trace."""

    name: str
    t0: int
    t1: int
    steps: tuple[int, ...] = ()  # of the core, that began in it

    @property
    def duration(self) -> int:
        return self.t1 - self.t0


def phases(lives: Lives, request_id: str) -> list[Phase]:
    """Where a request's time went (internal id): stretches in order, without a gap, neighbours of one name joined.

    A request that has not ended is followed to the last event of the trace.

    vLLM: v1/metrics/stats.py::IterationStats.update_from_finished_request (its queue, prefill and decode times)
    """
    life = lives.lives[request_id]
    end = life.closed or life.ended
    end_at = end.t1 if end is not None else max((event.t1 for event in lives.trace), default=0)
    marks = sorted(_marks(lives, life), key=lambda mark: mark[0])
    stretches: list[Phase] = []
    for (t0, name, step), (t1, *_) in pairwise([*marks, (end_at, "", None)]):
        t0, t1 = min(t0, end_at), min(t1, end_at)
        steps = () if step is None else (step,)
        last = stretches[-1] if stretches else None
        if last is not None and last.name == name:
            stretches[-1] = Phase(name, last.t0, max(t1, last.t1), last.steps + steps)
        elif t1 > t0 or steps:
            stretches.append(Phase(name, t0, t1, steps))
    return stretches


def stages(lives: Lives, request_id: str) -> list[Phase]:
    """As phases, but what lies between two steps belongs to the first: decoding is one stretch and not one a token."""
    found = phases(lives, request_id)
    joined: list[Phase] = []
    for place, phase in enumerate(found):
        last_word = phase.name == "detokenize" and place == len(found) - 1
        before = joined[-1] if joined else None
        name = before.name if before and phase.name in ("between", "detokenize") and not last_word else phase.name
        if before is not None and before.name == name:
            joined[-1] = Phase(name, before.t0, phase.t1, before.steps + phase.steps)
        else:
            joined.append(Phase(name, phase.t0, phase.t1, phase.steps))
    return joined


def _marks(lives: Lives, life: Life) -> Iterator[tuple[int, str, int | None]]:
    """(from when, which phase, the step that begins there)."""
    yield life.start, "input", None
    if life.sent is not None:
        yield life.sent.t0, "ipc", None
    if life.received is not None:
        yield life.received.t1, "queue", None
    elif life.arrived is not None and life.sent is None:
        yield life.arrived.t0, "queue", None
    last = None
    delivered = life.closed.step if life.closed is not None and life.closed.kind == "process_outputs" else None
    for role in lives.roles(life.request_id):
        if delivered is not None and role.step > delivered:
            break  # in vain: the caller has its answer, and the core does not know yet
        step = lives.steps[role.step]
        yield step.t0, role.phase, role.step
        if role.num_new_tokens:
            last = step
            yield step.t1, "between", None
            yield from _after(life, step)
    if last is not None and life.closed is not None:
        yield from _way_back(lives, life, last)


def _after(life: Life, step: StepEvents) -> Iterator[tuple[int, str, int | None]]:
    """In one process the caller makes text of a step's tokens before the next step begins."""
    if step.whole is None:
        return
    for event in step.others:
        same_thread = (event.proc, event.thread) == (step.whole.proc, step.whole.thread)
        if event.kind == "process_outputs" and same_thread and life.request_id in event.reqs:
            yield event.t0, "detokenize", None
            yield event.t1, "between", None


def _way_back(lives: Lives, life: Life, last: StepEvents) -> Iterator[tuple[int, str, int | None]]:
    """The last output travels and becomes text."""
    if life.closed.kind != "process_outputs":
        return
    for event in lives.steps[life.closed.step].others if life.closed.step in lives.steps else ():
        if event.kind == "core.send" and event.t0 >= last.t0:
            yield event.t0, "ipc", None
    yield life.closed.t0, "detokenize", None
