"""Lives: the events of a trace by step and by request, and what each step did with each request.

Owns: an index over a trace, made once.
Interface: Lives(trace) with steps, plans, lives, name, named, roles; StepEvents, Life, Role; ENDS.
Must not know: how anything is said, drawn or exported.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minivllm.trace.events import Event
from minivllm.trace.merge import message_pairs
from minivllm.trace.replay import Trace

# Life.end -> what it means
ENDS = {
    "eos": "the model chose the end token",
    "stop_token": "the model chose a stop token",
    "stop_string": "a stop string was found in its text",
    "max_tokens": "it has its max_tokens",
    "max_model_len": "max_model_len leaves no room for another token",
    "abort": "its caller gave it up",
    "error": "it failed",
    "not_finished": "the trace ends before it does",
}
POOL_KINDS = ("cache_full_blocks", "get_new_blocks", "forget_uncomputed_blocks", "reset_prefix_cache")


@dataclass(slots=True)
class StepEvents:
    """One step of the core: its events by what they are for."""

    number: int
    whole: Event | None = None  # `step`; None where a scheduler was recorded without a core around it
    schedule: Any = None  # the plan; None: it never came back
    update: Any = None
    inside: list[Any] = field(default_factory=list)  # what happened inside schedule, in order
    others: list[Any] = field(default_factory=list)  # the rest, the caller's side included

    @property
    def t0(self) -> int:
        return min(event.t0 for event in (self.whole, self.schedule, self.update) if event is not None)

    @property
    def t1(self) -> int:
        return max(event.t1 for event in (self.whole, self.schedule, self.update) if event is not None)

    def of(self, kind: str, request_id: str) -> list[Any]:
        """The events of a kind that concern a request, in order."""
        return [e for e in (*self.inside, *self.others) if e.kind == kind and request_id in e.reqs]


@dataclass(slots=True)
class Life:
    """The marks in one request's life."""

    request_id: str  # internal
    name: str  # as the caller knows it; with n > 1 the internal id, which alone is unique
    events: list[Any] = field(default_factory=list)  # all that concern it, in order
    arrived: Any = None  # scheduler.add_request
    asked: Any = None  # process_inputs
    sent: Any = None  # core_client.send of its ADD
    received: Any = None  # core.receive of its ADD
    given_up: Any = None  # abort_requests: the caller's side tells the core to end it
    ended: Any = None  # in the core: update_from_output or finish_requests
    closed: Any = None  # on the caller's side: process_outputs, or abort_requests
    stopped: Any = None  # the detokenize that found a stop string
    beside: dict[str, int] = field(default_factory=dict)  # ipc and detokenize in all, ns

    @property
    def end(self) -> str:
        """How it ended: a key of ENDS."""
        if self.stopped is not None:
            return "stop_string"  # also where the core ended it in the same step: the caller has the last word
        if self.ended is None:
            return "not_finished" if self.closed is None else "abort" if self.given_up is not None else "error"
        if self.ended.kind == "finish_requests":
            return "abort" if self.ended.status == "FINISHED_ABORTED" else "error"
        update = next(update for update in self.ended.updates if update.req_id == self.request_id)
        if update.finish_reason == "length":
            num_output = update.num_tokens[1] - self.arrived.num_prompt_tokens if self.arrived else None
            return "max_tokens" if self.arrived and num_output == self.arrived.max_tokens else "max_model_len"
        if update.finish_reason != "stop":
            return update.finish_reason
        return "eos" if update.stop_reason is None else "stop_token"

    @property
    def start(self) -> int:
        """ns; the first thing that was done for it alone."""
        starts = [event.t0 for event in self.events if event.kind not in ("chat", "generate", "run_engine")]
        return min(starts, default=0)


@dataclass(frozen=True, slots=True)
class Role:
    """What one step did with one request."""

    step: int
    phase: str  # queue, prefill, decode, preempted, recompute, paused
    num_new_tokens: int = 0


