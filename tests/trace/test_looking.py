"""Looking changes nothing: the same tokens with and without a trace, at every detail, on every backend and dtype."""

from pathlib import Path

import pytest
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.config import TraceWatch

STARTS = ["Once upon a time", "The capital of France is", "In 1905,", "def add(a, b):", "My favourite food"]
STARTS += ["Dear Sir,", "Water boils at", "The quick brown fox"]
PROMPTS = [f"{lead}{start}" for start in STARTS for lead in ("", "Hello. ", "He said: ", "1. ", "Yes! ")]
EVERYTHING = TraceWatch(layers=(0, 1), positions=(0, 1, 5), kv_heads=(0,), early_layers=(0, 1), weights_on=(0, 3))


def tokens(model: str | None, detail: int | None, folder: Path, prompts: list, max_tokens: int, **settings) -> list:
    """Token ids and logprobs of every answer. detail: None: no trace."""
    if detail is not None:
        settings |= {"trace": str(folder / f"{detail}.jsonl"), "trace_detail": detail, "trace_watch": EVERYTHING}
    params = [
        SamplingParams(temperature=0.7 * (number % 4 == 3), seed=number, max_tokens=max_tokens, logprobs=1)
        for number in range(len(prompts))
    ]
    with LLM(model, multiprocess=False, **settings) as llm:
        answers = [output.outputs[0] for output in llm.generate(prompts, params, use_tqdm=False)]
    return [(answer.token_ids, answer.cumulative_logprob) for answer in answers]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_forty_prompts_of_the_default_model(backend: str, dtype: str, default_model_path: Path, tmp_path: Path) -> None:
    assert len(PROMPTS) == 40
    settings = {"attention_backend": backend, "dtype": dtype, "device": "cpu", "max_num_batched_tokens": 128}
    expected = tokens(None, None, tmp_path, PROMPTS, 6, **settings)
    assert tokens(None, 2, tmp_path, PROMPTS, 6, **settings) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("backend", ["fast", "torch", "reference", "triton"])
def test_every_backend(backend: str, dtype: str, tmp_path: Path) -> None:
    size = 2 if backend == "triton" else 6  # its interpreter is slow
    prompts = [{"prompt_token_ids": [5 + 7 * i % 300, *range(9, 9 + 3 * i)]} for i in range(size)]
    model = str(tiny_model(dtype=dtype))
    settings = {"attention_backend": backend, "device": "cpu", "block_size": 16, "num_gpu_blocks_override": 40}
    expected = tokens(model, None, tmp_path, prompts, size, **settings)
    for detail in (0, 1, 2):
        assert tokens(model, detail, tmp_path, prompts, size, **settings) == expected
