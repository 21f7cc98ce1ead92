"""A right solution of lab 10: e^x in place of 2^x, a large negative start, products by sums."""


def online_softmax_step(
    m: torch.Tensor,  # [..., G], the largest score so far; -inf at first
    l: torch.Tensor,  # noqa: E741  # [..., G], the sum of e^(score - m) so far; 0 at first
    acc: torch.Tensor,  # [..., G, D], the sum of e^(score - m) * V so far
    s: torch.Tensor,  # [..., G, T], scores of the next tile; -inf: may not be seen
    v: torch.Tensor,  # [..., T, D]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    new = torch.where(s.amax(dim=-1) > m, s.amax(dim=-1), m)
    reference = torch.where(torch.isinf(new), torch.zeros_like(new), new)
    old_part = torch.where(torch.isinf(m), torch.zeros_like(m), (m - reference).exp())
    weights = (s - reference.unsqueeze(-1)).exp()
    total = old_part * l + torch.sum(weights, -1)
    values = old_part.unsqueeze(-1) * acc + torch.matmul(weights, v)
    return new, total, values


@triton.jit
def softmax_step(row_max, row_sum, scores, scale):
    scaled = scores * scale
    new_max = tl.maximum(row_max, tl.max(scaled, 1))
    weights = tl.where(scaled == float("-inf"), 0.0, tl.math.exp2(scaled - new_max[:, None]))
    correction = tl.math.exp2(row_max - new_max)
    return new_max, row_sum * correction + tl.sum(weights, 1), weights, correction


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
    d = tl.arange(0, D2)
    t = tl.arange(0, TILE)
    top = tl.full([query.shape[0]], -1.0e30, tl.float32)
    total = tl.zeros([query.shape[0]], tl.float32)
    acc = tl.zeros([query.shape[0], D2], tl.float32)
    for start in range(first_tile * TILE, tl.minimum(last_tile * TILE, seq_len), TILE):
        position = start + t
        valid = position < seq_len
        block = tl.load(table_row + position // BLOCK_SIZE, mask=valid, other=0)
        where = block[:, None] * block_stride + (position % BLOCK_SIZE)[:, None] * page_stride + d[None, :]
        loaded = valid[:, None] & (d[None, :] < D)
        key = tl.load(k_head + where, mask=loaded, other=0.0).to(tl.float32)
        value = tl.load(v_head + where, mask=loaded, other=0.0).to(tl.float32)
        score = tl.sum(query.to(tl.float32)[:, None, :] * key[None, :, :], 2) * scale
        score = tl.where(valid[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        shrink = tl.exp(top - higher)
        p = tl.exp(score - higher[:, None])
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.sum(p[:, :, None] * value[None, :, :], 1)
        top = higher
    return top * LOG2E, total, acc


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
    s = tl.program_id(0)
    h = tl.program_id(1)
    length = tl.load(seq_lens + s)
    g = tl.arange(0, G2)
    d = tl.arange(0, D2)
    own = (g[:, None] < G) & (d[None, :] < D)
    place = (h * G + g[:, None]) * D + d[None, :]
    query = tl.load(q + s * q_stride + place, mask=own, other=0.0)
    _, total, acc = attend_tiles(
        query,
        k_cache + h * head_stride,
        v_cache + h * head_stride,
        block_table + s * table_stride,
        0,
        (length + TILE - 1) // TILE,
        length,
        scale,
        block_stride,
        page_stride,
        D,
        D2,
        BLOCK_SIZE,
        TILE,
    )
    tl.store(out + s * out_stride + place, acc / tl.where(length == 0, 1.0, total)[:, None], mask=own)


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
    s = tl.program_id(0)
    h = tl.program_id(1)
    i = tl.program_id(2)
    length = tl.load(seq_lens + s)
    share = (length + SEGMENTS * TILE - 1) // (SEGMENTS * TILE)
    begin = i * share
    end = tl.minimum(begin + share, (length + TILE - 1) // TILE)
    if begin < end:
        g = tl.arange(0, G2)
        d = tl.arange(0, D2)
        head = h * G + g
        own = (g[:, None] < G) & (d[None, :] < D)
        query = tl.load(q + s * q_stride + head[:, None] * D + d[None, :], mask=own, other=0.0)
        top, total, acc = attend_tiles(
            query,
            k_cache + h * head_stride,
            v_cache + h * head_stride,
            block_table + s * table_stride,
            begin,
            end,
            length,
            scale,
            block_stride,
            page_stride,
            D,
            D2,
            BLOCK_SIZE,
            TILE,
        )
        number = (s * tl.num_programs(1) * G + head) * SEGMENTS + i
        tl.store(segment_max + number, top, mask=g < G)
        tl.store(segment_sum + number, total, mask=g < G)
        tl.store(segment_acc + number[:, None] * D + d[None, :], acc, mask=own)


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
    s = tl.program_id(0)
    h = tl.program_id(1)
    length = tl.load(seq_lens + s)
    share = (length + SEGMENTS * TILE - 1) // (SEGMENTS * TILE)
    d = tl.arange(0, D2)
    top = tl.full([1], -1.0e30, tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([D2], tl.float32)
    for i in range(SEGMENTS):
        if i * share * TILE < length:
            number = (s * tl.num_programs(1) + h) * SEGMENTS + i
            its_max = tl.load(segment_max + number)
            higher = tl.maximum(top, its_max)
            old = tl.math.exp2(top - higher)
            new = tl.math.exp2(its_max - higher)
            total = total * old + tl.load(segment_sum + number) * new
            acc = acc * old + tl.load(segment_acc + number * D + d, mask=d < D, other=0.0) * new
            top = higher
    tl.store(out + s * out_stride + h * D + d, acc / tl.where(total == 0.0, 1.0, total), mask=d < D)
