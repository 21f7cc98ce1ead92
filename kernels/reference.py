"""Every operation of this folder in plain torch, with the same signature: what the kernels are compared with.

Written to be read: one sequence at a time, shapes on every line. Computes in float32 or better.
Must not know: Triton.

Sizes: T tokens, R sequences, L keys of a sequence, n new tokens of a sequence, Hq query heads, Hkv KV heads,
G = Hq / Hkv, D head size, B block size, W width of the block table.
"""

import torch


def reshape_and_cache(
    key: torch.Tensor,  # [T', Hkv, D], T' >= T
    value: torch.Tensor,  # [T', Hkv, D]
    k_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    v_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    slot_mapping: torch.Tensor,  # int64[T]; slot s is place s % B of block s // B; -1: not a token
) -> None:
    """Write K and V of each token into its slot, in place.

    vLLM: v1/attention/ops/triton_reshape_and_cache_flash.py::triton_reshape_and_cache_flash
    """
    block_size = k_cache.shape[1]
    tokens = (slot_mapping >= 0).nonzero()[:, 0]  # [t], those that have a slot
    slots = slot_mapping[tokens]  # [t]
    k_cache[slots // block_size, slots % block_size] = key[tokens].to(k_cache.dtype)  # [t, Hkv, D]
    v_cache[slots // block_size, slots % block_size] = value[tokens].to(v_cache.dtype)


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
    """Causal attention of each sequence's last tokens to all its keys; gives [T, Hq, D].

    A sequence of length 0, and tokens that belong to no sequence, give zeros. sliding_window: keys that a token sees,
    itself included; 0 means all. softcap > 0: scores become softcap * tanh(score / softcap).

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    out = torch.zeros_like(q)  # [T, Hq, D]
    for row, seq_len in enumerate(seq_lens.tolist()):
        start, end = query_start_loc[row : row + 2].tolist()
        if start == end or seq_len == 0:
            continue
        k = gather_kv(k_cache, block_table[row], seq_len)  # [L, Hkv, D]
        v = gather_kv(v_cache, block_table[row], seq_len)  # [L, Hkv, D]
        out[start:end] = attend(q[start:end], k, v, scale, sliding_window, softcap)  # [n, Hq, D]
    return out


def gather_kv(cache: torch.Tensor, table_row: torch.Tensor, seq_len: int) -> torch.Tensor:
    """The K or the V of one sequence, in the order of its tokens: [blocks, B, Hkv, D] -> [L, Hkv, D].

    vLLM: none, the kernels never gather
    """
    block_size = cache.shape[1]
    places = torch.arange(seq_len, device=cache.device)  # [L]
    blocks = table_row[places // block_size].long()  # [L]
    return cache[blocks, places % block_size]  # [L, Hkv, D]


def attend(
    q: torch.Tensor,  # [n, Hq, D], the last n of the L tokens
    k: torch.Tensor,  # [L, Hkv, D]
    v: torch.Tensor,  # [L, Hkv, D]
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention of one sequence, whole softmax at once; gives [n, Hq, D] in q's dtype.

    vLLM: none, this is the formula
    """
    compute = torch.promote_types(q.dtype, torch.float32)
    num_queries, num_heads, _ = q.shape
    seq_len, num_kv_heads, _ = k.shape
    group = num_heads // num_kv_heads
    k = k.to(compute).repeat_interleave(group, dim=1)  # [L, Hq, D]; query head h reads KV head h // G
    v = v.to(compute).repeat_interleave(group, dim=1)  # [L, Hq, D]
    scores = scale * torch.einsum("nhd,lhd->hnl", q.to(compute), k)  # [Hq, n, L]
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    places = torch.arange(seq_len, device=q.device)  # [L]
    query_places = places[seq_len - num_queries :, None]  # [n, 1]
    seen = places <= query_places  # [n, L]
    if sliding_window > 0:
        seen &= places > query_places - sliding_window
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)  # [Hq, n, L]
    return torch.einsum("hnl,lhd->nhd", weights, v).to(q.dtype)  # [n, Hq, D]


def paged_decode(
    q: torch.Tensor,  # [R, Hq, D], one token a sequence
    k_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    v_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    block_table: torch.Tensor,  # int32[R, W]
    seq_lens: torch.Tensor,  # int32[R]
    scale: float,
    out: torch.Tensor,  # [R, Hq, D], written
) -> None:
    """`paged_attention` with one new token in every sequence.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    query_start_loc = torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)
    out.copy_(paged_attention(q, k_cache, v_cache, query_start_loc, seq_lens, block_table, scale))


def paged_decode_split(
    q: torch.Tensor,  # [R, Hq, D], one token a sequence
    k_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    v_cache: torch.Tensor,  # [blocks, B, Hkv, D]
    block_table: torch.Tensor,  # int32[R, W]
    seq_lens: torch.Tensor,  # int32[R]
    scale: float,
    out: torch.Tensor,  # [R, Hq, D], written
    num_segments: int,
) -> None:
    """The same as `paged_decode`: each segment of a sequence's keys by itself, then the segments joined.

    vLLM: v1/attention/ops/triton_unified_attention.py::reduce_segments
    """
    compute = torch.promote_types(q.dtype, torch.float32)
    num_kv_heads = k_cache.shape[2]
    out.zero_()
    for row, seq_len in enumerate(seq_lens.tolist()):
        query = q[row].to(compute).unflatten(0, (num_kv_heads, -1))  # [Hkv, G, D]
        largest = torch.full(query.shape[:2], -torch.inf, dtype=compute, device=q.device)  # [Hkv, G]
        total, acc = torch.zeros_like(largest), torch.zeros_like(query)  # [Hkv, G], [Hkv, G, D]
        if seq_len == 0:
            continue
        k = gather_kv(k_cache, block_table[row], seq_len).to(compute)  # [L, Hkv, D]
        v = gather_kv(v_cache, block_table[row], seq_len).to(compute)  # [L, Hkv, D]
        for keys, values in zip(k.tensor_split(num_segments), v.tensor_split(num_segments), strict=True):
            if len(keys):
                scores = scale * torch.einsum("kgd,lkd->kgl", query, keys)  # [Hkv, G, l]
                largest, total, acc = online_softmax_step(largest, total, acc, scores, values.transpose(0, 1))
        out[row] = (acc / total[..., None]).flatten(0, 1).to(q.dtype)  # [Hq, D]


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
    m_new = torch.maximum(m, s.amax(dim=-1))  # [..., G]
    finite = m_new.masked_fill(m_new == -torch.inf, 0.0)  # where no key has been seen, -inf - -inf would be NaN
    p = torch.exp(s - finite[..., None])  # [..., G, T]
    alpha = torch.exp(m - finite)  # [..., G]
    return m_new, l * alpha + p.sum(dim=-1), acc * alpha[..., None] + p @ v
