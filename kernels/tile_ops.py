"""What the attention kernels share: a product of two tiles, a step of the online softmax, and the walk over the keys.

Interface: functions that run inside a kernel, not from Python.
Must not know: which program of which grid it runs in.

Sizes below: M rows (a row is one query head of one token), T keys a tile, D the head size, D2 the next power of two.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # e^x = 2^(x * LOG2E), and 2^x is what a GPU has an instruction for
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def dot(a, b):
    """a [M, K] times b [K, N], summed in float32.

    float32 is multiplied as float32. Triton's and vLLM's default for it is tf32, whose products have 10 bits.

    vLLM: none, vLLM calls tl.dot
    """
    if INTERPRETED:  # the interpreter of Triton 3.8 would multiply the bit patterns of bfloat16
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


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
    new_max = tl.maximum(row_max, tl.max(scores, 1) * scale)
    # in a row that has seen no key yet, -inf - -inf would be NaN
    finite = tl.where(new_max == float("-inf"), 0.0, new_max)
    weights = tl.math.exp2(scores * scale - finite[:, None])
    correction = tl.math.exp2(row_max - finite)
    return new_max, row_sum * correction + tl.sum(weights, 1), weights, correction


@triton.jit
def attend(
    query,  # [M, D2]
    query_places,  # int32[M], the place of each row's token in its sequence
    k_head,  # pointer to this KV head in block 0
    v_head,
    table_row,  # pointer to the sequence's block ids
    row_max,
    row_sum,
    acc,  # float32[M, D2], the sum of weights * V so far
    first_tile,
    last_tile,  # exclusive
    num_keys,  # keys from here on don't exist
    scale,
    block_stride,  # elements from block to block; a block's K and V lie side by side
    page_stride,  # elements from token to token within a block
    D: tl.constexpr,
    D2: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,  # False: every row sees every key of these tiles
    SLIDING_WINDOW: tl.constexpr,  # keys that a token sees, itself included; 0: all
    SOFTCAP: tl.constexpr,  # 0: none
):
    """Walk over the tiles first_tile..last_tile - 1 of a sequence's keys; gives the new row_max, row_sum and acc.

    A tile is TILE neighbours in the sequence. In memory they lie in blocks that the table names.

    vLLM: v1/attention/ops/triton_unified_attention.py::kernel_unified_attention (its loop over tiles)
    """
    dims = tl.arange(0, D2)
    in_head = dims < D
    log2_scale = LOG2E if SOFTCAP > 0.0 else scale * LOG2E
    for tile in range(first_tile, last_tile):
        places = tile * TILE + tl.arange(0, TILE)
        if MASKED:
            exists = places < num_keys
            # masked too: the row of the table may end with the sequence's last block
            blocks = tl.load(table_row + places // BLOCK_SIZE, mask=exists, other=0).to(tl.int64)
            mask = exists[:, None] & in_head[None, :]
        else:
            blocks = tl.load(table_row + places // BLOCK_SIZE).to(tl.int64)
            mask = in_head[None, :]
        lines = blocks * block_stride + places % BLOCK_SIZE * page_stride
        k = tl.load(k_head + lines[:, None] + dims[None, :], mask=mask, other=0.0)
        scores = dot(query, tl.trans(k))
        if SOFTCAP > 0.0:
            # SOFTCAP * tanh(scaled score / SOFTCAP)
            scores = SOFTCAP * (2.0 * tl.sigmoid(scores * (2.0 * scale / SOFTCAP)) - 1.0)
        if MASKED:
            seen = exists[None, :] & (places[None, :] <= query_places[:, None])
            if SLIDING_WINDOW > 0:
                seen &= query_places[:, None] - places[None, :] < SLIDING_WINDOW
            scores = tl.where(seen, scores, float("-inf"))
        row_max, row_sum, weights, correction = softmax_step(row_max, row_sum, scores, log2_scale)
        # V of keys that don't exist must be 0: a weight of 0 times NaN is NaN
        v = tl.load(v_head + lines[:, None] + dims[None, :], mask=mask, other=0.0)
        acc = acc * correction[:, None] + dot(weights.to(v.dtype), v)
    return row_max, row_sum, acc


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
    dims = tl.arange(0, D2)
    row_max = tl.full([query.shape[0]], float("-inf"), tl.float32)
    row_sum = tl.zeros([query.shape[0]], tl.float32)
    acc = tl.zeros([query.shape[0], D2], tl.float32)
    for tile in range(first_tile, last_tile):
        places = tile * TILE + tl.arange(0, TILE)
        exists = places < seq_len
        # masked too: the row of the table may end with the sequence's last block
        blocks = tl.load(table_row + places // BLOCK_SIZE, mask=exists, other=0).to(tl.int64)
        lines = blocks * block_stride + places % BLOCK_SIZE * page_stride
        mask = exists[:, None] & (dims < D)[None, :]
        k = tl.load(k_head + lines[:, None] + dims[None, :], mask=mask, other=0.0)
        scores = tl.where(exists[None, :], dot(query, tl.trans(k)), float("-inf"))
        row_max, row_sum, weights, correction = softmax_step(row_max, row_sum, scores, scale * LOG2E)
        # V of keys that don't exist must be 0: a weight of 0 times NaN is NaN
        v = tl.load(v_head + lines[:, None] + dims[None, :], mask=mask, other=0.0)
        acc = acc * correction[:, None] + dot(weights.to(v.dtype), v)
    return row_max, row_sum, acc
