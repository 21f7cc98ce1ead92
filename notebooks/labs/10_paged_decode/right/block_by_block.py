"""A right solution of lab 10: one block after the other, in one piece; segments as lists of keys."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.tile_ops import dot


def online_softmax_step(
    m: torch.Tensor,  # [..., G], the largest score so far; -inf at first
    l: torch.Tensor,  # noqa: E741  # [..., G], the sum of e^(score - m) so far; 0 at first
    acc: torch.Tensor,  # [..., G, D], the sum of e^(score - m) * V so far
    s: torch.Tensor,  # [..., G, T], scores of the next tile; -inf: may not be seen
    v: torch.Tensor,  # [..., T, D]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Take a tile of keys into the running maximum, sum and weighted values; gives the new (m, l, acc).

    acc / l is then attention over all keys so far.

    vLLM: v1/attention/ops/triton_attention_helpers.py::softmax_step
    """
    whole = torch.cat([m.unsqueeze(-1), s], dim=-1)
    new = whole.max(dim=-1).values
    base = torch.nan_to_num(new, neginf=0.0).unsqueeze(-1)
    weights = torch.exp(whole - base)
    old, tile = weights[..., :1], weights[..., 1:]
    return new, (old * l.unsqueeze(-1)).squeeze(-1) + tile.sum(-1), old * acc + tile @ v


@triton.jit
def softmax_step(row_max, row_sum, scores, scale):
    """Take a tile of scores into the running maximum and sum.

    A scaled score is score * scale; scale > 0 holds LOG2E already, so 2^x is taken of it. row_max float32[M]: the
    largest scaled score so far, -inf at first. row_sum float32[M]: the sum of 2^(scaled score - row_max) so far, 0 at
    first. scores float32[M, T]: before scaling, -inf for a key that may not be seen.

    Gives four: the new maximum and sum, the weights float32[M, T] of the tile, which count from the new maximum, and
    the factor float32[M] for all that was summed under the old one.

    vLLM: v1/attention/ops/triton_attention_helpers.py::softmax_step
    """
    raise NotImplementedError("Lab 10.2: take the tile into maximum and sum; give its weights and the factor")


