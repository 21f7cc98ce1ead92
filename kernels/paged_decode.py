"""Attention of one new token a sequence over the paged cache: the decode step.

Two forms. In one pass, a program reads all keys of its sequence for the query heads of one KV head. With few sequences
that is too few programs for a GPU: then the keys are split into segments, one program each, and a second kernel joins
their parts (flash decoding).
Must not know: requests; which form is chosen when (tuning.py).

Sizes: S sequences, Hq query heads, Hkv KV heads, G = Hq / Hkv, D head size; G2 and D2 are padded to powers of two.
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.launch import Launch, check_cache, check_heads, launch, padded_head_size
from minivllm_kernels.tile_ops import attend_tiles
from minivllm_kernels.tuning import ReadTuning, tuning_for


@triton.jit(do_not_specialize=["table_stride"])
def paged_decode_kernel(
    q,  # [S, Hq, D]
    k_cache,  # [blocks, BLOCK_SIZE, Hkv, D]
    v_cache,
    block_table,  # int32[S, W]
    seq_lens,  # int32[S], the new token included; 0: a padding row
    out,  # [S, Hq, D]
    scale,
    q_stride,  # elements from token to token
    table_stride,  # from row to row
    block_stride,  # of both caches, from block to block
    page_stride,  # from token to token within a block
    head_stride,  # from KV head to KV head
    out_stride,  # from token to token
    G: tl.constexpr,  # query heads of a KV head
    D: tl.constexpr,  # numbers of a head
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    G2: tl.constexpr,  # rows of a tile of queries, 2^n >= G
    D2: tl.constexpr,  # its columns, 2^n >= D
):
    """Program (s, h) attends with the G query heads of KV head h of sequence s. Without a key their out is 0.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its 2D form with one token a sequence)
    """
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    seq_len = tl.load(seq_lens + row)
    heads = tl.arange(0, G2)
    dims = tl.arange(0, D2)
    mask = (heads < G)[:, None] & (dims < D)[None, :]
    numbers = (kv_head * G + heads)[:, None] * D + dims[None, :]
    query = tl.load(q + row * q_stride + numbers, mask=mask, other=0.0)
    k_head = k_cache + kv_head * head_stride
    v_head = v_cache + kv_head * head_stride
    table = block_table + row * table_stride
    num_tiles = tl.cdiv(seq_len, TILE)
    _, row_sum, acc = attend_tiles(
        query, k_head, v_head, table, 0, num_tiles, seq_len, scale, block_stride, page_stride, D, D2, BLOCK_SIZE, TILE
    )
    row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)  # a padding row: 0 / 1
    tl.store(out + row * out_stride + numbers, acc / row_sum[:, None], mask=mask)


@triton.jit(do_not_specialize=["table_stride"])
def paged_decode_segments_kernel(
    q,  # [S, Hq, D]
    k_cache,  # [blocks, BLOCK_SIZE, Hkv, D]
    v_cache,
    block_table,  # int32[S, W]
    seq_lens,  # int32[S]
    segment_acc,  # float32[S, Hq, SEGMENTS, D], without gaps; not divided by the sum
    segment_max,  # float32[S, Hq, SEGMENTS], of the scaled scores, as attend_tiles gives it
    segment_sum,  # float32[S, Hq, SEGMENTS]
    scale,
    q_stride,
    table_stride,
    block_stride,
    page_stride,
    head_stride,
    G: tl.constexpr,
    D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    SEGMENTS: tl.constexpr,  # of every sequence, 2^n
    G2: tl.constexpr,
    D2: tl.constexpr,
):
    """Program (s, h, i) attends as paged_decode_kernel does, to segment i of the keys alone.

    All segments have the same number of tiles, rounded up, and the last ones less. One without a key writes nothing.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its 3D form)
    """
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    segment = tl.program_id(2)
    seq_len = tl.load(seq_lens + row)
    tiles_per_segment = tl.cdiv(seq_len, SEGMENTS * TILE)
    first = segment * tiles_per_segment
    last = tl.minimum(first + tiles_per_segment, tl.cdiv(seq_len, TILE))
    if first * TILE >= seq_len:
        return
    heads = tl.arange(0, G2)
    dims = tl.arange(0, D2)
    mask = (heads < G)[:, None] & (dims < D)[None, :]
    query_heads = kv_head * G + heads
    query = tl.load(q + row * q_stride + query_heads[:, None] * D + dims[None, :], mask=mask, other=0.0)
    k_head = k_cache + kv_head * head_stride
    v_head = v_cache + kv_head * head_stride
    table = block_table + row * table_stride
    row_max, row_sum, acc = attend_tiles(
        query, k_head, v_head, table, first, last, seq_len, scale, block_stride, page_stride, D, D2, BLOCK_SIZE, TILE
    )
    places = (row * (tl.num_programs(1) * G) + query_heads) * SEGMENTS + segment
    tl.store(segment_max + places, row_max, mask=heads < G)
    tl.store(segment_sum + places, row_sum, mask=heads < G)
    tl.store(segment_acc + places[:, None] * D + dims[None, :], acc, mask=mask)


@triton.jit
def reduce_segments_kernel(
    segment_acc,  # float32[S, Hq, SEGMENTS, D]
    segment_max,  # float32[S, Hq, SEGMENTS]
    segment_sum,
    seq_lens,  # int32[S], says which segments were written; 0: out is 0
    out,  # [S, Hq, D]
    out_stride,
    D: tl.constexpr,
    TILE: tl.constexpr,
    SEGMENTS: tl.constexpr,
    D2: tl.constexpr,
):
    """Program (s, h) joins the segments of query head h of sequence s, each weighted by 2^(its max - largest max).

    vLLM: v1/attention/ops/triton_unified_attention.py::reduce_segments
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    seq_len = tl.load(seq_lens + row)
    tiles_per_segment = tl.maximum(tl.cdiv(seq_len, SEGMENTS * TILE), 1)
    segments = tl.arange(0, SEGMENTS)
    written = segments * tiles_per_segment * TILE < seq_len
    dims = tl.arange(0, D2)
    in_head = dims < D
    places = (row * tl.num_programs(1) + head) * SEGMENTS + segments
    maxima = tl.load(segment_max + places, mask=written, other=float("-inf"))
    largest = tl.max(maxima, 0)
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # a padding row: -inf - -inf would be NaN
    weights = tl.math.exp2(maxima - largest)
    total = tl.sum(tl.load(segment_sum + places, mask=written, other=0.0) * weights, 0)
    parts = tl.load(
        segment_acc + places[:, None] * D + dims[None, :], mask=written[:, None] & in_head[None, :], other=0.0
    )
    acc = tl.sum(parts * weights[:, None], 0)
    total = tl.where(total == 0.0, 1.0, total)  # a padding row: 0 / 1
    tl.store(out + row * out_stride + head * D + dims, acc / total, mask=in_head)


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    *,
    tuning: ReadTuning | None = None,
    launch: Launch = launch,
) -> None:
    """Attend with q [S, Hq, D], one token a sequence, in one pass; writes out [S, Hq, D].

    caches [blocks, block_size, Hkv, D], block_table int32[S, W], seq_lens int32[S] with the new token; 0 gives zeros.
    Raises ValueError for layouts that the kernel can't address.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention (2D)
    """
    if q.shape[0] == 0:
        return
    num_kv_heads = k_cache.shape[2]
    tuning = tuning or tuning_for(q.device).decode(q.shape[2], q.element_size())
    launch(
        paged_decode_kernel,
        (q.shape[0], num_kv_heads),
        **_shared_arguments(q, k_cache, v_cache, block_table, seq_lens, scale),
        out=out,
        out_stride=_token_stride("out", out),
        TILE=tuning.tile,
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )


