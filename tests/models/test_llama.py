"""The model gives the logits and the greedy tokens of transformers, however its tokens are cut into steps."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from paged_driver import PagedDriver
from tiny_models import VOCAB_SIZE, tiny_model
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from minivllm.attention.selector import get_attn_backend
from minivllm.boundary import boundaries
from minivllm.models.llama import LlamaForCausalLM, RMSNorm
from minivllm.models.loader import load_model
from minivllm.models.model_config import load_model_config

LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def longrope(head_size: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "short_factor": [1.0 + 0.1 * i for i in range(head_size // 2)],
        "long_factor": [4.0] * (head_size // 2),
        "original_max_position_embeddings": 128,
    }


# Each family, RoPE kind, number of heads, head size, block size, bias and kind of head, in pairs.
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("llama", 16, {}),
    ("llama", 1, {"heads": 8, "kv_heads": 1, "tie": False, "attention_bias": True, "mlp_bias": True}),
    ("llama", 2, {"heads": 4, "kv_heads": 4, "head_size": 32, "rope": LINEAR, "rms_norm_eps": 1e-2}),
    ("llama", 4, {"heads": 4, "kv_heads": 2, "head_size": 64, "rope": DYNAMIC, "tie": False}),
    ("llama", 8, {"heads": 8, "kv_heads": 1, "head_size": 128, "rope": YARN}),
    ("llama", 32, {"heads": 4, "kv_heads": 2, "head_size": 16, "rope": LLAMA3, "mlp_bias": True}),
    ("llama", 16, {"heads": 4, "kv_heads": 4, "head_size": 64, "rope": longrope(64), "tie": False}),
    ("mistral", 8, {"heads": 4, "kv_heads": 2, "head_size": 32, "tie": False, "sliding_window": None}),
    ("mistral", 4, {"heads": 4, "kv_heads": 4, "head_size": 128, "rope": YARN, "sliding_window": 4096}),
    ("qwen2", 32, {"heads": 8, "kv_heads": 1, "head_size": 64}),
    ("qwen2", 1, {"heads": 4, "kv_heads": 2, "head_size": 32, "tie": False, "rope": LLAMA3}),
    ("qwen3", 2, {"heads": 4, "kv_heads": 4, "head_size": 16, "tie": False}),
    ("qwen3", 16, {"heads": 4, "kv_heads": 2, "head_size": 128, "rope": YARN, "attention_bias": True}),
]


def tokens_of(seed: int, count: int) -> list[int]:
    return random.Random(seed).choices(range(3, VOCAB_SIZE), k=count)


class Reference:
    """transformers' own model."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> torch.Tensor:
        return self.model(torch.tensor([tokens])).logits[0]

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        for _ in range(count):
            tokens = [*tokens, int(self.logits(tokens)[-1].argmax())]
        return tokens[-count:]


@pytest.mark.parametrize(("family", "block_size", "settings"), CASES)
def test_logits_and_greedy_tokens_are_those_of_transformers(
    family: str, block_size: int, settings: dict[str, Any]
) -> None:
    folder = tiny_model(family, **settings)
    reference, driver = Reference(folder), PagedDriver(folder, block_size)
    prompts = {"whole": tokens_of(1, 45), "chunks": tokens_of(2, 70), "short": tokens_of(3, 5)}
    given = {name: [] for name in prompts}
    # the long prompt comes in three chunks; beside them a whole prompt, then decode rows of both lengths
    steps = [
        {"chunks": prompts["chunks"][:20]},
        {"whole": prompts["whole"], "chunks": prompts["chunks"][20:53]},
        {"short": prompts["short"], "chunks": prompts["chunks"][53:]},
    ]
    for work in steps:
        for name, logits in driver.step(work).items():
            given[name].append(logits)
    for name, prompt in prompts.items():
        torch.testing.assert_close(torch.cat(given[name]), reference.logits(prompt), atol=1e-4, rtol=0)

    chosen = {name: [int(given[name][-1][-1].argmax())] for name in prompts}
    for _ in range(9):
        logits = driver.step({name: tokens[-1:] for name, tokens in chosen.items()})
        for name in prompts:
            chosen[name].append(int(logits[name][-1].argmax()))
    assert chosen == {name: reference.greedy(prompt, 10) for name, prompt in prompts.items()}


def test_longrope_and_dynamic_agree_up_to_their_limit() -> None:
    for rope in (DYNAMIC, longrope(16)):
        folder = tiny_model("llama", rope=rope, max_position_embeddings=128 if rope is DYNAMIC else 512)
        limit = load_model_config(folder).max_model_len
        assert limit == 128
        tokens = tokens_of(4, limit)
        logits = PagedDriver(folder, 16).step({"a": tokens})["a"]
        torch.testing.assert_close(logits, Reference(folder).logits(tokens), atol=1e-4, rtol=0)


def test_bfloat16_is_close_to_transformers() -> None:
    folder = tiny_model("qwen3", dtype="bfloat16")
    tokens = tokens_of(5, 40)
    logits = PagedDriver(folder, 16, dtype=torch.bfloat16).step({"a": tokens})["a"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    assert logits.dtype == torch.bfloat16
    relative = (logits - expected).float().norm() / expected.float().norm()
    assert relative < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_rounds_as_transformers_does(dtype: torch.dtype) -> None:
    ours, theirs = RMSNorm(64, 1e-5).to(dtype), LlamaRMSNorm(64, 1e-5).to(dtype)
    x, weight = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    for norm in (ours, theirs):
        norm.weight = torch.nn.Parameter(weight[0])
    assert torch.equal(ours(x), theirs(x))


def test_rope_frequencies_stay_float32_in_a_bfloat16_model() -> None:
    folder = tiny_model("llama", dtype="bfloat16")
    model = PagedDriver(folder, 16, dtype=torch.bfloat16).model
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert not any(weight.is_meta or weight.requires_grad for weight in model.parameters())


def test_the_default_model_gives_the_tokens_of_transformers(default_model_path: Path) -> None:
    reference, driver = Reference(default_model_path), PagedDriver(default_model_path, 16)
    prompt = [504, 3575, 282, 4649, 314]  # "The capital of France is"
    logits = driver.step({"a": prompt})["a"]
    torch.testing.assert_close(logits, reference.logits(prompt), atol=1e-3, rtol=0)
    tokens = [int(logits[-1].argmax())]
    for _ in range(7):
        tokens.append(int(driver.step({"a": tokens[-1:]})["a"][-1].argmax()))
    assert tokens == reference.greedy(prompt, 8)


def test_weights_keep_their_names_of_the_checkpoint() -> None:
    folder = tiny_model("qwen2", tie=False)
    expected = {name for name, _ in AutoModelForCausalLM.from_pretrained(folder).named_parameters()}
    config = load_model_config(folder)
    backend = get_attn_backend("torch", "cpu", num_heads=4, num_kv_heads=2, head_size=16, block_size=16)
    assert set(load_model(config, torch.float32, "cpu", backend).state_dict()) == expected


def test_compute_logits_is_marked() -> None:
    assert boundaries(LlamaForCausalLM) == {"compute_logits": "compute_logits"}


def test_attention_scaling_is_honoured() -> None:
    config = load_model_config(tiny_model("llama", rope=YARN))
    backend = get_attn_backend("torch", "cpu", num_heads=4, num_kv_heads=2, head_size=16, block_size=16)
    model = load_model(config, torch.float32, "cpu", backend)
    cos, _ = model.model.rotary_emb(torch.tensor([0]), torch.float32)
    assert cos.max().item() == pytest.approx(0.1 * math.log(4.0) + 1.0)
