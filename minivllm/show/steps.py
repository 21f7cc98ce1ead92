"""The steps of the page: with which step each event is shown, and what each step did with each request.

Owns: these two, and what requests are called on the page.
Interface: Steps, Role.
Must not know: how a step is drawn or told.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from minivllm.show.waits import words_of
from minivllm.trace.events import Event
from minivllm.trace.replay import Trace

LASTING = ("generate", "chat", "run_engine")  # they hold many steps; all else stays with what holds it


@dataclass(slots=True)
class Role:
    """What one step did with one request."""

    kind: str | None = None  # prefill, decode, waits, preempted; None: it only ended here
    n: int = 0  # tokens
    after: int = 0  # computed tokens, with these
    known: int = 0  # tokens that there are
    hits: int = 0  # tokens that the cache had
    resumed: bool = False  # after a preemption
    waits: tuple[str, str, str] | None = None  # why: see minivllm.show.waits.words_of
    finished: str = ""  # how it ended in this step

    @property
    def is_chunk(self) -> bool:
        return self.after < self.known


class Steps:
    """A trace by the steps that the page shows."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.names = _names(trace)
        self.numbers = _step_numbers(trace)  # of each event, in their order
        self.of: dict[int, list[Event]] = {number: [] for number in sorted(set(self.numbers))}
        self._number = {event.seq: number for event, number in zip(trace, self.numbers, strict=True)}
        for event in trace:
            self.of[self._number[event.seq]].append(event)
        self.roles: dict[str, dict[int, Role]] = {request_id: {} for request_id in self.names}
        self.num_prompt: dict[str, int] = {}  # request -> tokens of its prompt
        for event in trace:
            if event.kind in ("render_cmpl", "render_chat", "scheduler.add_request"):
                self.num_prompt |= dict.fromkeys(event.reqs, event.num_prompt_tokens)
        self._lost: set[str] = set()  # requests that were preempted so far
        for number in self.of:
            self._find_roles(number)

    def name(self, request_id: str) -> str:
        """What a request is called on the page: the caller's id; 0.1 is the second of several answers to prompt 0."""
        return self.names.get(request_id, request_id)

    def role(self, request_id: str, event: Event) -> Role:
        """What the step of an event did with a request."""
        return self.roles.get(request_id, {}).get(self._number[event.seq]) or Role()

    def batch(self, event: Event) -> Any:
        """The batch of the event's step; None where nothing was computed."""
        own = self.of[self._number[event.seq]]
        return next((one for one in own if one.kind == "prepare_inputs" and one.error is None), None)

    def data(self) -> dict[str, Any]:
        """`names`; `steps` of the events; `roles`: request -> [step, fields] without those that say nothing; `waits`:
        the words whose numbers roles have."""
        waits: dict[tuple[str, str, str], int] = {}
        roles: dict[str, list[Any]] = {request_id: [] for request_id in self.roles}
        for request_id, found in self.roles.items():
            for step, role in found.items():
                fields = {name: value for name, value in asdict(role).items() if value}
                if role.waits is not None:
                    fields["waits"] = waits.setdefault(role.waits, len(waits))
                roles[request_id].append([step, fields])
        return {"names": self.names, "steps": self.numbers, "roles": roles, "waits": list(waits)}

    # ------------------------------------------------------------------ roles

    def _find_roles(self, number: int) -> None:
        events = self.of[number]
        plan = next((e for e in events if e.kind == "schedule" and not e.error and not e.view_error), None)
        if plan is not None:
            self._read_plan(number, plan)
        for event in events:
            if event.kind == "update_from_output":
                for update in event.updates:
                    if update.finish_reason:
                        self._put(update.req_id, number).finished = update.finish_reason
            elif event.kind == "finish_requests":
                for request_id in event.finished:
                    self._put(request_id, number).finished = event.status.replace("FINISHED_", "").lower()

    def _read_plan(self, number: int, plan: Any) -> None:
        for preemption in plan.preemptions:
            self._put(preemption.req_id, number).kind = "preempted"
            self._lost.add(preemption.req_id)
        for skipped in plan.skipped:
            role = self._put(skipped.req_id, number)
            if role.kind != "preempted":
                role.kind, role.waits = "waits", words_of(skipped, self.name)
        hits = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
        hits |= {old.req_id: old.num_computed_tokens for old in plan.scheduled_cached_reqs if old.resumed}
        for request_id, tokens in plan.num_scheduled_tokens.items():
            role = self._put(request_id, number)
            role.n, role.after, role.known = (
                tokens,
                plan.num_computed_tokens[request_id][1],
                plan.num_tokens[request_id],
            )
            prompt = self.num_prompt.get(request_id, role.known)
            decode = tokens == 1 and role.after - tokens >= prompt and request_id not in hits
            role.kind, role.hits = "decode" if decode else "prefill", hits.get(request_id, 0)
            role.resumed = request_id in hits and request_id in self._lost
        for request_id in plan.waiting:
            if number not in self.roles.get(request_id, {number: None}):
                self._put(request_id, number).kind = "waits"

    def _put(self, request_id: str, number: int) -> Role:
        return self.roles.get(request_id, {}).setdefault(number, Role())


def _names(trace: Trace) -> dict[str, str]:
    answers, seen = Counter(trace.external_ids.values()), Counter[str]()
    names = {}
    for internal, external in trace.external_ids.items():
        names[internal] = external if answers[external] == 1 else f"{external}.{seen[external]}"
        seen[external] += 1
    return names


def _step_numbers(trace: Trace) -> list[int]:
    """With which step each event is shown: one between steps with the step that follows, at the end with the last."""
    following: list[int | None] = []
    coming = None
    for event in reversed(trace.events):
        if event.step is not None and event.kind == "step":
            coming = event.step
        following.append(coming if event.step is None else event.step)
    latest = next((event.step for event in trace if event.step is not None), 0)
    found: dict[int, int] = {}
    for event, number in zip(trace, reversed(following), strict=True):
        parent = trace.parent(event) if event.parent in trace else None
        if event.step is None and event.kind in LASTING:
            inside = [child.step for child in trace.children(event) if child.step is not None]
            number = min([*inside[:1], *([number] if number is not None else [])], default=None)
        elif event.step is None and parent is not None and parent.seq in found and parent.kind not in LASTING:
            number = found[parent.seq]
        number = latest if number is None else number
        latest = max(latest, number)
        found[event.seq] = number
    return list(found.values())