def paged_decode_split(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_segments: int,
    *,
    tuning: ReadTuning | None = None,
    launch: Launch = launch,
) -> None:
    """The same as `paged_decode`, with each sequence's keys split among num_segments (a power of two) programs.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention (3D)
    """
    num_seqs, num_heads, head_size = q.shape
    if num_segments & (num_segments - 1) or num_segments < 1:
        raise ValueError(f"num_segments={num_segments} is not a power of two")
    if num_seqs == 0:
        return
    tuning = tuning or tuning_for(q.device).split(head_size, q.element_size())
    segment_acc = q.new_empty(num_seqs, num_heads, num_segments, head_size, dtype=torch.float32)
    segment_max = q.new_empty(num_seqs, num_heads, num_segments, dtype=torch.float32)
    segment_sum = torch.empty_like(segment_max)
    segments = {"segment_acc": segment_acc, "segment_max": segment_max, "segment_sum": segment_sum}
    launch(
        paged_decode_segments_kernel,
        (num_seqs, k_cache.shape[2], num_segments),
        **_shared_arguments(q, k_cache, v_cache, block_table, seq_lens, scale),
        **segments,
        TILE=tuning.tile,
        SEGMENTS=num_segments,
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )
    launch(
        reduce_segments_kernel,
        (num_seqs, num_heads),
        **segments,
        seq_lens=seq_lens,
        out=out,
        out_stride=_token_stride("out", out),
        D=head_size,
        TILE=tuning.tile,
        SEGMENTS=num_segments,
        D2=padded_head_size(head_size),
        num_warps=4,
        num_stages=1,
    )


def _shared_arguments(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
) -> dict[str, torch.Tensor | float | int]:
    """The arguments that both decode kernels have."""
    _, num_heads, head_size = q.shape
    num_kv_heads = k_cache.shape[2]
    check_cache(k_cache, v_cache, num_kv_heads, head_size)
    group = num_heads // num_kv_heads
    return {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "block_table": block_table,
        "seq_lens": seq_lens,
        "scale": scale,
        "q_stride": _token_stride("q", q),
        "table_stride": block_table.stride(0),
        "block_stride": k_cache.stride(0),
        "page_stride": k_cache.stride(1),
        "head_stride": k_cache.stride(2),
        "G": group,
        "D": head_size,
        "BLOCK_SIZE": k_cache.shape[1],
        "G2": max(16, triton.next_power_of_2(group)),  # a product needs 16 rows
        "D2": padded_head_size(head_size),
    }


def _token_stride(name: str, tensor: torch.Tensor) -> int:
    check_heads(name, tensor)
    return tensor.stride(0)
