"""A right solution of lab 10: one block after the other, in one piece; segments as lists of keys."""


def online_softmax_step(
    m: torch.Tensor,  # [..., G], the largest score so far; -inf at first
    l: torch.Tensor,  # noqa: E741  # [..., G], the sum of e^(score - m) so far; 0 at first
    acc: torch.Tensor,  # [..., G, D], the sum of e^(score - m) * V so far
    s: torch.Tensor,  # [..., G, T], scores of the next tile; -inf: may not be seen
    v: torch.Tensor,  # [..., T, D]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    whole = torch.cat([m.unsqueeze(-1), s], dim=-1)
    new = whole.max(dim=-1).values
    base = torch.nan_to_num(new, neginf=0.0).unsqueeze(-1)
    weights = torch.exp(whole - base)
    old, tile = weights[..., :1], weights[..., 1:]
    return new, (old * l.unsqueeze(-1)).squeeze(-1) + tile.sum(-1), old * acc + tile @ v


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
