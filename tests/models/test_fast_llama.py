"""FastLlama gives what LlamaForCausalLM gives: for every family, in both number types, and through the whole engine."""

from pathlib import Path
from typing import Any

import pytest
import torch
from models.test_llama import CASES, tokens_of
from paged_driver import PagedDriver
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.attention.selector import get_attn_backend
from minivllm.boundary import boundaries
from minivllm.models.fast_llama import FastLlama, pack
from minivllm.models.llama import LlamaForCausalLM
from minivllm.models.model_config import load_model_config
from minivllm.trace import load


def fast_driver(folder: Path, block_size: int, dtype: torch.dtype = torch.float32) -> PagedDriver:
    config = load_model_config(folder)
    backend = get_attn_backend(
        "fast",
        "cpu",
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        block_size=block_size,
        dtype=dtype,
    )
    driver = PagedDriver(folder, block_size, dtype, backend)
    driver.model = FastLlama(driver.model, backend.kernels, config.max_model_len)
    return driver


STEPS = [
    {"chunks": tokens_of(2, 70)[:20]},
    {"whole": tokens_of(1, 45), "chunks": tokens_of(2, 70)[20:53]},
    {"short": tokens_of(3, 5), "chunks": tokens_of(2, 70)[53:], "whole": [7]},
    {"short": [8], "chunks": [9], "whole": [10]},
]


@pytest.mark.parametrize(("family", "block_size", "settings"), CASES)
def test_logits_are_those_of_the_plain_model(family: str, block_size: int, settings: dict[str, Any]) -> None:
    folder = tiny_model(family, **settings)
    fast, plain = fast_driver(folder, block_size), PagedDriver(folder, block_size)
    for work in STEPS:
        expected = plain.step(work)
        for name, logits in fast.step(work).items():
            torch.testing.assert_close(logits, expected[name], atol=3e-4, rtol=0)  # of about 40


def test_bfloat16_is_as_close_to_float32_as_the_plain_model_is() -> None:
    folder = tiny_model("qwen3", dtype="bfloat16")
    exact, plain = PagedDriver(folder, 16), PagedDriver(folder, 16, torch.bfloat16)
    fast = fast_driver(folder, 16, torch.bfloat16)
    for work in STEPS:
        expected, rounded = exact.step(work), plain.step(work)
        for name, logits in fast.step(work).items():
            assert logits.dtype == torch.bfloat16
            theirs = (rounded[name] - expected[name]).norm()
            assert (logits - expected[name]).norm() < 1.5 * theirs


def test_packing_is_left_out_where_it_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(8, 16)
    assert pack(weight) is None, "float32 keeps MKL's product"
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert pack(weight.bfloat16()) is None


def test_its_boundaries_are_those_of_the_plain_model() -> None:
    assert boundaries(FastLlama) == boundaries(LlamaForCausalLM)


PROMPTS = [tokens_of(seed, 5 + 9 * seed) for seed in range(6)]
PARAMS = [
    SamplingParams(temperature=0.8 * (row % 2), seed=row, logprobs=2, prompt_logprobs=1, max_tokens=20, ignore_eos=True)
    for row in range(6)
]


def answers(folder: Path, **settings: Any) -> list[Any]:
    settings = {"dtype": "float32", "multiprocess": False, "max_num_batched_tokens": 32, "max_num_seqs": 4, **settings}
    with LLM(str(folder), **settings) as llm:
        return [output.outputs[0] for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]


def test_token_ids_are_those_of_the_plain_backend() -> None:
    folder = tiny_model("llama", heads=8, kv_heads=2, tie=False)
    fast, plain = (answers(folder, attention_backend=name) for name in ("fast", "torch"))
    assert [one.token_ids for one in fast] == [one.token_ids for one in plain]
    for one, other in zip(fast, plain, strict=True):
        assert one.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-3)


@pytest.mark.parametrize("detail", [0, 1, 2])
def test_a_trace_tells_the_same_story(tmp_path: Path, detail: int) -> None:
    stories = []
    for name in ("fast", "torch"):
        path = tmp_path / f"{name}.jsonl"
        answers(tiny_model(), attention_backend=name, trace=str(path), trace_detail=detail, trace_clock="logical")
        trace = load(path)
        attention = [event for event in trace.events if event.kind == "attention"]
        assert {event.backend for event in attention} == {name}
        shapes = [{key: info.shape for key, info in event.tensors.items()} for event in attention]
        stories.append(([event.kind for event in trace.events], shapes, [event.query_shape for event in attention]))
    assert stories[0] == stories[1]
