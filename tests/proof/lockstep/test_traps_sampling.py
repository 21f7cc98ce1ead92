"""Traps 44 to 50 of docs/traps.md: the sampler, and what is said about its choices."""

from collections.abc import Iterator

import pytest
import torch
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.errors import InputError
from minivllm.sample.sampler import gather_logprobs, process, random_sample
from minivllm.sampling_params import SamplingType
from minivllm.worker.input_batch import CachedRequestState, make_sampling_metadata

V = 8


def rows(*params: SamplingParams, prompt: list[int] = (), output: list[int] = ()) -> list[CachedRequestState]:
    return [CachedRequestState(f"r{i}", list(prompt), p, [], 0, None, list(output)) for i, p in enumerate(params)]


def processed(states: list[CachedRequestState], *logits: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    device = torch.device("cpu")
    return process(torch.tensor(logits), make_sampling_metadata(states, len(logits[0]), device))


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(tiny_model()), dtype="float32", multiprocess=False, device="cpu") as llm:
        yield llm


def test_logprobs_are_those_of_the_raw_logits(llm: LLM) -> None:
    def logprobs_of(**changes: object) -> dict[int, float]:
        params = SamplingParams(max_tokens=1, logprobs=5, seed=1, **changes)
        (output,) = llm.generate([[7, 8, 9]], params, use_tqdm=False)
        return {token: lp.logprob for token, lp in output.outputs[0].logprobs[0].items()}

    plain = logprobs_of(temperature=0)
    favourite = next(iter(plain))
    for changed in (
        logprobs_of(temperature=2.0, top_k=1),
        logprobs_of(temperature=0, repetition_penalty=1.01),
        logprobs_of(temperature=0, logit_bias={favourite: 5.0}),
    ):
        assert changed == pytest.approx(plain)


def test_a_rank_counts_ties() -> None:
    logprobs = torch.tensor([[3.0, 5.0, 3.0, 1.0]]).log_softmax(-1)
    ranks = [int(gather_logprobs(logprobs, 1, torch.tensor([token])).selected_token_ranks) for token in range(4)]
    assert ranks == [3, 1, 3, 4]


def test_a_greedy_row_beside_random_ones_is_chosen_before_the_temperature() -> None:
    states = rows(SamplingParams(temperature=0), SamplingParams(temperature=0.5))
    logits = [0.0, 3.0, 1.0, 2.0]
    greedy, after = processed(states, logits, logits)
    assert greedy.tolist() == [1, 1]
    assert after[0].tolist() == logits, "divided by 1, not by 0"
    assert after[1].tolist() == [0.0, 6.0, 2.0, 4.0]


def test_top_k_that_is_off_cuts_nothing_beside_a_row_that_cuts() -> None:
    for off in (0, -1, V, V + 100):
        states = rows(SamplingParams(top_k=off), SamplingParams(top_k=2))
        _, after = processed(states, *[[float(i) for i in range(V)]] * 2)
        assert after.isfinite().sum(dim=-1).tolist() == [V, 2]


def test_the_likeliest_token_stays_however_small_top_p_is() -> None:
    _, after = processed(rows(SamplingParams(top_p=1e-9)), [0.0, 3.0, 1.0])
    assert after[0].isfinite().tolist() == [False, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_a_row_without_a_seed_draws_from_the_engine_beside_one_with_a_seed(seed: int) -> None:
    probs = torch.full((2, 500), 1 / 500)
    engines = torch.empty(2, 500).exponential_(generator=torch.Generator().manual_seed(seed))
    own = torch.empty(500).exponential_(generator=torch.Generator().manual_seed(7))
    sampled = random_sample(probs, {0: torch.Generator().manual_seed(7)}, torch.Generator().manual_seed(seed))
    assert sampled.tolist() == [int(own.argmin()), int(engines[1].argmin())]


def test_each_request_gets_as_many_logprobs_as_it_asked_for(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=2, logprobs=wanted) for wanted in (None, 0, 2, 7)]
    outputs = llm.generate([[7, 8, 9]] * 4, params, use_tqdm=False)
    counts = [[len(place) for place in output.outputs[0].logprobs or ()] for output in outputs]
    assert counts == [[], [1, 1], [2, 2], [7, 7]]  # the greedy choice is one of the likeliest


def test_repetition_looks_at_prompt_and_output_and_the_others_at_the_output_alone() -> None:
    ones = [1.0] * V
    for changes, expected in (
        ({"repetition_penalty": 2.0}, {3: 0.5, 4: 0.5}),
        ({"presence_penalty": 1.0}, {4: 0.0}),
        ({"frequency_penalty": 0.25}, {4: 0.5}),
    ):
        states = rows(SamplingParams(temperature=0, **changes), prompt=[3, 3], output=[4, 4])
        _, after = processed(states, ones)
        assert after[0].tolist() == [expected.get(token, 1.0) for token in range(V)]


def test_a_repeated_token_with_a_negative_logit_becomes_less_likely() -> None:
    states = rows(SamplingParams(temperature=0, repetition_penalty=2.0), prompt=[0, 1])
    _, after = processed(states, [-1.0, 1.0, 0.0])
    assert after[0].tolist() == [-2.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("asked", "used", "kind"),
    [
        (0.0, 0.0, SamplingType.GREEDY),
        (1e-6, 0.01, SamplingType.RANDOM),
        (0.005, 0.01, SamplingType.RANDOM),
        (0.01, 0.01, SamplingType.RANDOM),
        (0.02, 0.02, SamplingType.RANDOM),
    ],
)
def test_a_temperature_near_zero_is_raised(asked: float, used: float, kind: SamplingType) -> None:
    params = SamplingParams(temperature=asked)
    assert (params.temperature, params.sampling_type) == (used, kind)


def test_a_seed_holds_in_any_company(llm: LLM) -> None:
    seeded = SamplingParams(temperature=1.0, seed=3, max_tokens=10)
    unseeded = SamplingParams(temperature=1.0, max_tokens=14)
    greedy = SamplingParams(temperature=0, max_tokens=5)
    prompt = [20, 21, 22]
    (alone,) = llm.generate([prompt], seeded, use_tqdm=False)
    _, company, _ = llm.generate([[5] * 9, prompt, [6]], [unseeded, seeded, greedy], use_tqdm=False)
    assert company.outputs[0].token_ids == alone.outputs[0].token_ids


def test_the_children_of_a_request_are_requests_of_their_own(llm: LLM) -> None:
    prompt = list(range(20, 60))
    (parent,) = llm.generate([prompt], SamplingParams(n=3, temperature=2.0, seed=40, max_tokens=9), use_tqdm=False)
    params = [SamplingParams(temperature=2.0, seed=40 + index, max_tokens=9) for index in range(3)]
    alone = [llm.generate([prompt], one, use_tqdm=False)[0] for one in params]
    assert [child.token_ids for child in parent.outputs] == [one.outputs[0].token_ids for one in alone]
    assert len({tuple(child.token_ids) for child in parent.outputs}) == 3


def test_several_greedy_answers_are_refused() -> None:
    with pytest.raises(InputError, match="greedy"):
        SamplingParams(n=2, temperature=0)
