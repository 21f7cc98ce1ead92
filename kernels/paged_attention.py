"""Attention of a flat batch over the paged cache: prefill chunks and decodes, mixed as the scheduler likes.

The batch has no padding: sequence r owns tokens query_start_loc[r] .. query_start_loc[r + 1] - 1, the last of its
seq_lens[r] tokens. A program takes BLOCK_Q neighbouring tokens of one sequence with all query heads of one KV head, so
each key that it loads serves BLOCK_Q * G rows.
Must not know: requests, or why these tokens share a batch.

Sizes: T tokens, R sequences, Hq query heads, Hkv KV heads, G = Hq / Hkv, D head size, D2 the next power of two.
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.launch import Launch, check_cache, check_heads, launch, padded_head_size
from minivllm_kernels.tile_ops import attend
from minivllm_kernels.tuning import ReadTuning, tuning_for


@triton.jit
def find_sequence(query_start_loc, q_block, num_seqs, BLOCK_Q: tl.constexpr):
    """The sequence that owns block of tokens number q_block, by binary search.

    Sequence r gets query_len // BLOCK_Q + 1 numbers, from query_start_loc[r] // BLOCK_Q + r on; at times one too many.

    vLLM: v1/attention/ops/triton_attention_helpers.py::find_seq_idx
    """
    left = 0
    right = num_seqs
    while left < right:
        middle = (left + right) // 2
        if tl.load(query_start_loc + middle) // BLOCK_Q + middle <= q_block:
            left = middle + 1
        else:
            right = middle
    return left - 1


@triton.jit(do_not_specialize=["num_seqs", "table_stride"])  # they differ from batch to batch
def paged_attention_kernel(
    q,  # [T, Hq, D]
    k_cache,  # [blocks, BLOCK_SIZE, Hkv, D]
    v_cache,
    query_start_loc,  # int32[R + 1]
    seq_lens,  # int32[R]
    block_table,  # int32[R, W]
    out,  # [T, Hq, D]
    scale,
    num_seqs,
    q_stride,  # elements from token to token
    table_stride,
    block_stride,
    page_stride,
    head_stride,
    out_stride,
    G: tl.constexpr,
    D: tl.constexpr,
    D2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_Q: tl.constexpr,  # tokens of a program
    BLOCK_M: tl.constexpr,  # rows of a program: BLOCK_Q * G, and some to the next power of two that stay idle
    TILE: tl.constexpr,  # keys of a tile
    LONGEST_FIRST: tl.constexpr,
    SLIDING_WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
):
    """Program (b, h) attends with block of tokens b and the query heads of KV head h.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its 2D form; simplified: no FP8,
    sinks, ALiBi, biases or tensor descriptors)
    """
    q_block = tl.program_id(0)
    if LONGEST_FIRST:  # late tokens see more keys; the last programs to start should be short ones
        q_block = tl.num_programs(0) - 1 - q_block
    kv_head = tl.program_id(1)
    row = find_sequence(query_start_loc, q_block, num_seqs, BLOCK_Q)
    start = tl.load(query_start_loc + row)
    query_len = tl.load(query_start_loc + row + 1) - start
    first_query = (q_block - (start // BLOCK_Q + row)) * BLOCK_Q
    if first_query >= query_len:
        return
    seq_len = tl.load(seq_lens + row)
    context_len = seq_len - query_len  # tokens of earlier steps

    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D2)
    tokens = first_query + rows // G
    mask = ((rows < BLOCK_Q * G) & (tokens < query_len))[:, None] & (dims < D)[None, :]
    lines = (start + tokens).to(tl.int64)
    numbers = (kv_head * G + rows % G)[:, None] * D + dims[None, :]
    query = tl.load(q + lines[:, None] * q_stride + numbers, mask=mask, other=0.0)

    # Up to the first query's own place every row sees every key: those tiles need no mask.
    first_place = context_len + first_query
    num_keys = tl.minimum(first_place + BLOCK_Q, seq_len)
    last_tile = tl.cdiv(tl.maximum(num_keys, 0), TILE)
    first_tile = 0
    unmasked = tl.maximum(first_place + 1, 0) // TILE
    if SLIDING_WINDOW > 0:
        first_tile = tl.maximum(first_place + 1 - SLIDING_WINDOW, 0) // TILE
        unmasked = first_tile
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D2], tl.float32)
    k_head = k_cache + kv_head * head_stride
    v_head = v_cache + kv_head * head_stride
    table_row = block_table + row.to(tl.int64) * table_stride
    for MASKED in tl.static_range(0, 2):
        row_max, row_sum, acc = attend(
            query,
            context_len + tokens,
            k_head,
            v_head,
            table_row,
            row_max,
            row_sum,
            acc,
            unmasked if MASKED else first_tile,
            last_tile if MASKED else unmasked,
            num_keys,
            scale,
            block_stride,
            page_stride,
            D,
            D2,
            BLOCK_SIZE,
            TILE,
            MASKED == 1,
            SLIDING_WINDOW,
            SOFTCAP,
        )
    row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a sequence of length 0: 0 / 1
    tl.store(out + lines[:, None] * out_stride + numbers, acc / row_sum[:, None], mask=mask)


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    scale: float,
    *,
    sliding_window: int = 0,
    softcap: float = 0.0,
    out: torch.Tensor | None = None,
    tuning: ReadTuning | None = None,
    launch: Launch = launch,
) -> torch.Tensor:
    """Attend with q [T, Hq, D] to caches [blocks, block_size, Hkv, D]; gives [T, Hq, D].

    query_start_loc int32[R + 1], seq_lens int32[R] with the new tokens, block_table int32[R, W]. A row of length 0, and
    tokens behind the last row, give zeros; with `out` given, tokens behind the last row are left as they are.
    sliding_window: keys that a token sees, itself included; 0 means all. softcap > 0: scores are softcap * tanh(score /
    softcap). Raises ValueError for layouts that the kernel can't address.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention (2D)
    """
    num_tokens, num_heads, head_size = q.shape
    num_seqs, num_kv_heads = seq_lens.shape[0], k_cache.shape[2]
    if out is None:
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    if num_tokens == 0 or num_seqs == 0:
        return out
    check_cache(k_cache, v_cache, num_kv_heads, head_size)
    check_heads("q", q)
    check_heads("out", out)
    group = num_heads // num_kv_heads
    tuning = tuning or tuning_for(q.device).prefill(head_size, q.element_size())
    block_m = max(tuning.block_m, triton.next_power_of_2(group))
    block_q = block_m // group
    launch(
        paged_attention_kernel,
        # an upper bound of all blocks of tokens, found without looking at the lengths, which are on the device
        (num_tokens // block_q + num_seqs, num_kv_heads),
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_table=block_table,
        out=out,
        scale=scale,
        num_seqs=num_seqs,
        q_stride=q.stride(0),
        table_stride=block_table.stride(0),
        block_stride=k_cache.stride(0),
        page_stride=k_cache.stride(1),
        head_stride=k_cache.stride(2),
        out_stride=out.stride(0),
        G=group,
        D=head_size,
        D2=padded_head_size(head_size),
        BLOCK_SIZE=k_cache.shape[1],
        BLOCK_Q=block_q,
        BLOCK_M=block_m,
        TILE=tuning.tile,
        LONGEST_FIRST=tuning.longest_first,
        SLIDING_WINDOW=sliding_window,
        SOFTCAP=softcap,
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )
    return out