@triton.jit
def attend_tiles(
    query,  # [M, D2], M query heads of one token
    k_head,  # pointer to this KV head in the first slot of block 0
    v_head,  # the same in V
    table_row,  # pointer to the sequence's block ids
    first_tile,
    last_tile,  # exclusive
    seq_len,  # keys from here on don't exist, and their slots hold anything
    scale,  # of dot(q, k), without LOG2E
    block_stride,  # elements from block to block
    page_stride,  # elements from token to token within a block
    D: tl.constexpr,  # numbers of a head
    D2: tl.constexpr,  # columns of a tile, 2^n >= D
    BLOCK_SIZE: tl.constexpr,  # keys of a block
    TILE: tl.constexpr,  # keys of a tile, 2^n
):
    """Walk over the tiles first_tile..last_tile - 1 of a sequence's keys, for a token that sees all of them.

    Tile i has the keys i * TILE to i * TILE + TILE - 1. A scaled score is dot(q, k) * scale * LOG2E, and w is
    2^(scaled score - row_max). Gives row_max float32[M], the largest scaled score, row_sum float32[M], the sum of w,
    and acc float32[M, D2], the sum of w * V, over the keys of these tiles. Without a tile they are -inf, 0 and 0.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its loop over tiles)
    """
    raise NotImplementedError("Lab 10.2: walk over the tiles: find the keys, score them, carry the sums on")


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
    length = tl.load(seq_lens + row)
    g = tl.arange(0, G2)
    d = tl.arange(0, D2)
    b = tl.arange(0, BLOCK_SIZE)
    own = (g[:, None] < G) & (d[None, :] < D)
    query = tl.load(q + row * q_stride + (kv_head * G + g[:, None]) * D + d[None, :], mask=own, other=0.0)
    m = tl.full([G2], -1.0e30, tl.float32)
    total = tl.zeros([G2], tl.float32)
    acc = tl.zeros([G2, D2], tl.float32)
    for number in range(tl.cdiv(length, BLOCK_SIZE)):
        block = tl.load(block_table + row * table_stride + number).to(tl.int64)
        there = number * BLOCK_SIZE + b < length
        where = block * block_stride + b[:, None] * page_stride + kv_head * head_stride + d[None, :]
        k = tl.load(k_cache + where, mask=there[:, None] & (d[None, :] < D), other=0.0)
        v = tl.load(v_cache + where, mask=there[:, None] & (d[None, :] < D), other=0.0)
        s = tl.where(there[None, :], dot(query, tl.trans(k)) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(m - new) + tl.sum(p, 1)
        acc = acc * tl.exp(m - new)[:, None] + dot(p, v.to(tl.float32))
        m = new
    if length == 0:
        total = total + 1.0
    tl.store(out + row * out_stride + (kv_head * G + g[:, None]) * D + d[None, :], acc / total[:, None], mask=own)


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
    row, kv_head, segment = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(seq_lens + row)
    keys = tl.cdiv(tl.cdiv(length, TILE), SEGMENTS) * TILE
    begin = segment * keys
    end = tl.minimum(begin + keys, length)
    if begin >= end:
        return
    g = tl.arange(0, G2)
    d = tl.arange(0, D2)
    own = (g[:, None] < G) & (d[None, :] < D)
    query = tl.load(q + row * q_stride + (kv_head * G + g[:, None]) * D + d[None, :], mask=own, other=0.0)
    m = tl.full([G2], float("-inf"), tl.float32)
    total = tl.zeros([G2], tl.float32)
    acc = tl.zeros([G2, D2], tl.float32)
    for start in range(begin, end, TILE):
        position = start + tl.arange(0, TILE)
        there = position < end
        block = tl.load(block_table + row * table_stride + position // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
        line = block * block_stride + (position % BLOCK_SIZE) * page_stride + kv_head * head_stride
        k = tl.load(k_cache + line[:, None] + d[None, :], mask=there[:, None] & (d[None, :] < D), other=0.0)
        v = tl.load(v_cache + line[:, None] + d[None, :], mask=there[:, None] & (d[None, :] < D), other=0.0)
        s = tl.where(there[None, :], dot(query, tl.trans(k)) * scale, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(m - new) + tl.sum(p, 1)
        acc = acc * tl.exp(m - new)[:, None] + dot(p, v.to(tl.float32))
        m = new
    for_heads = (row * tl.num_programs(1) * G + kv_head * G + g) * SEGMENTS + segment
    tl.store(segment_max + for_heads, m, mask=g < G)
    tl.store(segment_sum + for_heads, total, mask=g < G)
    tl.store(segment_acc + for_heads[:, None] * D + d[None, :], acc, mask=own)


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
    row = tl.program_id(0)
    head = tl.program_id(1)
    length = tl.load(seq_lens + row)
    i = tl.arange(0, SEGMENTS)
    d = tl.arange(0, D2)
    there = i * (tl.cdiv(tl.cdiv(length, TILE), SEGMENTS) * TILE) < length
    number = (row * tl.num_programs(1) + head) * SEGMENTS + i
    m = tl.load(segment_max + number, mask=there, other=-1.0e30)
    total = tl.load(segment_sum + number, mask=there, other=0.0)
    weight = tl.where(there, tl.exp(m - tl.max(m, 0)), 0.0)
    used = there[:, None] & (d[None, :] < D)
    acc = tl.load(segment_acc + number[:, None] * D + d[None, :], mask=used, other=0.0)
    sums = tl.sum(weight * total, 0)
    result = tl.sum(acc * weight[:, None], 0) / tl.where(length == 0, 1.0, sums)
    tl.store(out + row * out_stride + head * D + d, result, mask=d < D)
