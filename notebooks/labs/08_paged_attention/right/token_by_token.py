"""A right solution of lab 08: loops over tokens, heads and keys in numpy; SDPA in torch."""

import torch.nn.functional as F


def gather_kv_numpy(cache: np.ndarray, table_row: np.ndarray, seq_len: int) -> np.ndarray:
    block_size, heads, size = cache.shape[1:]
    out = np.empty((seq_len, heads, size), dtype=cache.dtype)
    for place in range(seq_len):
        number, offset = divmod(place, block_size)
        out[place] = cache[table_row[number], offset]
    return out


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    out = np.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    before = len(k) - len(q)
    for i in range(len(q)):
        for head in range(q.shape[1]):
            scores = scale * k[: before + i + 1, head // group] @ q[i, head]
            weights = np.exp(scores - max(scores))
            out[i, head] = weights @ v[: before + i + 1, head // group] / sum(weights)
    return out


def paged_attention_numpy(
    q: np.ndarray,  # [T, Hq, D]
    k_cache: np.ndarray,  # [blocks, B, Hkv, D]
    v_cache: np.ndarray,  # [blocks, B, Hkv, D]
    query_start_loc: np.ndarray,  # int[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: np.ndarray,  # int[R]; keys of each sequence, the new tokens included
    block_table: np.ndarray,  # int[R, W]
    scale: float,
) -> np.ndarray:
    out = np.zeros(q.shape, dtype=q.dtype)
    for row in range(len(seq_lens)):
        tokens = slice(int(query_start_loc[row]), int(query_start_loc[row + 1]))
        length = int(seq_lens[row])
        if length > 0 and tokens.stop > tokens.start:
            keys, values = (gather_kv_numpy(cache, block_table[row], length) for cache in (k_cache, v_cache))
            out[tokens] = attend_numpy(q[tokens], keys, values, scale)
    return out


def gather_kv(cache: torch.Tensor, table_row: torch.Tensor, seq_len: int) -> torch.Tensor:
    blocks = table_row[: -(-seq_len // cache.shape[1])].long()
    return cache[blocks].flatten(0, 1)[:seq_len]


def attend(
    q: torch.Tensor,  # [n, Hq, D], the last n of the L tokens
    k: torch.Tensor,  # [L, Hkv, D]
    v: torch.Tensor,  # [L, Hkv, D]
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    n, length = q.shape[0], k.shape[0]
    mask = torch.ones(n, length, dtype=torch.bool, device=q.device).tril(length - n)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)[0].transpose(0, 1)


def paged_attention(
    q: torch.Tensor,  # [T, Hq, D]
    k_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    v_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    query_start_loc: torch.Tensor,  # int32[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: torch.Tensor,  # int32[R]; keys of each sequence, the new tokens included
    block_table: torch.Tensor,  # int32[R, W]; key p of sequence r is in block block_table[r, p // B]
    scale: float,
    *,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    out = torch.zeros_like(q)
    for row, length in enumerate(seq_lens.tolist()):
        start, end = int(query_start_loc[row]), int(query_start_loc[row + 1])
        if end > start and length > 0:
            k, v = gather_kv(k_cache, block_table[row], length), gather_kv(v_cache, block_table[row], length)
            out[start:end] = attend(q[start:end], k, v, scale)
    return out
