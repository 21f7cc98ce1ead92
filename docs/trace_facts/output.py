"""Tokens, text, ends, and the values that tokens are chosen by."""

import math
from typing import Any

from minivllm.trace import Trace
from trace_facts.lookup import completion, first, internal_id, quantity, updates_of


@quantity
def output_tokens(trace: Trace, request: str) -> int:
    """Tokens that the caller got."""
    return completion(trace, request).num_output_tokens


def _token_ids(trace: Trace, request: str) -> list[int]:
    """Output tokens as the core has them."""
    return [token for update in updates_of(trace, request) for token in update.new_token_ids]


@quantity
def token(trace: Trace, request: str, number: str) -> str:
    """One output token, from 1, -1 for the last."""
    ids = _token_ids(trace, request)
    return str(ids[int(number) - 1 if int(number) > 0 else int(number)])


@quantity
def text(trace: Trace, request: str) -> str:
    return f"“{completion(trace, request).text}”".replace("\n", "⏎")


@quantity
def pieces(trace: Trace, request: str, count: str = "") -> str:
    """What each token added to the text; nothing shows as ∅."""
    events = trace.filter(request=internal_id(trace, request), kind="detokenize")
    words = [f"“{event.new_text}”" if event.new_text else "∅" for event in events]
    return " ".join(words[: int(count)] if count else words).replace("\n", "⏎")


@quantity
def piece(trace: Trace, request: str, number: str) -> str:
    """What one output token added to the text."""
    return f"“{trace.filter(request=internal_id(trace, request), kind='detokenize')[int(number) - 1].new_text}”"


@quantity
def empty_pieces(trace: Trace, request: str) -> int:
    """Tokens that added no text."""
    return sum(not event.new_text for event in trace.filter(request=internal_id(trace, request), kind="detokenize"))


@quantity
def finish(trace: Trace, request: str) -> str:
    return f"`{completion(trace, request).finish_reason}`"


@quantity
def stop_reason(trace: Trace, request: str) -> str:
    return f"`{completion(trace, request).stop_reason!r}`"


@quantity
def core_finish(trace: Trace, request: str) -> str:
    """Why the core ended a request, or `aborted`."""
    me = internal_id(trace, request)
    if any(me in event.finished for event in trace.filter(kind="finish_requests")):
        return "`abort`"
    return f"`{updates_of(trace, request)[-1].finish_reason}`"


@quantity
def held(trace: Trace, request: str) -> int:
    """Characters held back, at most."""
    return max(event.num_held_chars for event in trace.filter(request=internal_id(trace, request), kind="detokenize"))


@quantity
def shown(trace: Trace, request: str, number: str) -> str:
    """Characters of the text, and of those shown, after an output token while the request runs."""
    event = trace.filter(request=internal_id(trace, request), kind="detokenize")[int(number) - 1]
    return f"{event.num_chars[1]} characters, {event.num_chars[1] - event.num_held_chars} of them shown"


@quantity
def updates_without_token(trace: Trace, request: str) -> int:
    return sum(1 for update in updates_of(trace, request) if not update.new_token_ids)


@quantity
def order(trace: Trace) -> str:
    """Requests as they ended, and as they came back."""
    ended = [u.req_id for e in trace.filter(kind="update_from_output") for u in e.updates if u.finish_reason]
    back = [c.request_id for e in trace.filter(kind="run_engine") for c in e.outputs]
    return f"{', '.join(trace.external_ids[i] for i in ended)} and {', '.join(back)}"


@quantity
def same_answers(trace: Trace, other: Trace) -> str:
    """How many requests got the same text in another trace."""
    requests = list(dict.fromkeys(trace.external_ids.values()))
    same = sum(completion(trace, r).text == completion(other, r).text for r in requests)
    return f"{same} of {len(requests)}"


@quantity
def same_tokens(trace: Trace, request: str, other_trace: Trace, other: str) -> str:
    """How many output tokens two requests have in common, from the start."""
    mine, others = _token_ids(trace, request), _token_ids(other_trace, other)
    same = next((i for i, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b), min(len(mine), len(others)))
    return f"{same} of {len(mine)}"


@quantity
def same_tokens_within(trace: Trace, request: str, other: str) -> str:
    return same_tokens(trace, request, trace, other)


def _candidate(trace: Trace, step: str, rank: str) -> Any:
    draw = first(trace.filter(step=int(step), kind="sampler.forward"), f"draw in step {step}")
    return draw.candidates[0][int(rank) - 1]


@quantity
def likely(trace: Trace, step: str, rank: str) -> str:
    """Token id and raw probability of one of the likeliest."""
    candidate = _candidate(trace, step, rank)
    return f"token {candidate.token_id} with {math.exp(candidate.logprob):.3f}"


@quantity
def probability(trace: Trace, step: str, rank: str) -> float:
    return math.exp(_candidate(trace, step, rank).logprob)


@quantity
def logprob(trace: Trace, step: str, rank: str) -> float:
    return _candidate(trace, step, rank).logprob


@quantity
def processed_logprob(trace: Trace, step: str, rank: str) -> float:
    return _candidate(trace, step, rank).processed_logprob


@quantity
def smallest_gap(trace: Trace) -> str:
    """The smallest gap between the raw logprobs of the two likeliest tokens, and its step."""
    draws = ((event.candidates[0], event.step) for event in trace.filter(kind="sampler.forward"))
    gap, step = min((likeliest.logprob - second.logprob, step) for (likeliest, second, *_), step in draws)
    return f"{gap:.3f}, in step {step}"


@quantity
def all_greedy(trace: Trace) -> str:
    events = trace.filter(kind="sampler.forward")
    return f"{sum(event.all_greedy for event in events)} of {len(events)}"


@quantity
def hidden_shape(trace: Trace, step: str) -> list[int]:
    return first(trace.filter(step=int(step), kind="model_forward"), f"forward pass in step {step}").hidden_states_shape
