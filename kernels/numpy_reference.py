"""Paged attention in numpy: an oracle that shares no line with torch's, for tests and for lab 08.

Computes in the type that it gets; hand it float64. Must not know: torch, Triton.

Sizes: T tokens, R sequences, L keys of a sequence, n new tokens of a sequence, Hq query heads, Hkv KV heads, D head
size, B block size, W width of the block table.
"""

import numpy as np


def gather_kv_numpy(cache: np.ndarray, table_row: np.ndarray, seq_len: int) -> np.ndarray:
    """The K or the V of one sequence, in the order of its tokens: [blocks, B, Hkv, D] -> [L, Hkv, D], L = seq_len.

    table_row int[W]: key p is in block table_row[p // B]. Slots without a key may hold anything.

    vLLM: none, the kernels never gather
    """
    block_size = cache.shape[1]
    places = np.arange(seq_len)
    return cache[table_row[places // block_size], places % block_size]


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """Causal attention of one sequence; gives [n, Hq, D].

    q [n, Hq, D]: the last n of the sequence's L tokens. k, v [L, Hkv, D]. Query head h reads KV head h // (Hq / Hkv).

    vLLM: none, this is the formula
    """
    num_queries, num_heads, _ = q.shape
    seq_len, num_kv_heads, _ = k.shape
    k = np.repeat(k, num_heads // num_kv_heads, axis=1)
    v = np.repeat(v, num_heads // num_kv_heads, axis=1)
    scores = np.einsum("nhd,lhd->hnl", q, k) * scale
    query_places = np.arange(seq_len - num_queries, seq_len)
    seen = np.arange(seq_len) <= query_places[:, None]
    scores = np.where(seen, scores, -np.inf)
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("hnl,lhd->nhd", weights, v)


def paged_attention_numpy(
    q: np.ndarray,  # [T, Hq, D]
    k_cache: np.ndarray,  # [blocks, B, Hkv, D]
    v_cache: np.ndarray,  # [blocks, B, Hkv, D]
    query_start_loc: np.ndarray,  # int[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: np.ndarray,  # int[R]; keys of each sequence, the new tokens included
    block_table: np.ndarray,  # int[R, W]
    scale: float,
) -> np.ndarray:
    """Causal attention of each sequence's last tokens to all its keys; gives [T, Hq, D].

    A sequence of length 0, and tokens that belong to no sequence, give zeros.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    out = np.zeros_like(q)
    for row, seq_len in enumerate(seq_lens):
        start, end = query_start_loc[row], query_start_loc[row + 1]
        if start == end or seq_len == 0:
            continue
        k = gather_kv_numpy(k_cache, block_table[row], seq_len)
        v = gather_kv_numpy(v_cache, block_table[row], seq_len)
        out[start:end] = attend_numpy(q[start:end], k, v, scale)
    return out
