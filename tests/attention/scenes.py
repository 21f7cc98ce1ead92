"""What attention backends are tried on: rows with blocks all over a cache that holds NaN where nothing was written."""

import random

import torch
from hypothesis import strategies as st
from paged_driver import common_metadata

from minivllm.attention.selector import get_attn_backend
from minivllm.config import AttentionBackendName


def dense_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """query [Tq, Hq, D] of the last tokens of key and value [Tk, Hkv, D], in float64 with a dense causal mask."""
    group = query.shape[1] // key.shape[1]
    query = query.double()
    key, value = (x.double().repeat_interleave(group, dim=1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
    places = torch.arange(key.shape[0])
    hidden = places[None, :] > places[key.shape[0] - query.shape[0] :, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


class Scene:
    """A cache full of NaN, rows with blocks drawn from a shuffled pool, and the K and V of all their tokens."""

    def __init__(
        self,
        query_lens: list[int],
        seq_lens: list[int],
        heads: int = 4,
        kv_heads: int = 2,
        head_size: int = 16,
        block_size: int = 4,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        backend: AttentionBackendName = "torch",
    ) -> None:
        randomness = torch.Generator().manual_seed(seed)
        needed = [-(-length // block_size) for length in seq_lens]
        pool = list(range(1, sum(needed) + 3))  # block 0 is nobody's, and two more stay unused
        random.Random(seed).shuffle(pool)
        self.block_tables = [[pool.pop() for _ in range(count)] for count in needed]
        self.query_lens, self.seq_lens = query_lens, seq_lens
        self.backend = get_attn_backend(
            backend,
            "cpu",
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_size=head_size,
            block_size=block_size,
            dtype=dtype,
        )
        shape = self.backend.kv_cache_shape(sum(needed) + 3, block_size, kv_heads, head_size)
        self.kv_cache = torch.full(shape, torch.nan, dtype=dtype)
        self.keys, self.values = (
            [torch.randn(length, kv_heads, head_size, generator=randomness).to(dtype) for length in seq_lens]
            for _ in range(2)
        )
        self.query = torch.randn(sum(query_lens), heads, head_size, generator=randomness).to(dtype)
        everything = common_metadata(seq_lens, seq_lens, self.block_tables, block_size)
        self.backend.do_kv_cache_update(
            0, torch.cat(self.keys), torch.cat(self.values), self.kv_cache, everything.slot_mapping
        )
        self.common = common_metadata(query_lens, seq_lens, self.block_tables, block_size)

    def attend(self) -> torch.Tensor:
        return self.backend.forward(0, self.query, self.kv_cache, self.backend.build(self.common))

    def expected(self) -> torch.Tensor:
        rows = zip(self.query.split(self.query_lens), self.keys, self.values, strict=True)
        return torch.cat([dense_attention(query, key, value) for query, key, value in rows])


@st.composite
def row_lengths(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(new tokens, all tokens) of each row; a row of nothing among them at times."""
    row = st.tuples(st.sampled_from([0, 1, 1, 1, 2, 5, 17]), st.integers(0, 70))
    rows = draw(st.lists(row, min_size=1, max_size=8))
    return [(new, new + before) for new, before in rows]
