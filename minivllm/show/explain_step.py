"""Why one step gave one request what it gave it.

Interface: explain_step. Requests without tokens are explain_waiting's.
Must not know: a running engine; everything is read off the events of the plan (B10) and of the cache (B11, B12).

The reasons follow the scheduler's own order: whose turn it is, what the budget leaves, what the cache has, how many
tokens are missing, whether the blocks suffice; then what came of it.
"""

from typing import Any, NamedTuple

from minivllm.show.describe import plural, quoted
from minivllm.show.explain_cache import explain_hits
from minivllm.show.explain_waiting import explain_absent, explain_preempted, explain_skipped
from minivllm.show.lives import Life, Lives, StepEvents
from minivllm.show.reasons import Explanation, Reason, are, blocks, shares, some, span


def explain_step(lives: Lives, life: Life, number: int) -> Explanation:
    """What step `number` did with a request, and why."""
    step = lives.steps[number]
    plan = step.schedule
    if plan is None:
        sentence = f"Step {number} has no plan in the trace: it failed, or the process ended before it was made."
        return Explanation(life.request_id, life.name, number, "unknown", sentence)
    if life.request_id in plan.num_scheduled_tokens:
        return _scheduled(lives, life, step)
    for preemption in plan.preemptions:
        if preemption.req_id == life.request_id:
            return explain_preempted(lives, life, step, preemption)
    for skipped in plan.skipped:
        if skipped.req_id == life.request_id:
            in_front = lives.lives.get(skipped.blocked_by) if skipped.reason == "head_of_line" else None
            blocker = explain_step(lives, in_front, number) if in_front is not None else None
            return explain_skipped(lives, life, step, skipped, blocker)
    return explain_absent(lives, life, step)


class Grant(NamedTuple):
    """What a plan gave one request, and what it had to choose from."""

    tokens: int
    known: int
    computed: int  # before
    token_budget: int  # left when it was its turn
    used_by: dict[str, int]  # name -> tokens, of those before it
    admitted: bool  # it waited; it does not run since an earlier step
    resumed: bool  # after a preemption
    lookup: Any  # get_computed_blocks
    allocation: Any  # allocate_slots that went well
    victims: list[Any]  # preempted for it

    @property
    def missing(self) -> int:
        return self.known - self.computed


def _scheduled(lives: Lives, life: Life, step: StepEvents) -> Explanation:
    grant = _grant(lives, life, step)
    limit = _limit(lives, grant)
    numbers: dict[str, Any] = {
        "num_new_tokens": grant.tokens,
        "num_tokens": grant.known,
        "num_computed_tokens": grant.computed,
        "num_missing": grant.missing,
        "limit": limit,
        "token_budget": grant.token_budget,
        "used_by": grant.used_by,
        "admitted": grant.admitted,
        "resumed": grant.resumed,
        "victims": [lives.name(victim.req_id) for victim in grant.victims],
    }
    reasons = [_turn_reason(lives, life, step, grant), _budget_reason(step, grant)]
    if grant.admitted and grant.lookup is not None:
        hits, more = explain_hits(lives, life, step, grant.lookup)
        numbers |= more
        reasons.append(hits)
    reasons.append(_tokens_reason(lives, step, grant, limit))
    if grant.allocation is not None:
        numbers |= {
            "hit_block_ids": list(grant.allocation.hit_block_ids),
            "new_block_ids": list(grant.allocation.new_block_ids),
            "blocks_free": grant.allocation.num_free_blocks[0],
        }
        reasons += _room_reasons(lives, step, grant)
    reasons += _outcome_reasons(life, step)
    verdict, sentence = "scheduled", _sentence(lives, life, step, grant, limit)
    wasted = _in_vain(life, step)
    if wasted is not None:
        verdict = "in_vain"
        sentence = f"Request {life.name} gets {plural(grant.tokens, 'token')} in vain: its caller has ended it."
        reasons.append(wasted)
    return Explanation(life.request_id, life.name, step.number, verdict, sentence, numbers, tuple(reasons))


