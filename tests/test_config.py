"""EngineConfig: its defaults and limits, and what becomes of what is left open."""

import dataclasses
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.config import EngineConfig, cdiv
from minivllm.errors import InputError, UnknownNameError


def test_defaults() -> None:
    config = EngineConfig()
    assert (config.block_size, config.max_num_seqs, config.max_num_batched_tokens) == (16, None, None)
    assert config.enable_prefix_caching and config.enable_chunked_prefill
    assert (config.seed, config.gpu_memory_utilization, config.max_logprobs) == (0, 0.92, 20)


@pytest.mark.parametrize(
    ("settings", "max_model_len", "seats", "budget"),
    [
        ({}, 8192, 256, 2048),
        ({}, 100, 256, 2048),
        ({"max_num_batched_tokens": 64}, 8192, 64, 64),
        ({"max_num_batched_tokens": 1}, 8192, 1, 1),
        ({"max_num_seqs": 5}, 8192, 5, 2048),
        ({"enable_chunked_prefill": False}, 8192, 256, 8192),
        ({"enable_chunked_prefill": False}, 100, 256, 2048),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 100}, 100, 100, 100),
    ],
)
def test_resolved(settings: dict[str, Any], max_model_len: int, seats: int, budget: int) -> None:
    config = EngineConfig(**settings)
    resolved = config.resolved(max_model_len)
    assert (resolved.max_model_len, resolved.max_num_seqs, resolved.max_num_batched_tokens) == (
        max_model_len,
        seats,
        budget,
    )
    assert config == EngineConfig(**settings), "a config is never changed"


WRONG = {
    "block_size": [0, -1, 1.5, "16", None, True, 2**63],
    "max_model_len": [0, -1, 2.0],
    "max_num_seqs": [0, "2"],
    "max_num_batched_tokens": [0],
    "kv_cache_memory_bytes": [0, 1e9],
    "num_gpu_blocks_override": [0, 1],
    "long_prefill_token_threshold": [-1, None],
    "max_logprobs": [-2, None],
    "seed": [None, 0.5, 2**63, -(2**64)],
    "dtype": ["int8", "", None, ["auto"]],
    "device": ["tpu", 0],
    "attention_backend": ["flash"],
    "scheduling_policy": ["lifo"],
    "trace_clock": ["sundial"],
    "trace_detail": [3, -1, "0"],
    "gpu_memory_utilization": [0, -0.1, 1.01, math.nan, "0.9", True],
    "enable_prefix_caching": [1, None, "no"],
    "enable_chunked_prefill": [0],
    "enforce_eager": ["yes"],
    "scheduler_reserve_full_isl": [1],
    "skip_tokenizer_init": [1],
    "multiprocess": [2, "no"],
    "hash_seed": [5],
    "tokenizer": [5],
    "trace": [True],
    "parts": [None, {"scheduler": 3}, {3: "file.py:Scheduler"}, "file.py:Scheduler", ["scheduler"]],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_wrong_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig(**{field: value})
    assert f"{field}={value!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, ["max_num_batched_tokens=8", "max_num_seqs=9", "Raise"]),
        ({"num_gpu_blocks_override": 1}, ["at least 2", "null block"]),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig(**settings)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 3000}, ["max_num_batched_tokens=2048", "max_num_seqs=3000"]),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 99},
            ["max_num_batched_tokens=99", "max_model_len=100", "enable_chunked_prefill"],
        ),
        ({"long_prefill_token_threshold": 101}, ["long_prefill_token_threshold=101", "max_model_len=100", "0"]),
    ],
)
def test_what_does_not_go_with_the_model(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig(**settings).resolved(max_model_len=100)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(("name", "near"), [("block_sise", "block_size"), ("max_seqs", "max_num_seqs"), ("q", "seed")])
def test_unknown_setting(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=f"'{name}'.*{near}"):
        EngineConfig.from_kwargs(**{name: 1})


def test_paths_and_numbers_of_numpy_are_taken() -> None:
    config = EngineConfig.from_kwargs(
        tokenizer=pathlib.Path("folder"), block_size=np.int64(8), gpu_memory_utilization=np.float64(0.5)
    )
    assert config == EngineConfig(tokenizer="folder", block_size=8, gpu_memory_utilization=0.5)
    assert type(config.block_size) is int and type(config.gpu_memory_utilization) is float


def test_frozen() -> None:
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        EngineConfig().block_size = 8


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_cdiv(a: int, b: int) -> None:
    assert cdiv(a, b) == math.ceil(a / b)
