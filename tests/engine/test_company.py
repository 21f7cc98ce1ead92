"""What one request gets doesn't depend on the others: on seats, chunks, hits, preemption, or on whoever was there."""

from collections.abc import Iterator
from typing import Any

import pytest
from engine.helpers import SETTINGS, is_idle, run
from tiny_models import VOCAB_SIZE

from minivllm import LLM, SamplingParams
from minivllm.errors import InputError

REGIMES = {
    "one seat": {"max_num_seqs": 1},
    "one token a step": {"max_num_seqs": 1, "max_num_batched_tokens": 1},
    "five tokens a step": {"max_num_seqs": 5, "max_num_batched_tokens": 5},
    "a long prompt in pieces of three": {"long_prefill_token_threshold": 3},
    "a pool for one": {"num_gpu_blocks_override": 25},
    "a pool for one, without reserve": {"num_gpu_blocks_override": 25, "scheduler_reserve_full_isl": False},
    "no prefix cache": {"enable_prefix_caching": False, "num_gpu_blocks_override": 30},
    "whole prompts only": {"enable_chunked_prefill": False, "max_num_batched_tokens": 96},
    "blocks of one token": {"block_size": 1, "num_gpu_blocks_override": 200},
    "one block a request": {"block_size": 96, "num_gpu_blocks_override": 4},
}


def prompt(number: int) -> list[int]:
    """Three families that share prefixes, of 1 to 40 tokens."""
    tokens = [3 + (place * (5 + number % 3)) % (VOCAB_SIZE - 3) for place in range(40)]
    return tokens[: 1 + (number * 7) % 40]


def params(number: int) -> SamplingParams:
    """Greedy, seeded and penalised ones, of 3 to 20 tokens."""
    kinds: tuple[dict[str, Any], ...] = (
        {"temperature": 0},
        {"seed": number, "temperature": 1.5, "top_k": 20, "top_p": 0.9},
        {"seed": number, "temperature": 0.8, "presence_penalty": 1.0, "repetition_penalty": 1.3, "min_p": 0.01},
        {"temperature": 0, "frequency_penalty": 0.7, "logit_bias": {9: 2.0}},
    )
    return SamplingParams(max_tokens=3 + (number * 5) % 18, ignore_eos=True, **kinds[number % 4])


NUM_REQUESTS = 24


@pytest.fixture(scope="module")
def alone(local_llm: LLM) -> list[list[int]]:
    """What each request gets when it is alone."""
    outputs = [run_one(local_llm, number) for number in range(NUM_REQUESTS)]
    assert all(local_llm.reset_prefix_cache() for _ in range(2))
    return outputs


def run_one(llm: LLM, number: int) -> list[int]:
    (output,) = llm.generate([prompt(number)], params(number), use_tqdm=False)
    return output.outputs[0].token_ids


def run_all(llm: LLM) -> list[Any]:
    numbers = range(NUM_REQUESTS)
    return llm.generate([prompt(n) for n in numbers], [params(n) for n in numbers], use_tqdm=False)


@pytest.mark.parametrize("regime", REGIMES)
def test_the_same_tokens_in_every_regime(regime: str, tiny_folder: str, alone: list[list[int]]) -> None:
    with LLM(tiny_folder, multiprocess=False, **SETTINGS | REGIMES[regime]) as llm:
        for _ in range(2):  # the second time with hits
            outputs = run_all(llm)
            assert [output.outputs[0].token_ids for output in outputs] == alone
        if regime == "a pool for one":
            assert sum(output.metrics.num_preemptions for output in outputs) > 0
        assert is_idle(llm)


def test_the_same_tokens_across_processes(remote_llm: LLM, alone: list[list[int]]) -> None:
    assert [output.outputs[0].token_ids for output in run_all(remote_llm)] == alone
    assert is_idle(remote_llm)


@pytest.fixture(scope="module")
def crowded(tiny_folder: str) -> Iterator[LLM]:
    with LLM(tiny_folder, multiprocess=False, **SETTINGS | {"max_num_seqs": 5, "max_num_batched_tokens": 5}) as llm:
        yield llm


def test_300_requests_on_five_seats(crowded: LLM) -> None:
    prompts = [[3 + number % 200, 3 + number // 200] for number in range(300)]
    outputs = run(crowded, prompts, temperature=0, max_tokens=3, ignore_eos=True)
    assert [output.prompt_token_ids for output in outputs] == prompts
    for number in (0, 1, 150, 299):
        (alone,) = run(crowded, [prompts[number]], temperature=0, max_tokens=3, ignore_eos=True)
        assert outputs[number].outputs[0].token_ids == alone.outputs[0].token_ids
    assert is_idle(crowded)


def test_100_answers_to_one_prompt(crowded: LLM) -> None:
    (output,) = run(crowded, [9, 8, 7], n=100, max_tokens=2, seed=5, temperature=3.0)
    assert [completion.index for completion in output.outputs] == list(range(100))
    assert len({completion.token_ids[0] for completion in output.outputs}) > 10


def test_a_request_without_any_token_is_refused_and_takes_nobody_along(llm: LLM) -> None:
    hopeless = SamplingParams(allowed_token_ids=[9], logit_bias={9: float("-inf")}, max_tokens=4)
    sane = SamplingParams(temperature=0, max_tokens=4)
    with pytest.raises(InputError, match="No token can be chosen"):
        llm.generate([[5, 6], [5, 6]], [sane, hopeless], use_tqdm=False)
    assert is_idle(llm)
    (output,) = llm.generate([[5, 6]], sane, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 4


def test_aborts_by_the_caller(llm: LLM) -> None:
    """By external and internal id, in every state; twice, and of nobody."""
    engine = llm.llm_engine
    given = engine.input_processor.render_cmpl([9] * 30)
    internal = [engine.add_request(str(name), given, SamplingParams(max_tokens=40, ignore_eos=True)) for name in "abc"]
    engine.abort_request(["a"])
    for _ in range(3):
        engine.step()
    engine.abort_request([internal[1], internal[1], "nobody"])
    engine.abort_request([internal[1]])
    left = []
    while engine.has_unfinished_requests():
        left += [output for output in engine.step() if output.finished]
    assert [output.request_id for output in left] == ["c"]
    assert len(left[0].outputs[0].token_ids) == 40
    assert is_idle(llm)
