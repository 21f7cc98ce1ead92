"""The sampler by itself: what it draws has the distribution that its parameters say, and its input stays as it is.

Expected distributions come from plain loops over sorted lists, not from the sampler's own functions.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm.sample.sampler import Sampler, gather_logprobs, process, sample_from_sums
from minivllm.sampling_params import SamplingParams
from minivllm.worker.input_batch import CachedRequestState, make_sampling_metadata

CPU = torch.device("cpu")
LOGITS = [2.0, 1.5, 1.5, 0.0, -1.0, -3.0, 0.5, -0.5]
NUM_DRAWS = 40_000


def make_metadata(*rows: dict[str, Any], prompts: list[list[int]] | None = None, vocab_size: int = 8) -> Any:
    """Sampling metadata of a row for each dict of SamplingParams; `output` in it stands for the tokens so far."""
    states = []
    for index, row in enumerate(rows):
        row = {"max_tokens": 99, **row}
        output = row.pop("output", [])
        params = SamplingParams(**row)
        params.set_stop_tokens(7)
        generator = None
        if params.seed is not None:
            generator = torch.Generator().manual_seed(params.seed)
        prompt = prompts[index] if prompts else [0]
        states.append(
            CachedRequestState(f"r{index}", prompt, params, [], 0, generator=generator, output_token_ids=output)
        )
    return make_sampling_metadata(states, vocab_size, CPU)


# ---------------------------------------------------------------------- distributions


def expected_probs(
    logits: list[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """min-p, then top-k, then top-p, in loops."""

    def softmax(values: list[float]) -> list[float]:
        weights = [math.exp(value) for value in values]
        return [weight / sum(weights) for weight in weights]

    values = [logit / temperature for logit in logits]
    probs = softmax(values)
    values = [-math.inf if p < min_p * max(probs) else v for v, p in zip(values, probs, strict=True)]
    if top_k:
        least = sorted(values, reverse=True)[top_k - 1]
        values = [-math.inf if v < least else v for v in values]
    probs = softmax(values)
    kept, total = set(), 0.0
    for token in sorted(range(len(probs)), key=lambda token: -probs[token]):
        if total < top_p:
            kept.add(token)
        total += probs[token]
    return softmax([v if token in kept else -math.inf for token, v in enumerate(values)])


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_k": 1},
        {"top_k": 8},
        {"top_p": 0.7},
        {"top_p": 0.01},
        {"min_p": 0.3},
        {"min_p": 1.0},
        {"temperature": 1.3, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_draws_follow_the_distribution(params: dict[str, Any]) -> None:
    wanted = expected_probs(LOGITS, **params)
    rows = 4000
    logits = torch.tensor([LOGITS] * rows)
    metadata = make_metadata(*[params] * rows)
    sampler = Sampler(seed=1, device=CPU)
    counts = torch.zeros(8)
    for _ in range(NUM_DRAWS // rows):
        counts += sampler.forward(logits, metadata).sampled_token_ids.bincount(minlength=8)
    check_chi_square(counts.tolist(), wanted)


def test_a_row_in_which_every_token_is_forbidden_gets_some_token() -> None:
    for params in ({}, {"seed": 1}):
        rows = torch.tensor([LOGITS, [float("-inf")] * 8])
        sampled = Sampler(0, CPU).forward(rows, make_metadata(params, params)).sampled_token_ids
        assert 0 <= int(sampled[1]) < 8


def test_seeded_rows_follow_the_distribution_too() -> None:
    """Over seeds, and over the draws of a seed."""
    rows = 1500
    metadata = make_metadata(*[{"temperature": 0.8, "seed": seed} for seed in range(rows)])
    logits = torch.tensor([LOGITS] * rows)
    sampler = Sampler(seed=1, device=CPU)
    drawn = torch.stack([sampler.forward(logits, metadata).sampled_token_ids for _ in range(4)])
    wanted = expected_probs(LOGITS, temperature=0.8)
    for draws in (drawn[0], drawn):
        check_chi_square(draws.flatten().bincount(minlength=8).tolist(), wanted)


def check_chi_square(counts: list[float], probs: list[float]) -> None:
    """Nothing that has no chance; of the rest, no more deviation than one draw in 10,000 such tests has."""
    total = sum(counts)
    assert all(count == 0 for count, p in zip(counts, probs, strict=True) if p == 0)
    possible = [(count, p * total) for count, p in zip(counts, probs, strict=True) if p > 0]
    chi_square = sum((count - mean) ** 2 / mean for count, mean in possible)
    limits = {0: 1e-9, 1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9}  # p = 0.0001
    assert chi_square < limits[len(possible) - 1], (counts, probs)


@given(
    st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=8, max_size=8),
    st.sampled_from((0.01, 0.3, 1.0, 4.0)),
    st.integers(-1, 10),
    st.sampled_from((0.05, 0.33, 0.77, 0.995, 1.0)),
    st.sampled_from((0.0, 0.07, 0.6, 1.0)),
)
def test_cuts_are_what_loops_give(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """What is kept holds the mass that was asked for, and the smallest kept token was needed for it."""
    metadata = make_metadata(
        {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}, {"temperature": 1}
    )
    _, processed = process(torch.tensor([logits, logits]), metadata)
    probs = processed[0].softmax(dim=-1).tolist()
    k = top_k if 0 < top_k < 8 else 0
    before_top_p = expected_probs(logits, temperature, k, 1.0, min_p)
    kept = [token for token in range(8) if probs[token] > 0]
    mass = sum(before_top_p[token] for token in kept)
    assert kept and mass > top_p - 1e-5
    assert mass - min(before_top_p[token] for token in kept) < top_p + 1e-5
    for token in kept:
        assert probs[token] == pytest.approx(before_top_p[token] / mass, abs=1e-5)
    assert max(kept, key=lambda token: logits[token]) in [t for t in range(8) if logits[t] == max(logits)]


# ---------------------------------------------------------------------- seeds and company


def test_a_seed_gives_the_same_tokens_in_any_company() -> None:
    def draws(*company: dict[str, Any], place: int) -> list[int]:
        rows = [*company[:place], {"seed": 11}, *company[place:]]
        metadata = make_metadata(*rows)
        sampler = Sampler(seed=len(company), device=CPU)
        logits = torch.tensor([LOGITS] * len(rows))
        return [int(sampler.forward(logits, metadata).sampled_token_ids[place]) for _ in range(20)]

    alone = draws(place=0)
    assert draws({}, {"temperature": 0}, {"seed": 12}, place=0) == alone
    assert draws({}, {"temperature": 0}, {"seed": 12}, place=2) == alone
    assert draws({"seed": 11}, place=1) == alone
    assert draws({"top_k": 2, "logprobs": 3}, place=1) == alone


def test_a_discarded_row_draws_nothing() -> None:
    metadata = make_metadata({"seed": 11}, {})
    logits = torch.tensor([LOGITS, LOGITS])
    sampler = Sampler(seed=0, device=CPU)
    for _ in range(5):
        sampler.forward(logits, metadata, discarded_rows={0})
    first = sampler.forward(logits, metadata).sampled_token_ids[0]
    assert first == Sampler(seed=3, device=CPU).forward(logits, make_metadata({"seed": 11}, {})).sampled_token_ids[0]


def test_rows_without_a_seed_depend_on_the_engine_s_seed() -> None:
    logits = torch.tensor([LOGITS] * 50)
    drawn = [
        Sampler(seed, CPU).forward(logits, make_metadata(*[{}] * 50)).sampled_token_ids.tolist() for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_greedy_rows_are_greedy_beside_random_ones() -> None:
    metadata = make_metadata({"temperature": 0}, {"temperature": 1.5}, {"temperature": 0, "top_k": 2})
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(20):
        sampled = Sampler(0, CPU).forward(logits, metadata).sampled_token_ids
        assert sampled[0] == logits[0].argmax() and sampled[2] == logits[2].argmax()


# ---------------------------------------------------------------------- what goes in stays as it is

EVERYTHING = {
    "temperature": 0.7,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.01,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.2,
    "logit_bias": {3: 1.5},
    "allowed_token_ids": [0, 1, 2, 3, 4, 7],
    "min_tokens": 2,
    "logprobs": 2,
    "output": [1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {},
        {"top_p": 0.5},
        {"min_p": 0.2},
        {"logit_bias": {3: 1.5}},
        {"min_tokens": 2},
        {"allowed_token_ids": [1]},
        {"presence_penalty": 1.0, "output": [1]},
        {"repetition_penalty": 1.5},
        EVERYTHING,
    ],
    ids=lambda params: "everything" if params is EVERYTHING else str(params),
)
def test_logits_are_not_changed(dtype: torch.dtype, params: dict[str, Any]) -> None:
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = logits.clone()
    metadata = make_metadata(params, {}, {"temperature": 0})
    metadata.bad_words_token_ids = {1: [[2]]} if params is EVERYTHING else {}
    output = Sampler(0, CPU).forward(logits, metadata)
    assert torch.equal(logits, before)
    assert output.sampled_token_ids.shape == (3,)


def test_bfloat16_logits_are_sampled_as_float32() -> None:
    logits = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    metadata = make_metadata(*[{"top_p": 0.9, "logprobs": 3}] * 64)
    low, full = (Sampler(4, CPU).forward(given, metadata) for given in (logits, logits.float()))
    assert torch.equal(low.sampled_token_ids, full.sampled_token_ids)
    assert low.logprobs_tensors.logprobs.dtype == torch.float32
    assert torch.equal(low.logprobs_tensors.logprobs, full.logprobs_tensors.logprobs)


# ---------------------------------------------------------------------- the single steps


def processed_of(params: dict[str, Any], logits: list[float] | None = None, prompt: list[int] | None = None) -> list:
    """The processed logits of a row at temperature 1, beside a row that has nothing of all this."""
    metadata = make_metadata({"temperature": 1.0, **params}, {}, prompts=[prompt or [0], [0]])
    rows = torch.tensor([logits or LOGITS, LOGITS])
    _, processed = process(rows, metadata)
    assert processed[1].tolist() == pytest.approx(LOGITS), "the neighbour was changed"
    return processed[0].tolist()


def test_penalties() -> None:
    given = {"output": [0, 0, 3], "frequency_penalty": 0.5, "presence_penalty": 0.25}
    assert processed_of(given) == pytest.approx([2 - 1.25, 1.5, 1.5, -0.75, -1, -3, 0.5, -0.5])
    repeated = processed_of({"output": [0], "repetition_penalty": 2.0}, prompt=[4, 5])
    assert repeated == pytest.approx([1, 1.5, 1.5, 0, -2, -6, 0.5, -0.5])
    gained = processed_of({"output": [6], "presence_penalty": -2.0, "frequency_penalty": -2.0})
    assert gained[6] == pytest.approx(4.5)


def test_masks() -> None:
    inf = math.inf
    assert processed_of({"allowed_token_ids": [1, 5]}) == [-inf, 1.5, -inf, -inf, -inf, -3, -inf, -inf]
    assert processed_of({"logit_bias": {0: -inf, 5: 10.0}}) == [-inf, 1.5, 1.5, 0, -1, 7, 0.5, -0.5]
    # the end of text is 7, and is masked though it is ignored
    for ignore_eos in (False, True):
        fields = {"min_tokens": 2, "stop_token_ids": [2], "ignore_eos": ignore_eos}
        assert processed_of(fields | {"output": [1]}) == [2, 1.5, -inf, 0, -1, -3, 0.5, -inf]
        assert processed_of(fields | {"output": [1, 1]}) == LOGITS


def test_bad_words() -> None:
    def masked(output: list[int], bad: list[list[int]]) -> list[int]:
        metadata = make_metadata({"output": output}, {})
        metadata.bad_words_token_ids = {0: bad}
        logits = torch.tensor([LOGITS, LOGITS])
        processed = process(logits, metadata)[1]
        assert torch.equal(logits, torch.tensor([LOGITS, LOGITS]))
        assert not processed[1].isinf().any()
        return [token for token in range(8) if processed[0, token].isinf()]

    assert masked([], [[3]]) == [3]
    assert masked([], [[1, 3]]) == []
    assert masked([1], [[1, 3]]) == [3]
    assert masked([1, 2], [[1, 3]]) == []
    assert masked([5, 1, 2], [[1, 2, 4], [2, 6], [0]]) == [0, 4, 6]
    assert masked([2], [[1, 2, 4]]) == []


def test_a_row_without_any_token_left_does_not_disturb_its_neighbours() -> None:
    hopeless = {"allowed_token_ids": [3], "logit_bias": {3: -math.inf}}
    metadata = make_metadata(hopeless, {"seed": 4}, {"temperature": 0})
    sampled = Sampler(0, CPU).forward(torch.tensor([LOGITS] * 3), metadata).sampled_token_ids
    alone = Sampler(0, CPU).forward(torch.tensor([LOGITS]), make_metadata({"seed": 4})).sampled_token_ids
    assert sampled[1] == alone[0] and sampled[2] == 0


def test_the_greatest_bias_and_penalty_stay_finite() -> None:
    """At the limits that SamplingParams sets, with the lowest temperature."""
    greatest = {"temperature": 0.01, "logit_bias": {5: 1e10}, "repetition_penalty": 1e-10, "output": [5]}
    metadata = make_metadata(greatest, {**greatest, "top_p": 0.5, "top_k": 2, "min_p": 0.1})
    sampled = Sampler(0, CPU).forward(torch.tensor([LOGITS, LOGITS]), metadata).sampled_token_ids
    assert sampled.tolist() == [5, 5]


# ---------------------------------------------------------------------- logprobs


def test_logprobs_are_of_the_raw_logits() -> None:
    metadata = make_metadata(EVERYTHING | {"logprobs": 3, "temperature": 0.1})
    output = Sampler(0, CPU).forward(torch.tensor([LOGITS]), metadata)
    raw = torch.tensor(LOGITS).log_softmax(dim=-1)
    ids = output.logprobs_tensors.logprob_token_ids[0].tolist()
    assert ids[0] == output.sampled_token_ids[0] and ids[1] == 0 and sorted(ids[2:]) == [1, 2]
    assert output.logprobs_tensors.logprobs[0].tolist() == pytest.approx([float(raw[token]) for token in ids])


def test_ranks_count_ties() -> None:
    logprobs = torch.tensor([LOGITS] * 4).log_softmax(dim=-1)
    gathered = gather_logprobs(logprobs, 0, torch.tensor([0, 1, 2, 5]))
    assert gathered.selected_token_ranks.tolist() == [1, 3, 3, 8]
    assert gathered.logprob_token_ids.shape == (4, 1)


def test_the_widest_row_decides_how_many_logprobs_there_are() -> None:
    metadata = make_metadata({"logprobs": 1}, {"logprobs": -1}, {"logprobs": None})
    output = Sampler(0, CPU).forward(torch.tensor([LOGITS] * 3), metadata)
    assert output.logprobs_tensors.logprobs.shape == (3, 9)
    assert Sampler(0, CPU).forward(torch.tensor([LOGITS]), make_metadata({})).logprobs_tensors is None


# ---------------------------------------------------------------------- rows without a seed, on a CPU


def test_sums_of_blocks_draw_what_one_long_sum_would_draw():
    probs = torch.randn(40, 5000).softmax(dim=-1)  # 5000 is no multiple of the block
    drawn = sample_from_sums(probs, torch.Generator().manual_seed(3))
    sums = probs.double().cumsum(dim=-1)
    threshold = torch.rand(40, 1, generator=torch.Generator().manual_seed(3)) * sums[:, -1:]
    assert drawn.tolist() == torch.searchsorted(sums, threshold)[:, 0].tolist()


@given(st.sets(st.integers(0, 999), min_size=1, max_size=6), st.integers(0, 2**31))
def test_sums_of_blocks_never_draw_a_forbidden_token(allowed: set[int], seed: int):
    logits = torch.full((64, 1000), float("-inf"))
    logits[:, sorted(allowed)] = 0.0
    drawn = sample_from_sums(logits.softmax(dim=-1), torch.Generator().manual_seed(seed))
    assert set(drawn.tolist()) <= allowed


def test_sums_of_blocks_draw_in_proportion():
    probs = torch.zeros(1, 700)
    probs[0, [3, 255, 256, 699]] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    drawn = sample_from_sums(probs.repeat(20_000, 1), torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=700) / 20_000
    assert torch.allclose(share, probs[0], atol=0.015)  # four standard deviations
