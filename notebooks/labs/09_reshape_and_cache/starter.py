"""Lab 09 · reshape_and_cache in Triton

Say which program writes which element, and write a kernel whose stores hit these and no others.

    9.1  every token to its slot (20 points)
    9.2  odd sizes, strides, layouts (25 points)
    9.3  what is not a token (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 09
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.launch import Launch, check_cache, check_heads, launch
from minivllm_kernels.tuning import WriteTuning, tuning_for


@triton.jit
def reshape_and_cache_kernel(
    key,  # [T', H, D], a token's H * D numbers lie side by side
    value,  # the same, with a stride of its own
    k_cache,  # [blocks, BLOCK_SIZE, H, D]
    v_cache,
    slot_mapping,  # int64[T]
    key_stride,  # elements from token to token
    value_stride,
    block_stride,  # elements from block to block, in both caches
    page_stride,  # elements from token to token within a block
    HD: tl.constexpr,  # H * D
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # numbers that a program copies, a power of two
):
    """Program (t, i) copies numbers i * TILE .. (i + 1) * TILE - 1 of token t.

    vLLM: v1/attention/ops/triton_reshape_and_cache_flash.py::reshape_and_cache_kernel_flash (simplified: no FP8, one
    layout)
    """
    raise NotImplementedError("Lab 9.1: find the token's slot and copy its numbers of this tile")


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    tuning: WriteTuning | None = None,
    launch: Launch = launch,
) -> None:
    """Write key and value [T', H, D] to the slots int64[T], T <= T', of caches [blocks, block_size, H, D], in place.

    key and value may be slices of a larger tensor and differ in stride; the caches may be slices of one tensor. A slot
    of -1 is skipped. Raises ValueError for layouts that the kernel can't address.

    vLLM: v1/attention/ops/triton_reshape_and_cache_flash.py::triton_reshape_and_cache_flash
    """
    raise NotImplementedError("Lab 9.1: choose a grid and launch the kernel")