class Lives:
    """A trace, indexed."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.config: dict[str, Any] = trace.header.config
        self.steps: dict[int, StepEvents] = {}
        answers = Counter(trace.external_ids.values())
        self.lives: dict[str, Life] = {
            internal: Life(internal, external if answers[external] == 1 else internal)
            for internal, external in trace.external_ids.items()
        }
        self.pool_events: list[Any] = []  # that give blocks their hashes, or take them
        self.prepared: list[Any] = []  # prepare_inputs: the slots that each step wrote
        self._roles: dict[str, list[Role]] = {}
        latest = None
        for event in trace:
            number = event.step
            if event.kind == "schedule":
                latest = number
            elif event.kind == "update_from_output" and number is None:
                number = latest  # a scheduler was recorded without a core, which alone knows what a step is
            if number is not None:
                self._add_to_step(self.steps.setdefault(number, StepEvents(number)), event)
            if event.kind in POOL_KINDS:
                self.pool_events.append(event)
            elif event.kind == "prepare_inputs":
                self.prepared.append(event)
            elif event.kind == "update_from_output":
                self._mark_ends(event)
            for request_id in event.reqs:
                life = self.lives.get(request_id)
                if life is not None:
                    life.events.append(event)
                    _mark(life, event)
        self._count_beside()

    def _add_to_step(self, step: StepEvents, event: Any) -> None:
        parent = self.trace.parent(event)
        if event.kind == "step":
            step.whole = event
        elif event.kind == "schedule" and event.error is None and event.view_error is None:
            step.schedule = event
        elif event.kind == "update_from_output" and event.error is None:
            step.update = event
        elif parent is not None and parent.kind == "schedule":
            step.inside.append(event)
        else:
            step.others.append(event)

    def _mark_ends(self, event: Any) -> None:
        for update in event.updates:
            if update.finish_reason and update.req_id in self.lives:
                self.lives[update.req_id].ended = event

    def _count_beside(self) -> None:
        for send, receive in message_pairs(self.trace):
            for request_id in dict.fromkeys((*send.reqs, *receive.reqs)):
                if request_id in self.lives:
                    beside = self.lives[request_id].beside
                    beside["ipc"] = beside.get("ipc", 0) + max(receive.t1 - send.t0, 0)

    def name(self, request_id: str) -> str:
        """A request as the caller knows it."""
        life = self.lives.get(request_id)
        return life.name if life else request_id

    def named(self, by_id: dict[str, int]) -> dict[str, int]:
        """The same numbers under the requests' names."""
        return {self.name(request_id): count for request_id, count in by_id.items()}

    def plans(self) -> Iterator[StepEvents]:
        """The steps that have a plan, in order."""
        return (step for _, step in sorted(self.steps.items()) if step.schedule is not None)

    def roles(self, request_id: str) -> list[Role]:
        """What each step did with a request (internal id), from its arrival in the queue to its end in the core."""
        if request_id not in self._roles:
            self._roles[request_id] = list(self._find_roles(self.lives[request_id]))
        return self._roles[request_id]

    def _find_roles(self, life: Life) -> Iterator[Role]:
        if life.arrived is None:
            return
        waits_as, lost = "queue", 0
        for step in self.plans():
            plan, tokens = step.schedule, step.schedule.num_scheduled_tokens.get(life.request_id, 0)
            if plan.t0 < life.arrived.t0 or (life.ended is not None and plan.t0 > life.ended.t1):
                continue
            for preemption in plan.preemptions:
                if preemption.req_id == life.request_id:
                    waits_as, lost = "preempted", max(lost, preemption.num_computed_tokens)
            if tokens:
                waits_as = "paused"
                computed_before = plan.num_computed_tokens[life.request_id][1] - tokens
                yield Role(step.number, _work(computed_before, tokens, lost, life.arrived.num_prompt_tokens), tokens)
            else:
                yield Role(step.number, waits_as)


def _work(computed_before: int, tokens: int, lost: int, num_prompt_tokens: int) -> str:
    """What a step's tokens of one request were for. lost: how far it had come before a preemption."""
    if computed_before < lost:
        return "recompute"
    return "decode" if tokens == 1 and computed_before >= num_prompt_tokens else "prefill"


def _mark(life: Life, event: Any) -> None:
    """Remember the events that a life's story hangs on."""
    kind = event.kind
    if event.error is not None:
        return
    if kind == "process_inputs":
        life.asked = event
    elif kind == "scheduler.add_request":
        life.arrived = event
    elif kind in ("core_client.send", "core.receive") and event.message_type == "ADD":
        if kind == "core.receive":
            life.received = event
        else:
            life.sent = event
    elif kind == "abort_requests":
        life.given_up = life.given_up or event
        life.closed = life.closed or event
    elif kind == "process_outputs" and life.request_id in event.finished:
        life.closed = event
    elif kind == "finish_requests" and life.request_id in event.finished:
        life.ended = event
    elif kind == "detokenize":
        life.beside["detokenize"] = life.beside.get("detokenize", 0) + event.duration
        if event.stop_string is not None:
            life.stopped = event
