"""Why one step gave one request nothing: what it lacked, whom it waited for, or that it was not there.

Interface: explain_skipped, explain_preempted, explain_absent.
Must not know: a running engine; the scheduler's own words are in the plan's `skipped` and `preemptions`.
"""

from typing import Any

from minivllm.show.describe import plural
from minivllm.show.explain_cache import explain_hits, explain_shortage, kept_blocks
from minivllm.show.lives import ENDS, Life, Lives, StepEvents
from minivllm.show.reasons import Explanation, Reason, are, requests, shares
from minivllm.show.waits import WAITS

Answer = tuple[str, list[Reason], dict[str, Any]]  # sentence, reasons, numbers


def explain_skipped(
    lives: Lives, life: Life, step: StepEvents, skipped: Any, blocker: Explanation | None = None
) -> Explanation:
    """A request that the plan names as skipped. blocker: for head_of_line, the one in front explained."""
    if blocker is not None:
        sentence, reasons, more = _behind(life, step, blocker)
    else:
        sentence, reasons, more = _WHY_NOT.get(skipped.reason, _other)(lives, life, step, skipped)
    numbers = {"token_budget": skipped.token_budget, "num_running": skipped.num_running, **more}
    if life.closed is not None and life.closed.t0 < step.schedule.t0:
        seqs = tuple(event.seq for event in (life.closed, life.ended) if event is not None)
        pending = "Its caller has ended it already; the core has not read the abort yet."
        reasons.append(Reason("abort", pending, seqs))
        numbers["abort_pending"] = True
    return Explanation(life.request_id, life.name, step.number, skipped.reason, sentence, numbers, tuple(reasons))


