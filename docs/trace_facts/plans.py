"""Plans: who gets how many tokens, who waits or is preempted, and why."""

from typing import Any

from minivllm.show.explain import explain, format_explanation
from minivllm.trace import Trace
from trace_facts.lookup import counted, first, internal_id, plans_with, quantity, schedule_of


@quantity
def all_steps(trace: Trace) -> int:
    """Steps in which the model ran."""
    return sum(1 for plan in trace.filter(kind="schedule") if plan.num_scheduled_tokens)


@quantity
def plans(trace: Trace) -> int:
    return len(trace.filter(kind="schedule"))


@quantity
def steps(trace: Trace, request: str) -> int:
    """Steps in which a request got tokens."""
    return len(plans_with(trace, request))


@quantity
def first_step(trace: Trace, request: str) -> int:
    return plans_with(trace, request)[0].step


@quantity
def last_step(trace: Trace, request: str) -> int:
    return plans_with(trace, request)[-1].step


@quantity
def waits(trace: Trace, request: str, reason: str = "") -> int:
    """Steps in which a request was passed over, for one reason or any."""
    me = internal_id(trace, request)
    skipped = (s for plan in trace.filter(kind="schedule") for s in plan.skipped)
    return sum(1 for s in skipped if s.req_id == me and reason in ("", s.reason))


@quantity
def skipped(trace: Trace, request: str, step: str, name: str) -> Any:
    """A number behind a wait."""
    me = internal_id(trace, request)
    found = first((s for s in schedule_of(trace, step).skipped if s.req_id == me), f"wait of {request} in step {step}")
    return getattr(found, name)


@quantity
def sent(trace: Trace, request: str, step: str = "") -> Any:
    """Tokens that a step gave a request; without a step, those of all its steps."""
    me = internal_id(trace, request)
    if step:
        return schedule_of(trace, step).num_scheduled_tokens.get(me, 0)
    return counted(plan.num_scheduled_tokens[me] for plan in plans_with(trace, request))


def _prefill(trace: Trace, request: str) -> list[int]:
    me, given = internal_id(trace, request), []
    for plan in plans_with(trace, request):
        given.append(plan.num_scheduled_tokens[me])
        if plan.num_computed_tokens[me][1] >= plan.num_tokens[me]:
            break
    return given


@quantity
def prefill(trace: Trace, request: str) -> str:
    """Tokens that each step gave a request until its first output."""
    return counted(_prefill(trace, request))


@quantity
def decodes(trace: Trace, request: str) -> int:
    """Steps after that of the first output."""
    return len(plans_with(trace, request)) - len(_prefill(trace, request))


@quantity
def plan(trace: Trace, step: str) -> list[int]:
    """Tokens of each request of a step, in the order of the plan."""
    return list(schedule_of(trace, step).num_scheduled_tokens.values())


@quantity
def total(trace: Trace, step: str) -> int:
    return schedule_of(trace, step).total_num_scheduled_tokens


@quantity
def tokens_computed(trace: Trace) -> int:
    """Tokens that went through the model in all."""
    return sum(plan.total_num_scheduled_tokens for plan in trace.filter(kind="schedule"))


@quantity
def known(trace: Trace, request: str, step: str) -> int:
    """Tokens that exist when a step is planned."""
    return schedule_of(trace, step).num_tokens[internal_id(trace, request)]


@quantity
def computed(trace: Trace, request: str, step: str) -> str:
    """num_computed_tokens before and after planning."""
    return " → ".join(map(str, schedule_of(trace, step).num_computed_tokens[internal_id(trace, request)]))


@quantity
def told(trace: Trace, request: str) -> int:
    """The step whose plan tells the worker that a request has ended."""
    me = internal_id(trace, request)
    return first((p for p in trace.filter(kind="schedule") if me in p.finished_req_ids), f"end of {request}").step


@quantity
def running(trace: Trace, step: str) -> list[str]:
    """Who runs before a step, in order of admission."""
    return [trace.external_ids[i] for i in trace.state_at(schedule_of(trace, step).seq, before=True).running]


@quantity
def preempted(trace: Trace, request: str, name: str = "step") -> Any:
    """The first preemption of a request: its step, or one of its numbers."""
    me = internal_id(trace, request)
    found = ((plan, p) for plan in trace.filter(kind="schedule") for p in plan.preemptions if p.req_id == me)
    for plan, preemption in found:
        if name == "for":
            return trace.external_ids[preemption.for_req_id]
        return plan.step if name == "step" else getattr(preemption, name)
    raise LookupError(f"request {request} is never preempted")


@quantity
def victim(trace: Trace) -> str:
    """The first request that is preempted."""
    found = (p for plan in trace.filter(kind="schedule") for p in plan.preemptions)
    return trace.external_ids[first(found, "preemption").req_id]


@quantity
def resumed(trace: Trace, request: str, name: str = "step") -> Any:
    """The first return of a request: its step, its `hit`, or the tokens it is `sent`."""
    me = internal_id(trace, request)
    for plan in trace.filter(kind="schedule"):
        for cached in plan.scheduled_cached_reqs:
            if cached.req_id == me and cached.resumed:
                return {
                    "step": plan.step,
                    "hit": cached.num_computed_tokens,
                    "sent": plan.num_scheduled_tokens[me],
                    "outputs": cached.num_output_tokens,
                }[name]
    raise LookupError(f"request {request} never resumes")


@quantity
def why(trace: Trace, request: str, step: str = "") -> str:
    """What `minivllm why` says."""
    return format_explanation(explain(trace, request, int(step) if step else None))
