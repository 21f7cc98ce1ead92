"""The whole life of one request: what each step did with it, why it waited, why it ended, where its time went.

Interface: explain_life.
Must not know: a running engine.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from minivllm.show.describe import plural, quoted
from minivllm.show.explain_step import explain_step
from minivllm.show.lives import ENDS, Life, Lives, Role
from minivllm.show.phases import PHASES, Phase, phases
from minivllm.show.reasons import Explanation, Reason, are, span
from minivllm.show.waits import WAITS


def explain_life(lives: Lives, life: Life) -> Explanation:
    """What happened to a request, from its arrival to its end."""
    roles = lives.roles(life.request_id)
    worked = [role for role in roles if role.num_new_tokens]
    stretches = phases(lives, life.request_id)
    numbers = _numbers(lives, life, roles, stretches)
    reasons = [*_story(lives, life, roles), _end_reason(life, numbers), *_time_reasons(lives, life, stretches)]
    asked = f"{plural(numbers['num_prompt_tokens'], 'prompt token')}, " if numbers["num_prompt_tokens"] else ""
    ended = f"It ended because {ENDS[life.end]}."
    if life.end == "not_finished":
        ended = "It has not ended: " + ENDS[life.end] + "."
    sentence = (
        f"Request {life.name}: {asked}{plural(numbers['num_output_tokens'], 'output token')} in "
        f"{plural(len(worked), 'step')}. {ended}"
    )
    return Explanation(life.request_id, life.name, None, life.end, sentence, numbers, tuple(reasons))


def _numbers(lives: Lives, life: Life, roles: list[Role], stretches: list[Phase]) -> dict[str, Any]:
    worked = [role.step for role in roles if role.num_new_tokens]
    prompt = life.arrived.num_prompt_tokens if life.arrived is not None else 0
    updates = [
        u for e in life.events if e.kind == "update_from_output" for u in e.updates if u.req_id == life.request_id
    ]
    looked_up = [e for e in life.events if e.kind == "schedule"]
    hits = [new.num_computed_tokens for e in looked_up for new in e.scheduled_new_reqs if new.req_id == life.request_id]
    spent: dict[str, int] = {}
    for phase in stretches:
        spent[phase.name] = spent.get(phase.name, 0) + phase.duration
    return {
        "num_prompt_tokens": prompt,
        "num_output_tokens": updates[-1].num_tokens[1] - prompt if updates else 0,
        "max_tokens": life.arrived.max_tokens if life.arrived is not None else None,
        "num_hit_tokens": hits[0] if hits else 0,
        "num_steps": len(worked),
        "first_step": worked[0] if worked else None,
        "last_step": worked[-1] if worked else None,
        "num_steps_waited": sum(role.phase == "queue" for role in roles),
        "num_steps_preempted": sum(role.phase == "preempted" for role in roles),
        "num_preemptions": sum(p.req_id == life.request_id for s in lives.plans() for p in s.schedule.preemptions),
        "stop_reason": _stop_reason(life, updates),
        "time_ns": spent,
    }


def _stop_reason(life: Life, updates: list[Any]) -> int | str | None:
    if life.stopped is not None:
        return life.stopped.stop_string
    return updates[-1].stop_reason if updates else None


# ---------------------------------------------------------------------- the story


def _story(lives: Lives, life: Life, roles: list[Role]) -> Iterator[Reason]:
    """Its steps in runs of the same kind, each with a sentence."""
    explained = [(role, explain_step(lives, life, role.step)) for role in roles]
    for _, run in groupby(explained, key=_kind_of_run):
        steps = list(run)
        (first, start), (last, end) = steps[0], steps[-1]
        label = span(first.step, last.step, "step")
        seqs = tuple(sorted({*start.seqs, *end.seqs}))
        code = first.phase if first.num_new_tokens else start.verdict
        yield Reason(code, _run_sentence(first, [explanation for _, explanation in steps]), seqs, label=label)


def _kind_of_run(step: tuple[Role, Explanation]) -> tuple[Any, ...]:
    role, explanation = step
    numbers = explanation.numbers
    if role.phase == "decode" and not numbers.get("admitted") and explanation.verdict == "scheduled":
        return ("decode", bool(numbers.get("victims")))
    if role.num_new_tokens or explanation.verdict == "preempted":
        return (role.step,)
    return (explanation.verdict, numbers.get("blocked_by"), numbers.get("blocks_needed"))


def _run_sentence(role: Role, run: list[Explanation]) -> str:
    explanation = run[-1]
    if not role.num_new_tokens:
        most_free = are(max(one.numbers.get("blocks_free") or 0 for one in run))
        known = WAITS.get(explanation.verdict)
        return known.life.format(most_free=most_free, **explanation.numbers) if known else explanation.sentence
    if explanation.verdict == "in_vain":
        return explanation.sentence
    if role.phase == "decode" and len(run) > 1:
        return "One token a step."
    cache = explanation.reason("cache")
    victims = explanation.reason("victims")
    own = explanation.sentence.removeprefix(f"Request {explanation.name} ")
    parts = [f"It {own}", cache, victims]
    return " ".join(str(part) for part in parts if part is not None)


# ---------------------------------------------------------------------- its end, and its time


def _end_reason(life: Life, numbers: dict[str, Any]) -> Reason:
    sentence = ENDS[life.end]
    if life.end == "max_tokens":
        sentence += f": {plural(numbers['num_output_tokens'], 'output token')}"
    elif life.end == "stop_string":
        sentence = f"the caller's side found the stop string {quoted(numbers['stop_reason'])} in its text"
        if life.ended is not None and life.ended.kind == "finish_requests":
            sentence += ", and the core was told to end it"
    elif life.end == "stop_token":
        sentence += f" ({numbers['stop_reason']})"
    seqs = tuple(event.seq for event in (life.stopped, life.given_up, life.ended, life.closed) if event is not None)
    return Reason("end", f"{sentence[:1].upper()}{sentence[1:]}.", seqs, label="the end")


def _time_reasons(lives: Lives, life: Life, stretches: list[Phase]) -> Iterator[Reason]:
    total = sum(phase.duration for phase in stretches)
    if lives.trace.header.clock != "monotonic":
        said = [f"{name} {steps}" for name, _, steps in _spent(stretches) if steps]
        sentence = "The clock is logical: it has an order and no durations. In steps: " + ", ".join(said) + "."
        yield Reason("time", sentence, label="time")
        return
    yield Reason("time", f"{total / 1e6:.2f} ms from the first thing done for it to its last output:", label="time")
    for name, spent, steps in _spent(stretches):
        share = f"{100 * spent / total:.1f} %" if total else "-"
        of_steps = f", {plural(steps, 'step')}" if steps else ""
        yield Reason("time", f"{spent / 1e6:.2f} ms, {share}{of_steps}: {PHASES[name]}.", label=f"  {name}")
    for name, spent in life.beside.items():
        what = {"ipc": "its messages were under way", "detokenize": "its tokens became text"}[name]
        yield Reason("beside", f"{spent / 1e6:.2f} ms in all, partly beside the above: {what}.", label=f"all {name}")


def _spent(stretches: list[Phase]) -> Iterator[tuple[str, int, int]]:
    """(phase, ns, steps) in the order of PHASES."""
    for name in PHASES:
        mine = [phase for phase in stretches if phase.name == name]
        if mine:
            yield name, sum(phase.duration for phase in mine), sum(len(phase.steps) for phase in mine)