def _no_budget(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    plan = step.schedule
    used_by = lives.named(plan.num_scheduled_tokens)
    waits = "keeps its seat and its blocks, and" if life.request_id in plan.running else "waits and"
    sentence = WAITS["token_budget"].answer.format(name=life.name, waits=waits, budget=plan.token_budget[0])
    taken = f"A step has {plural(plan.token_budget[0], 'token')}: {shares(used_by)}, none is left."
    return sentence, [Reason("budget", taken, (plan.seq,), failed=True)], {"used_by": used_by}


def _no_seat(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    plan, seats = step.schedule, lives.config.get("max_num_seqs")
    free = plan.num_free_blocks[1]
    running = [lives.name(request_id) for request_id in plan.running]
    taken = f"{len(running)} of {seats} {'is' if len(running) == 1 else 'are'} taken"
    sentence = WAITS["seats"].answer.format(name=life.name, taken=taken)
    left = f"{skipped.token_budget} of {plural(plan.token_budget[0], 'token')} and {plural(free, 'block')} are left."
    taken = f"max_num_seqs is {seats}, and {requests(running)} run{'s' * (len(running) == 1)}."
    reasons = [Reason("budget", left, (plan.seq,)), Reason("seats", taken, (plan.seq,), failed=True)]
    return sentence, reasons, {"max_num_seqs": seats, "blocks_free": free, "running": running}


def _no_blocks(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    lookup = next(iter(step.of("get_computed_blocks", life.request_id)), None)
    refusal = next((event for event in step.of("allocate_slots", life.request_id) if event.refused), None)
    needed, free = skipped.blocks_needed, skipped.blocks_free
    sentence = WAITS["blocks"].answer.format(name=life.name, needed=needed, free=are(free))
    numbers = {"blocks_needed": needed, "blocks_free": free, "num_hit_tokens": skipped.num_hit_tokens}
    first = "It is the first in the queue; a seat is free and the budget is not used up."
    reasons = [Reason("turn", first, (step.schedule.seq,))]
    if lookup is not None:
        hits, more = explain_hits(lives, life, step, lookup)
        numbers |= more
        reasons.append(hits)
    if refusal is not None:
        shortage, more = explain_shortage(lives, refusal, needed, free)
        numbers |= more
        reasons.append(shortage)
    return sentence, reasons, numbers


def _no_chunk(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    plan = step.schedule
    lookup = next(iter(step.of("get_computed_blocks", life.request_id)), None)
    missing = (lookup.num_tokens if lookup is not None else life.arrived.num_tokens) - (skipped.num_hit_tokens or 0)
    left = skipped.token_budget
    lack = {"missing": plural(missing, "token"), "left": left, "budget": plan.token_budget[0]}
    sentence = WAITS["not_fit_in_budget"].answer.format(name=life.name, **lack)
    used_by = lives.named(plan.num_scheduled_tokens)
    reasons = [
        Reason("budget", f"A step has {plural(plan.token_budget[0], 'token')}: {shares(used_by)}.", (plan.seq,)),
        Reason("tokens", "Chunked prefill is off: a prompt goes into one step or waits.", (plan.seq,), failed=True),
    ]
    return sentence, reasons, {"num_missing": missing, "num_hit_tokens": skipped.num_hit_tokens, "used_by": used_by}


def _behind(life: Life, step: StepEvents, blocker: Explanation) -> Answer:
    sentence = WAITS["head_of_line"].answer.format(name=life.name, blocked_by=blocker.name)
    label = f"request {blocker.name}"
    failed = [reason for reason in blocker.reasons if reason.failed]
    reasons = [
        Reason("blocker", blocker.sentence, (step.schedule.seq,), failed=True, label=label),
        *(Reason("blocker", reason.sentence, reason.seqs, label=label) for reason in failed),
    ]
    return sentence, reasons, {"blocked_by": blocker.name, "blocker_verdict": blocker.verdict}


def _admission_closed(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    plan = step.schedule
    victims = [lives.name(preemption.req_id) for preemption in plan.preemptions]
    were = f"{requests(victims)} {'was' if len(victims) == 1 else 'were'} preempted"
    sentence = WAITS["preemption"].answer.format(name=life.name, were=were)
    if life.request_id in plan.running:
        sentence = f"Request {life.name} gets nothing: {were}, and the round of those that run ended there."
    last = plan.preemptions[-1]
    by = lives.name(last.for_req_id)
    needed, free = last.blocks_needed, last.blocks_free
    why = f"Request {by} needed {plural(needed, 'block')} and {are(free, 'was', 'were')} free."
    reason = Reason("preemption", why, (plan.seq,), failed=True)
    return sentence, [reason], {"blocked_by": by, "victims": victims}


def _other(lives: Lives, life: Life, step: StepEvents, skipped: Any) -> Answer:
    sentence = f"Request {life.name} gets nothing: {skipped.reason.replace('_', ' ')}."
    return sentence, [Reason("plan", sentence, (step.schedule.seq,), failed=True)], {}


_WHY_NOT = {
    "token_budget": _no_budget,
    "seats": _no_seat,
    "blocks": _no_blocks,
    "not_fit_in_budget": _no_chunk,
    "preemption": _admission_closed,
}


# ---------------------------------------------------------------------- it lost what it had


def explain_preempted(lives: Lives, life: Life, step: StepEvents, preemption: Any) -> Explanation:
    """A request that lost its blocks in this step."""
    plan, me = step.schedule, life.request_id
    known, by = plan.num_tokens[me], lives.name(preemption.for_req_id)
    needed, free = preemption.blocks_needed, preemption.blocks_free
    lack = f"needs {plural(needed, 'more block')}, and {are(free)} free"
    lack = (
        f"it {lack}, and it is itself the one that must go" if preemption.for_req_id == me else f"request {by} {lack}"
    )
    sentence = WAITS["preempted"].answer.format(name=life.name, lack=lack)
    kept, freed = kept_blocks(lives, step, me)
    seqs = (plan.seq,) if freed is None else (plan.seq, freed.seq)
    num_output = known - (life.arrived.num_prompt_tokens if life.arrived is not None else known)
    numbers = {
        "for_req": by,
        "blocks_needed": needed,
        "blocks_free": free,
        "blocks_returned": preemption.blocks_returned,
        "num_computed_tokens": preemption.num_computed_tokens,
        "num_tokens": known,
        "num_output_tokens": num_output,
        "was_scheduled": preemption.was_scheduled,
        "num_kept_blocks": kept,
    }
    reasons = (
        Reason("victim", _why_this_one(lives, life), (plan.seq,), failed=True),
        Reason("lost", _lost(preemption), seqs),
        Reason("kept", _kept(lives, known, num_output, kept), seqs),
    )
    return Explanation(me, life.name, step.number, "preempted", sentence, numbers, reasons)


def _why_this_one(lives: Lives, life: Life) -> str:
    if lives.config.get("scheduling_policy") == "priority":
        priority = life.arrived.priority if life.arrived is not None else None
        return (
            f"Of those that run, the least important goes, of equals the latest to arrive: its priority is {priority}."
        )
    return "Of those that run, the last to be admitted goes."


def _lost(preemption: Any) -> str:
    back = plural(preemption.blocks_returned, "block")
    sentence = (
        f"It gives {back} back, and none of its {preemption.num_computed_tokens} computed tokens counts any more."
    )
    if preemption.was_scheduled:
        sentence += " It had tokens in this very step; they are taken back."
    return sentence


def _kept(lives: Lives, known: int, num_output: int, kept: int) -> str:
    size = lives.config.get("block_size") or 0
    sentence = (
        f"It keeps its {plural(known, 'token')}, {num_output} of them output, and waits at the front of the queue."
    )
    if not kept:
        return f"{sentence} None of its blocks can be found again."
    first = "first block" if kept == 1 else f"first {kept} blocks"
    sentence += f" Its {first} can be found again ({kept * size} tokens) until somebody takes "
    return sentence + ("it." if kept == 1 else "them.")


# ---------------------------------------------------------------------- the plan does not name it


def explain_absent(lives: Lives, life: Life, step: StepEvents) -> Explanation:
    """A request that the plan says nothing about: it has ended, or is not there yet."""
    plan = step.schedule
    if life.ended is not None and life.ended.t1 <= plan.t0:
        return _finished(lives, life, step)
    if life.arrived is None or life.arrived.t0 > plan.t0:
        return _not_arrived(lives, life, step)
    sentence = f"The plan of step {step.number} says nothing about request {life.name}, though it is in the scheduler."
    reasons = (Reason("plan", sentence, (plan.seq,)),)
    return Explanation(life.request_id, life.name, step.number, "unknown", sentence, {}, reasons)


def _finished(lives: Lives, life: Life, step: StepEvents) -> Explanation:
    told = life.request_id in step.schedule.finished_req_ids
    last = max((role.step for role in lives.roles(life.request_id) if role.num_new_tokens), default=None)
    sentence = f"Request {life.name} has ended: {ENDS[life.end]}."
    when = f"Step {last} was the last with tokens of it." if last is not None else "It never had a token."
    seqs = tuple(event.seq for event in (life.stopped, life.given_up, life.ended) if event is not None)
    reasons = [Reason("end", when, seqs, failed=True)]
    if told:
        reasons.append(Reason("then", "With this plan the worker is told to forget it.", (step.schedule.seq,)))
    numbers = {"reason": life.end, "last_step": last, "worker_is_told": told}
    return Explanation(life.request_id, life.name, step.number, "finished", sentence, numbers, tuple(reasons))


def _not_arrived(lives: Lives, life: Life, step: StepEvents) -> Explanation:
    plan, arrived = step.schedule, life.arrived
    first = next((s.number for s in lives.plans() if arrived is not None and s.schedule.t0 > arrived.t0), None)
    under_way = life.sent is not None and life.sent.t0 < plan.t0
    verdict = "on_its_way" if under_way else "not_arrived"
    sentence = f"Request {life.name} is not there yet."
    if under_way:
        sentence = f"Request {life.name} is on its way: it has been sent, and is not in the scheduler's queue yet."
    when = f"Step {first} is the first that can take it." if first is not None else "No step can take it any more."
    seqs = tuple(event.seq for event in (life.sent, life.received, arrived) if event is not None)
    reasons = (Reason("arrival", when, seqs, failed=True),)
    numbers = {"arrives_before_step": first}
    return Explanation(life.request_id, life.name, step.number, verdict, sentence, numbers, reasons)