def _grant(lives: Lives, life: Life, step: StepEvents) -> Grant:
    plan, me = step.schedule, life.request_id
    tokens = plan.num_scheduled_tokens[me]
    token_budget, used_by = _turn(step, me)
    resumed = any(cached.req_id == me and cached.resumed for cached in plan.scheduled_cached_reqs)
    allocations = [event for event in step.of("allocate_slots", me) if event.refused is False]
    return Grant(
        tokens=tokens,
        known=plan.num_tokens[me],
        computed=plan.num_computed_tokens[me][1] - tokens,
        token_budget=token_budget,
        used_by=lives.named(used_by),
        admitted=resumed or any(new.req_id == me for new in plan.scheduled_new_reqs),
        resumed=resumed,
        lookup=next(iter(step.of("get_computed_blocks", me)), None),
        allocation=allocations[-1] if allocations else None,
        victims=[preemption for preemption in plan.preemptions if preemption.for_req_id == me],
    )


def _turn(step: StepEvents, request_id: str) -> tuple[int, dict[str, int]]:
    """(tokens left when it was a request's turn, what those before it had got), from the calls that the plan made.

    A victim that had tokens gives them back.
    """
    budget, given = step.schedule.token_budget[0], {}
    for event in step.inside:
        if event.kind == "allocate_slots" and event.refused is not None:
            if event.reqs[0] == request_id:
                return budget, given
            if not event.refused:
                given[event.reqs[0]] = event.num_new_tokens
                budget -= event.num_new_tokens
        elif event.kind == "free" and event.reqs:
            budget += given.pop(event.reqs[0], 0)
    before = {}  # those calls could not be looked at: go by the order of the plan
    for other, tokens in step.schedule.num_scheduled_tokens.items():
        if other == request_id:
            break
        before[other] = tokens
    return step.schedule.token_budget[0] - sum(before.values()), before


def _limit(lives: Lives, grant: Grant) -> str | None:
    """What kept a request from getting all that it missed: the tightest setting, None if nothing did."""
    limits = {"token_budget": grant.token_budget}
    threshold = lives.config.get("long_prefill_token_threshold") or 0
    if threshold:
        limits["long_prefill_token_threshold"] = threshold
    if not grant.admitted and lives.config.get("max_model_len"):
        limits["max_model_len"] = lives.config["max_model_len"] - 1 - grant.computed
    tightest = min(limits, key=limits.__getitem__)
    return tightest if limits[tightest] < grant.missing else None


# ---------------------------------------------------------------------- sentences


def _sentence(lives: Lives, life: Life, step: StepEvents, grant: Grant, limit: str | None) -> str:
    head = f"Request {life.name}"
    if grant.resumed:
        waited = sum(r.phase == "preempted" and r.step < step.number for r in lives.roles(life.request_id))
        head += f" resumes after {plural(waited, 'step')} and"
    elif grant.admitted:
        head += " is admitted and"
    why = {
        None: "",
        "token_budget": f": no more is left of the budget of {step.schedule.token_budget[0]}",
        "long_prefill_token_threshold": ": one request gets no more in one step",
        "max_model_len": ": max_model_len allows no more",
    }
    return f"{head} gets {some(grant.tokens, grant.missing, 'token')} that it misses{why[limit]}."


def _turn_reason(lives: Lives, life: Life, step: StepEvents, grant: Grant) -> Reason:
    if not grant.admitted:
        return Reason("turn", "It runs already, and those that run come before those that wait.", (step.schedule.seq,))
    running, seats = step.schedule.running, lives.config.get("max_num_seqs")
    seat = ""
    if seats and life.request_id in running:
        taken = running.index(life.request_id)
        seat = f"{taken} of {plural(seats, 'seat')} {'is' if taken == 1 else 'are'} taken. "
    front = "It was preempted, so it waits at the front. " if grant.resumed else "It is the first in the queue. "
    return Reason("turn", f"{front}{seat}Nobody is preempted in this step.", (step.schedule.seq,))


