"""A right solution of lab 08: in torch all rows at once, padded, with one SDPA; no Python loop at all."""

import torch.nn.functional as F


def gather_kv_numpy(cache: np.ndarray, table_row: np.ndarray, seq_len: int) -> np.ndarray:
    blocks = table_row[: (seq_len + cache.shape[1] - 1) // cache.shape[1]]
    return np.concatenate(list(cache[blocks]))[:seq_len] if len(blocks) else cache[0, :0]


def attend_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    n, seq_len = len(q), len(k)
    heads = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    scores = (q.transpose(1, 0, 2) @ k[:, heads].transpose(1, 2, 0)) * scale
    scores += np.triu(np.full((n, seq_len), -np.inf), seq_len - n + 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights @ v[:, heads].transpose(1, 0, 2) / weights.sum(-1)[..., None]).transpose(1, 0, 2)


def paged_attention_numpy(
    q: np.ndarray,  # [T, Hq, D]
    k_cache: np.ndarray,  # [blocks, B, Hkv, D]
    v_cache: np.ndarray,  # [blocks, B, Hkv, D]
    query_start_loc: np.ndarray,  # int[R + 1]; sequence r owns tokens query_start_loc[r] .. [r + 1] - 1
    seq_lens: np.ndarray,  # int[R]; keys of each sequence, the new tokens included
    block_table: np.ndarray,  # int[R, W]
    scale: float,
) -> np.ndarray:
    out = q * 0.0
    for row in np.flatnonzero((np.diff(query_start_loc) > 0) & (seq_lens > 0)):
        first, last = query_start_loc[row : row + 2]
        k, v = (gather_kv_numpy(cache, block_table[row], seq_lens[row]) for cache in (k_cache, v_cache))
        out[first:last] = attend_numpy(q[first:last], k, v, scale)
    return out


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
    block_size, (num_rows, width) = k_cache.shape[1], block_table.shape
    places = torch.arange(width * block_size, device=q.device)
    slots = block_table.long()[:, places // block_size] * block_size + places % block_size
    exists = places < seq_lens[:, None]
    slots = torch.where(exists, slots, slots[:, :1])
    k, v = (cache.flatten(0, 1)[slots] for cache in (k_cache, v_cache))
    k, v = (torch.where(exists[..., None, None], x, 0.0) for x in (k, v))
    new = query_start_loc.diff().long()
    rows = torch.repeat_interleave(torch.arange(num_rows, device=q.device), new)
    query_places = torch.arange(q.shape[0], device=q.device) - query_start_loc[rows] + (seq_lens - new)[rows]
    seen = (places <= query_places[:, None]) & (seq_lens[rows] > 0)[:, None]
    group = q.shape[1] // k.shape[2]
    k, v = (x[rows].repeat_interleave(group, dim=2).transpose(1, 2) for x in (k, v))
    attended = F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=seen[:, None, None], scale=scale)[:, :, 0]
    return torch.where((seq_lens[rows] > 0)[:, None, None], attended, 0.0)
