"""Write K and V of the flat batch into their slots of the paged cache. One program writes one token.

Slot s is token place s % block_size of block s // block_size. A negative slot means: not a token.
Must not know: requests, or who chose the slots.
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
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    if slot < 0:
        return
    numbers = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = numbers < HD
    # 64 bits: a cache may have more than 2^31 numbers
    line = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * page_stride
    k = tl.load(key + token * key_stride + numbers, mask=mask)
    tl.store(k_cache + line + numbers, k, mask=mask)
    v = tl.load(value + token * value_stride + numbers, mask=mask)
    tl.store(v_cache + line + numbers, v, mask=mask)


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
    num_tokens = slot_mapping.shape[0]
    if num_tokens == 0:
        return
    num_heads, head_size = key.shape[1:]
    check_heads("key", key)
    check_heads("value", value)
    check_cache(k_cache, v_cache, num_heads, head_size)
    check_heads("k_cache", k_cache[0])
    numbers = num_heads * head_size
    tuning = tuning or tuning_for(key.device).write
    tile = min(tuning.tile, triton.next_power_of_2(numbers))
    launch(
        reshape_and_cache_kernel,
        (num_tokens, triton.cdiv(numbers, tile)),
        key=key,
        value=value,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slot_mapping,
        key_stride=key.stride(0),
        value_stride=value.stride(0),
        block_stride=k_cache.stride(0),
        page_stride=k_cache.stride(1),
        HD=numbers,
        BLOCK_SIZE=k_cache.shape[1],
        TILE=tile,
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )
