"""The tables know every shape, and nothing in a launch that changes from step to step makes Triton compile again."""

import os
import subprocess
import sys

import pytest

from minivllm_kernels.cases import HEAD_SIZES
from minivllm_kernels.tuning import TUNINGS


@pytest.mark.parametrize("target", TUNINGS)
@pytest.mark.parametrize("element_size", [2, 4])
def test_every_head_size_has_its_sizes(target: str, element_size: int) -> None:
    for head_size in HEAD_SIZES:
        for choose in (TUNINGS[target].prefill, TUNINGS[target].decode, TUNINGS[target].split):
            choice = choose(head_size, element_size)
            for number in (choice.tile, choice.block_m, choice.num_warps):
                assert number & (number - 1) == 0
            assert choice.tile >= 16, "a product needs 16 keys"
    with pytest.raises(ValueError, match="head_size=512 is larger than 256"):
        TUNINGS[target].prefill(512, element_size)


def test_the_interpreter_has_vllms_sizes() -> None:
    """BLOCK_M 16, tiles of 32 keys, in the split form of 16: v1/attention/ops/triton_unified_attention.py."""
    tuning = TUNINGS["interpreter"]
    assert (tuning.prefill(64, 4).block_m, tuning.prefill(64, 4).tile) == (16, 32)
    assert tuning.split(64, 4).tile == 16
    assert not tuning.prefill(64, 4).longest_first


# In a process where kernels are compiled: what Triton would key its cache with, for launches of different steps.
CACHE_KEYS = """
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.reshape_and_cache import reshape_and_cache

backend = make_backend(GPUTarget("cuda", 90, 32))
keys, launches = {}, 0

def note(kernel, grid, **arguments):
    global launches
    launches += 1
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    _, specialization, options = binder(**arguments)
    keys.setdefault(kernel.__name__, set()).add(repr((specialization, sorted(options.items()))))

cache = torch.zeros(600, 2, 16, 3, 64)  # the engine's: allocated once
table = torch.zeros(64, 32, dtype=torch.int32)
for rows in (1, 2, 3, 16, 17, 33, 64):
    for tokens in (rows, rows + 1, 80, 512):
        query, key, value = torch.zeros(tokens, 9, 64), torch.zeros(tokens, 3, 64), torch.zeros(tokens, 3, 64)
        starts, lens = torch.zeros(rows + 1, dtype=torch.int32), torch.zeros(rows, dtype=torch.int32)
        caches = cache.unbind(1)
        reshape_and_cache(key, value, *caches, torch.zeros(tokens, dtype=torch.int64), launch=note)
        paged_attention(query, *caches, starts, lens, table[:rows], 0.125, launch=note)
        decode = (query[:rows], *caches, table[:rows], lens, 0.125, query[:rows])
        paged_decode(*decode, launch=note)
        paged_decode_split(*decode, 16, launch=note)
print(launches, *(f"{name}={len(found)}" for name, found in sorted(keys.items())))
"""


def test_no_step_compiles_anew() -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run([sys.executable, "-c", CACHE_KEYS], env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [
        "140",
        "paged_attention_kernel=1",
        "paged_decode_kernel=1",
        "paged_decode_segments_kernel=1",
        "reduce_segments_kernel=1",
        "reshape_and_cache_kernel=1",
    ]
