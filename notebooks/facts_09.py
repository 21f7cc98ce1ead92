"""Facts of notebook 09: the likeliest tokens of one step, before and after the knobs.

Owns: nothing; it reads traces of detail 2.
Interface: choices, kept, params, drawn_token, draws; Choice.
Must not know: how anything is shown.
"""

import math
from typing import Any, NamedTuple

from minivllm.course.notebook.names import tokens
from minivllm.trace import Trace


class Choice(NamedTuple):
    """One token that could be next."""

    token_id: int
    text: str
    raw: float  # probability by the raw logits: what is reported
    processed: float  # by those that the token is drawn from; 0 if it is masked
    raw_rank: int  # 1 is the likeliest
    processed_rank: int  # among those that were recorded: exact for the first ten


def choices(trace: Trace, n: int | None = 5, step: int = 1, row: int = 0) -> list[Choice]:
    """The n likeliest tokens of a row in a step by the raw logits, the likeliest first; None: all that were recorded.

    Raises LookupError where the trace has no values of that step.
    """
    (event,) = (one for one in trace.filter(kind="sampler.forward", step=step) if one.candidates)
    found: list[Any] = event.candidates[row]
    raw = sorted((one.logprob for one in found), reverse=True)
    processed = sorted((_p(one.processed_logprob) for one in found), reverse=True)
    rows = [
        Choice(
            one.token_id,
            tokens([one.token_id])[0],
            _p(one.logprob),
            _p(one.processed_logprob),
            raw.index(one.logprob) + 1,
            processed.index(_p(one.processed_logprob)) + 1,
        )
        for one in sorted(found, key=lambda one: -one.logprob)
    ]
    return rows[:n]


def _p(logprob: float | None) -> float:
    return 0.0 if logprob is None else math.exp(logprob)


def kept(trace: Trace, step: int = 1, row: int = 0) -> int:
    """How many of the recorded candidates can be drawn."""
    return sum(1 for one in choices(trace, None, step, row) if one.processed > 0)


def params(trace: Trace) -> list[str]:
    """How each request of a trace is sampled, in words, in order of arrival."""
    found = [event.sampling_params for event in trace.filter(kind="process_inputs")]
    words = [
        [f"temperature {one.get('temperature', 1):g}", *([f"seed {one['seed']}"] if "seed" in one else [])]
        for one in found
    ]
    return [", ".join(one) for one in words]


def drawn_token(trace: Trace, step: int = 1, row: int = 0) -> Choice:
    """The token that was sampled."""
    (event,) = trace.filter(kind="sample_tokens", step=step)
    (token_id,) = event.sampled_token_ids[row]
    return next(one for one in choices(trace, None, step, row) if one.token_id == token_id)


def draws(probabilities: list[float], times: int, seed: int) -> list[int]:
    """How often each is drawn in `times` exponential races: the largest p / noise wins. The rest is drawn as well.

    vLLM: v1/sample/ops/topk_topp_sampler.py::random_sample (in numpy, for a table)
    """
    import numpy

    p = numpy.array([*probabilities, 1 - sum(probabilities)])
    noise = numpy.random.default_rng(seed).exponential(size=(times, len(p)))
    return numpy.bincount((p / noise).argmax(axis=1), minlength=len(p)).tolist()[: len(probabilities)]
