"""A right solution of lab 08: slots as numbers, an online softmax over tiles, heads grouped and not repeated."""


def gather_kv_numpy(cache: np.ndarray, table_row: np.ndarray, seq_len: int) -> np.ndarray:
    block_size = cache.shape[1]
    places = np.arange(seq_len)
    slots = np.asarray(table_row, dtype=np.int64)[places // block_size] * block_size + places % block_size
    return cache.reshape(-1, *cache.shape[2:])[slots]


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    n, num_heads, size = q.shape
    seq_len, kv_heads, _ = k.shape
    grouped = q.reshape(n, kv_heads, num_heads // kv_heads, size)
    m = np.full(grouped.shape[:3], -np.inf)
    total = np.zeros(grouped.shape[:3])
    acc = np.zeros(grouped.shape)
    for first in range(0, seq_len, 3):
        keys, values = k[first : first + 3], v[first : first + 3]
        scores = scale * np.einsum("nkgd,tkd->nkgt", grouped, keys)
        places = np.arange(first, first + len(keys))
        hidden = places[None, :] > np.arange(seq_len - n, seq_len)[:, None]
        scores[np.broadcast_to(hidden[:, None, None, :], scores.shape)] = -np.inf
        new = np.maximum(m, scores.max(-1))
        base = np.where(np.isinf(new), 0.0, new)
        weights, factor = np.exp(scores - base[..., None]), np.exp(m - base)
        total = total * factor + weights.sum(-1)
        acc = acc * factor[..., None] + np.einsum("nkgt,tkd->nkgd", weights, values)
        m = new
    return (acc / total[..., None]).reshape(n, num_heads, size)


def paged_attention_numpy(
    q: np.ndarray,  # [T, Hq, D]
    k_cache: np.ndarray,  # [blocks, B, Hkv, D]
    v_cache: np.ndarray,  # [blocks, B, Hkv, D]
    query_start_loc: np.ndarray,  # int[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: np.ndarray,  # int[R]; keys of each sequence, the new tokens included
    block_table: np.ndarray,  # int[R, W]
    scale: float,
) -> np.ndarray:
    rows = []
    for start, end, length, table in zip(query_start_loc, query_start_loc[1:], seq_lens, block_table, strict=False):
        if length == 0:
            rows.append(np.zeros((end - start, *q.shape[1:])))
        elif end > start:
            k = gather_kv_numpy(k_cache, table, length)
            rows.append(attend_numpy(q[start:end], k, gather_kv_numpy(v_cache, table, length), scale))
    return np.concatenate(rows)


def gather_kv(cache: torch.Tensor, table_row: torch.Tensor, seq_len: int) -> torch.Tensor:
    places = torch.arange(seq_len, device=cache.device)
    slots = table_row.long()[places // cache.shape[1]] * cache.shape[1] + places % cache.shape[1]
    return cache.reshape(-1, *cache.shape[2:]).index_select(0, slots)


def attend(
    q: torch.Tensor,  # [n, Hq, D], the last n of the L tokens
    k: torch.Tensor,  # [L, Hkv, D]
    v: torch.Tensor,  # [L, Hkv, D]
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    compute = torch.promote_types(q.dtype, torch.float32)
    n, num_heads, size = q.shape
    seq_len, kv_heads, _ = k.shape
    grouped = q.to(compute).view(n, kv_heads, -1, size).permute(1, 2, 0, 3)
    scores = scale * grouped @ k.to(compute).permute(1, 2, 0)[:, None]
    hidden = torch.full((n, seq_len), -torch.inf, dtype=compute, device=q.device).triu(seq_len - n + 1)
    weights = torch.exp((scores + hidden) - (scores + hidden).amax(-1, keepdim=True))
    values = weights @ v.to(compute).permute(1, 0, 2)[:, None] / weights.sum(-1, keepdim=True)
    return values.permute(2, 0, 1, 3).reshape(n, num_heads, size).to(q.dtype)


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
    starts = query_start_loc.tolist()
    for row, length in enumerate(seq_lens.tolist()):
        tokens = slice(starts[row], starts[row + 1])
        if length and tokens.start < tokens.stop:
            caches = (gather_kv(cache, block_table[row], length) for cache in (k_cache, v_cache))
            out[tokens] = attend(q[tokens], *caches, scale)
    return out
