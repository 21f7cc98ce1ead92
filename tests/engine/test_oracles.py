"""The same tokens as transformers: the real model in every regime, and tiny models of every family.

float32 and greedy, so that equal means equal. transformers answers once a session, in groups of prompts of one length,
which need no padding.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.helpers import core_process, greedy, run
from tiny_models import VOCAB_SIZE, tiny_model

from minivllm import LLM, SamplingParams

TEXTS = [
    "The capital of France is Paris, and the capital of Germany is Berlin. The capital of Italy",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "Once upon a time there was a little fox who lived in a deep forest with her mother and",
    "1, 2, 3, 5, 8, 13, 21, 34, 55, 89 are the first numbers of a famous sequence: each",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "Water boils at 100 degrees Celsius at sea level. At the top of a mountain it boils at",
    "Le renard brun saute par-dessus le chien paresseux, et puis il rentre chez lui pour dormir",
    "A cache keeps what was computed before. When the same prefix comes again, the engine need not",
]
LENGTHS = (1, 7, 16, 17, 33)  # tokens of the prompts: around the edges of blocks
NUM_TOKENS = 16

Answers = list[tuple[list[int], list[int]]]  # (prompt, what transformers says)


def ask_transformers(model: Any, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
    """Greedy answers of exactly `num_tokens` tokens to prompts of equal length."""
    ids = torch.tensor(prompts)
    answers = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return answers[:, ids.shape[1] :].tolist()


# ---------------------------------------------------------------------- the real model


@pytest.fixture(scope="session")
def answers(default_model_path: Path) -> Answers:
    """40 prompts and their answers, all lengths mixed."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(default_model_path)
    model = AutoModelForCausalLM.from_pretrained(default_model_path, dtype=torch.float32)
    found: Answers = []
    for length in LENGTHS:
        prompts = [(tokenizer.encode(text) * 3)[:length] for text in TEXTS]
        prompts[0][0] += length  # also of the shortest no two are equal
        found += zip(prompts, ask_transformers(model, prompts, NUM_TOKENS), strict=True)
    return sorted(found, key=lambda pair: sum(pair[0]))  # as good as shuffled


def ask_ours(llm: LLM, answers: Answers) -> list[Any]:
    """All prompts in one batch; the answers must be those of transformers. Returns the outputs."""
    outputs = run(llm, [prompt for prompt, _ in answers], temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    for output, (prompt, answer) in zip(outputs, answers, strict=True):
        assert output.outputs[0].token_ids == answer, f"prompt {prompt}"
    return outputs


def real_model(**settings: Any) -> LLM:
    return LLM(**{"dtype": "float32", "max_model_len": 64, "num_gpu_blocks_override": 400} | settings)


def test_in_process_with_preemption_and_with_prefix_hits(answers: Answers) -> None:
    """A pool for six sequences or so. What is asked again is partly found in the cache."""
    with real_model(multiprocess=False, num_gpu_blocks_override=21) as llm:
        outputs = ask_ours(llm, answers)
        assert len(outputs) >= 30
        assert sum(output.metrics.num_preemptions for output in outputs) > 5
        last = [pair for pair in answers if len(pair[0]) >= 17][-4:]
        assert sum(output.num_cached_tokens for output in ask_ours(llm, last * 2)) >= 64


def test_in_process_in_chunks_of_16_tokens(answers: Answers) -> None:
    with real_model(multiprocess=False, max_num_batched_tokens=16) as llm:
        ask_ours(llm, answers[::2])


@pytest.fixture(scope="module")
def real_llm() -> Iterator[LLM]:
    with real_model(multiprocess=True) as llm:
        yield llm


def test_across_processes(real_llm: LLM, answers: Answers) -> None:
    assert core_process(real_llm).is_running()
    outputs = ask_ours(real_llm, answers)
    assert all(output.metrics.num_preemptions == 0 for output in outputs)


def test_the_default_prompt(real_llm: LLM) -> None:
    """What the first look at the project shows."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    (output,) = real_llm.chat(messages, SamplingParams(temperature=0, max_tokens=30), use_tqdm=False)
    assert output.outputs[0].text == "The capital of France is Paris."
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", None)


# ---------------------------------------------------------------------- tiny models of every family

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.1 * i for i in range(8)],
    "original_max_position_embeddings": 128,
    "factor": 4.0,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama untied": ("llama", {"tie": False}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama linear": ("llama", {"rope": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    "llama dynamic": ("llama", {"rope": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}),
    "llama yarn": ("llama", {"rope": YARN}),
    "llama llama3": ("llama", {"rope": LLAMA3}),
    "llama longrope": ("llama", {"rope": LONGROPE}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}
HEADS = ((4, 4), (4, 2), (8, 1))
HEAD_SIZES = (16, 32, 64, 128)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32)
KIND_CASES = [
    (kind, HEADS[index % 3], 16 if kind == "llama longrope" else HEAD_SIZES[index % 4], BLOCK_SIZES[index % 6])
    for index, kind in enumerate(KINDS)
]
SHAPE_CASES = [
    ("llama", heads, HEAD_SIZES[(row + column) % 4], block_size)
    for row, heads in enumerate(HEADS)
    for column, block_size in enumerate(BLOCK_SIZES)
]


@pytest.mark.parametrize(("kind", "heads", "head_size", "block_size"), KIND_CASES + SHAPE_CASES, ids=str)
def test_tiny_model(kind: str, heads: tuple[int, int], head_size: int, block_size: int) -> None:
    """In steps of 24 tokens, so that prompts are cut, and in a pool in which not all fit at once."""
    family, settings = KINDS[kind]
    folder = tiny_model(family, heads=heads[0], kv_heads=heads[1], head_size=head_size, **settings)
    prompts = [[3 + (place * step + step) % (VOCAB_SIZE - 3) for place in range(30)] for step in (7, 11, 13, 17, 19)]
    from transformers import AutoModelForCausalLM

    wanted = ask_transformers(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), prompts, 10)
    with LLM(
        folder,
        multiprocess=False,
        dtype="float32",
        block_size=block_size,
        max_model_len=64,
        num_gpu_blocks_override=max(130 // block_size, 64 // block_size + 1),
        max_num_batched_tokens=24,
    ) as llm:
        assert greedy(llm, prompts, 10, ignore_eos=True) == wanted
        assert greedy(llm, [prompts[0], prompts[0]], 10, ignore_eos=True) == [wanted[0]] * 2
