"""The same tiles as a Triton kernel: the outer loop of tiled.py has become the grid, the inner loop is the kernel.

Plain tensors, no cache and no pages: the serving kernel is ../paged_attention.py.
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.launch import Launch, launch, padded_head_size
from minivllm_kernels.tile_ops import LOG2E, dot
from minivllm_kernels.tuning import ReadTuning, tuning_for


@triton.jit(do_not_specialize=["num_tokens"])
def flash_attention_kernel(
    q,  # [H, N, D], contiguous; k, v and out likewise
    k,
    v,
    out,
    scale,
    num_tokens,
    D: tl.constexpr,
    D2: tl.constexpr,  # D to the next power of two
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program (b, h) computes query tokens b * BLOCK_M .. (b + 1) * BLOCK_M - 1 of head h.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (without pages and grouped heads)
    """
    first_query = tl.program_id(0) * BLOCK_M
    head_offset = tl.program_id(1).to(tl.int64) * num_tokens * D
    dims = tl.arange(0, D2)
    query_places = first_query + tl.arange(0, BLOCK_M)
    query_numbers = head_offset + query_places[:, None] * D + dims[None, :]
    query_mask = (query_places < num_tokens)[:, None] & (dims < D)[None, :]
    query = tl.load(q + query_numbers, mask=query_mask, other=0.0)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D2], tl.float32)
    scale *= LOG2E
    for first_key in range(0, tl.minimum(first_query + BLOCK_M, num_tokens), TILE):
        places = first_key + tl.arange(0, TILE)
        numbers = head_offset + places[:, None] * D + dims[None, :]
        mask = (places < num_tokens)[:, None] & (dims < D)[None, :]
        keys = tl.load(k + numbers, mask=mask, other=0.0)
        scores = dot(query, tl.trans(keys))
        seen = places[None, :] <= query_places[:, None]
        scores = tl.where(seen, scores, float("-inf"))

        new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
        weights = tl.math.exp2(scores * scale - new_max[:, None])
        correction = tl.math.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, 1)
        values = tl.load(v + numbers, mask=mask, other=0.0)
        acc = acc * correction[:, None] + dot(weights.to(values.dtype), values)
        row_max = new_max
    tl.store(out + query_numbers, acc / row_sum[:, None], mask=query_mask)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    tuning: ReadTuning | None = None,
    launch: Launch = launch,
) -> torch.Tensor:
    """Causal attention: contiguous q, k, v [H, N, D] -> [H, N, D].

    vLLM: v1/attention/backends/flash_attn.py::FlashAttentionImpl.forward (role)
    """
    num_heads, num_tokens, head_size = q.shape
    tuning = tuning or tuning_for(q.device).prefill(head_size, q.element_size())
    out = torch.empty_like(q)
    launch(
        flash_attention_kernel,
        (triton.cdiv(num_tokens, tuning.block_m), num_heads),
        q=q,
        k=k,
        v=v,
        out=out,
        scale=head_size**-0.5,
        num_tokens=num_tokens,
        D=head_size,
        D2=padded_head_size(head_size),
        BLOCK_M=tuning.block_m,
        TILE=tuning.tile,
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )
    return out
