"""A right solution of lab 10: every tile is a part of its own, and parts are joined."""


@triton.jit
def join(max_a, sum_a, acc_a, max_b, sum_b, acc_b):
    """Two parts as one. Maxima may be -1e30, never -inf."""
    largest = tl.maximum(max_a, max_b)
    a = tl.math.exp2(max_a - largest)
    b = tl.math.exp2(max_b - largest)
    return largest, sum_a * a + sum_b * b, acc_a * a[:, None] + acc_b * b[:, None]


def online_softmax_step(
    m: torch.Tensor,  # [..., G], the largest score so far; -inf at first
    l: torch.Tensor,  # noqa: E741  # [..., G], the sum of e^(score - m) so far; 0 at first
    acc: torch.Tensor,  # [..., G, D], the sum of e^(score - m) * V so far
    s: torch.Tensor,  # [..., G, T], scores of the next tile; -inf: may not be seen
    v: torch.Tensor,  # [..., T, D]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tile_m = s.max(-1)[0]
    shift = torch.where(tile_m == -torch.inf, torch.tensor(0.0), tile_m)
    weights = torch.exp(s - shift[..., None])
    tile_l, tile_acc = weights.sum(-1), torch.einsum("...t,...td->...d", weights, v.expand(*s.shape[:-2], *v.shape))
    new = torch.maximum(m, tile_m)
    base = torch.where(new == -torch.inf, torch.tensor(0.0), new)
    a, b = torch.exp(m - base), torch.exp(tile_m - base)
    return new, l * a + tile_l * b, acc * a[..., None] + tile_acc * b[..., None]


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
    dims = tl.arange(0, D2)
    best = tl.full([query.shape[0]], -1.0e30, tl.float32)
    total = tl.zeros([query.shape[0]], tl.float32)
    acc = tl.zeros([query.shape[0], D2], tl.float32)
    for tile in range(first_tile, last_tile):
        place = tile * TILE + tl.arange(0, TILE)
        real = place < seq_len
        block = tl.load(table_row + place // BLOCK_SIZE, mask=real, other=0).to(tl.int64)
        inside = block * block_stride + (place - place // BLOCK_SIZE * BLOCK_SIZE) * page_stride
        wanted = real[:, None] & (dims[None, :] < D)
        k = tl.load(k_head + inside[:, None] + dims[None, :], mask=wanted, other=0.0)
        v = tl.load(v_head + inside[:, None] + dims[None, :], mask=wanted, other=0.0)
        s = tl.where(real[None, :], dot(query, tl.trans(k)) * (scale * LOG2E), -1.0e30)
        tile_max = tl.max(s, 1)
        p = tl.where(real[None, :], tl.math.exp2(s - tile_max[:, None]), 0.0)
        best, total, acc = join(best, total, acc, tile_max, tl.sum(p, 1), dot(p, v.to(tl.float32)))
    return best, total, acc


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
    head = tl.program_id(1)
    seq_len = tl.load(seq_lens + row)
    g = tl.arange(0, G2)
    d = tl.arange(0, D2)
    number = (head * G + g)[:, None] * D + d[None, :]
    own = (g < G)[:, None] & (d < D)[None, :]
    tiles = tl.cdiv(seq_len, TILE)
    k = k_cache + head * head_stride
    v = v_cache + head * head_stride
    table = block_table + row * table_stride
    query = tl.load(q + row * q_stride + number, mask=own, other=0.0)
    _, total, acc = attend_tiles(
        query, k, v, table, 0, tiles, seq_len, scale, block_stride, page_stride, D, D2, BLOCK_SIZE, TILE
    )
    result = tl.where(total[:, None] > 0.0, acc / tl.where(total > 0.0, total, 1.0)[:, None], 0.0)
    tl.store(out + row * out_stride + number, result, mask=own)


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
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    part = tl.program_id(2)
    seq_len = tl.load(seq_lens + row)
    tiles = tl.cdiv(seq_len, TILE)
    each = tl.cdiv(tiles, SEGMENTS)
    g = tl.arange(0, G2)
    d = tl.arange(0, D2)
    number = (head * G + g)[:, None] * D + d[None, :]
    own = (g < G)[:, None] & (d < D)[None, :]
    if part * each < tiles:
        k = k_cache + head * head_stride
        v = v_cache + head * head_stride
        table = block_table + row * table_stride
        query = tl.load(q + row * q_stride + number, mask=own, other=0.0)
        till = tl.minimum(tiles, part * each + each)
        best, total, acc = attend_tiles(
            query, k, v, table, part * each, till, seq_len, scale, block_stride, page_stride, D, D2, BLOCK_SIZE, TILE
        )
        at = ((row * tl.num_programs(1) + head) * G + g) * SEGMENTS + part
        tl.store(segment_max + at, best, mask=g < G)
        tl.store(segment_sum + at, total, mask=g < G)
        tl.store(segment_acc + at[:, None] * D + d[None, :], acc, mask=own)


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
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    seq_len = tl.load(seq_lens + row)
    tiles = tl.cdiv(seq_len, TILE)
    d = tl.arange(0, D2)
    one = tl.arange(0, 1)
    best = tl.full([1], -1.0e30, tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([1, D2], tl.float32)
    for part in range(SEGMENTS):
        if part * tl.cdiv(tiles, SEGMENTS) < tiles:
            at = (row * tl.num_programs(1) + head) * SEGMENTS + part + one
            values = tl.load(segment_acc + at[:, None] * D + d[None, :], mask=(d < D)[None, :], other=0.0)
            best, total, acc = join(best, total, acc, tl.load(segment_max + at), tl.load(segment_sum + at), values)
    place = head * D + d
    result = tl.sum(acc, 0) / tl.where(seq_len > 0, tl.sum(total, 0), 1.0)
    tl.store(out + row * out_stride + place, result, mask=d < D)