def _budget_reason(step: StepEvents, grant: Grant) -> Reason:
    sentence = f"A step has {plural(step.schedule.token_budget[0], 'token')}"
    sentence += f": {shares(grant.used_by)}, {are(grant.token_budget)} left." if grant.used_by else "; it comes first."
    return Reason("budget", sentence, (step.schedule.seq,))


def _tokens_reason(lives: Lives, step: StepEvents, grant: Grant, limit: str | None) -> Reason:
    sentence = (
        f"It has {plural(grant.known, 'token')} and {are(grant.computed)} computed: {are(grant.missing)} missing."
    )
    if limit is not None:
        if limit != "token_budget":
            sentence += f" {limit} is {lives.config.get(limit)}."
        sentence += f" The other {grant.missing - grant.tokens} come later."
    return Reason("tokens", sentence, (step.schedule.seq,))


def _room_reasons(lives: Lives, step: StepEvents, grant: Grant) -> list[Reason]:
    reasons = []
    for victim in grant.victims:
        sentence = f"It needs {plural(victim.blocks_needed, 'more block')} and {are(victim.blocks_free)} free: request "
        sentence += (
            f"{lives.name(victim.req_id)} is preempted and gives {plural(victim.blocks_returned, 'block')} back."
        )
        reasons.append(Reason("victims", sentence, (step.schedule.seq,)))
    allocation, one = grant.allocation, grant.tokens == 1
    where = span(grant.computed, grant.computed + grant.tokens - 1, "position").capitalize()
    new = allocation.new_block_ids
    if new:
        usable = (lives.trace.header.num_gpu_blocks or 1) - 1
        free = allocation.num_free_blocks[1]
        left = f"{free} of {usable} stay free" if usable > 0 else f"{free} stay free"
        sentence = f"{where} need{'s' * one} {plural(len(new), 'new block')}: it gets {blocks(new)}, {left}."
    else:
        sentence = f"{where} {'has' if one else 'have'} room in the {plural(allocation.num_blocks[1], 'block')} it has."
    return [*reasons, Reason("blocks", sentence, (allocation.seq,))]


# ---------------------------------------------------------------------- what came of it


def _outcome_reasons(life: Life, step: StepEvents) -> list[Reason]:
    if step.update is None:
        failed = next((e for e in (*step.others, step.whole) if e is not None and e.error is not None), None)
        return (
            [] if failed is None else [Reason("then", f"The step failed: {failed.error}", (failed.seq,), failed=True)]
        )
    return [
        Reason("then", _outcome(update), (step.update.seq,))
        for update in step.update.updates
        if update.req_id == life.request_id
    ]


def _outcome(update: Any) -> str:
    token_ids = update.new_token_ids
    if not token_ids:
        return "Nothing is sampled for it, since its prompt is not complete yet."
    known, now = update.num_tokens
    which = (
        f"token {token_ids[0]}" if isinstance(token_ids, list) and len(token_ids) == 1 else plural(now - known, "token")
    )
    sentence = f"The model gives it {which}: {known} tokens become {now}."
    return f"{sentence} With that it ends ({update.finish_reason})." if update.finish_reason else sentence


def _in_vain(life: Life, step: StepEvents) -> Reason | None:
    """The caller's side had ended the request when it was planned, or ended it while the step ran."""
    aborted = step.update is not None and life.request_id in step.update.aborted
    closed = life.closed is not None and life.closed.t0 < step.schedule.t0
    if not aborted and not closed:
        return None
    why = "Its caller gave it up"
    if life.stopped is not None:
        why = f"The stop string {quoted(life.stopped.stop_string)} was found in its text"
    when = ", and the core had not read the abort when it planned" if closed else " while the step was under way"
    sentence = f"{why}{when}. The token is dropped."
    seqs = tuple(event.seq for event in (life.stopped, life.given_up, life.ended) if event is not None)
    return Reason("abort", sentence, seqs, failed=True)
