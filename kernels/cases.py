"""Batches over a paged cache, made to break kernels: for the tests, and for gpu_check.py.

Every slot that no token was written to holds NaN, so a read beyond the context shows. Tables are shuffled; what lies
behind a row's blocks in the table points at a block of NaN.
Interface: make_batch, product, pairwise; run_case compares all kernels with reference.py.
Must not know: pytest.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from minivllm_kernels import reference
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.tuning import TUNINGS, ReadTuning, Tuning, WriteTuning

HEADS = ((8, 1), (4, 2), (9, 3), (4, 4))  # (query heads, KV heads)
HEAD_SIZES = (16, 64, 80, 96, 128, 256)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# Largest difference to the reference, which computes in float32 and rounds once: absolute, and relative to the value.
# float32: the order of the sums. The half types: one unit in the last place, since the interpreter cuts bfloat16 off
# where a GPU rounds, and the weights are rounded before they meet V.
TOLERANCE = {torch.float32: (1e-5, 0.0), torch.bfloat16: (1.6e-2, 1.6e-2), torch.float16: (2e-3, 2e-3)}

# Sizes unlike vLLM's, and few programs, which is what takes time in the interpreter.
WIDE = Tuning(
    write=WriteTuning(tile=64, num_warps=4),
    prefill_table=((256, 8, ReadTuning(block_m=128, tile=64, num_warps=4, num_stages=1, longest_first=True)),),
    decode_table=((256, 8, ReadTuning(tile=128, num_warps=4, num_stages=1)),),
    split_table=((256, 8, ReadTuning(tile=64, num_warps=4, num_stages=1)),),
)
INTERPRETER_TUNINGS = {"wide": WIDE, "vllm": TUNINGS["interpreter"]}


@dataclass(frozen=True)
class Case:
    """One point of the grid of shapes.

    vLLM: none, tests only
    """

    heads: tuple[int, int]
    head_size: int
    block_size: int
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def __str__(self) -> str:
        query_heads, kv_heads = self.heads
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{query_heads}:{kv_heads}-D{self.head_size}-B{self.block_size}-{dtype}"


@dataclass
class Batch:
    """A flat batch, its cache, and the K and V of all its tokens.

    vLLM: none, tests only
    """

    q: torch.Tensor  # [T, Hq, D], a slice of a wider tensor: tokens are not neighbours
    key: torch.Tensor  # [tokens of all sequences, Hkv, D], another slice
    value: torch.Tensor
    kv_cache: torch.Tensor  # [blocks, 2, B, Hkv, D]
    query_start_loc: torch.Tensor  # int32[R + 1]
    seq_lens: torch.Tensor  # int32[R]
    block_table: torch.Tensor  # int32[R, W]
    slot_mapping: torch.Tensor  # int64, of all tokens of all sequences
    is_new: torch.Tensor  # bool, which of them belong to this step
    scale: float

    def to(self, device: torch.device | str) -> "Batch":
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return Batch(**{n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in moved.items()})


def lengths(block_size: int, seed: int = 0, num_seqs: int = 8) -> list[tuple[int, int]]:
    """(new tokens, all tokens) of each sequence: contexts at the borders of blocks, with 1 to 3 blocks of new tokens.

    Contexts (tokens of earlier steps) 0, 1, B - 1, B, B + 1, 3B + 2; among the sequences a padding row of length 0
    with a token, and one without.

    vLLM: none, tests only
    """
    choose = random.Random(seed)
    contexts = [0, 1, block_size - 1, block_size, block_size + 1, 3 * block_size + 2]
    news = [1, 1, 2, block_size, block_size + 1, 3 * block_size]
    choose.shuffle(news)
    found = [(new, new + context) for new, context in zip(news, contexts, strict=True)]
    found += [(1, 0), (0, 0)]
    while len(found) < num_seqs:
        context = choose.choice(contexts)
        new = choose.choice([1, 1, choose.randint(1, 3 * block_size)])
        found.append((new, new + context))
    choose.shuffle(found)
    return found[:num_seqs]


def make_batch(case: Case, rows: Sequence[tuple[int, int]]) -> Batch:
    """A batch of sequences with rows of (new tokens, all tokens), on the CPU. Writes nothing to the cache but NaN.

    vLLM: none, tests only
    """
    query_heads, kv_heads = case.heads
    size, block_size = case.head_size, case.block_size
    randomness = torch.Generator().manual_seed(case.seed)
    num_blocks = [-(-seq_len // block_size) for _, seq_len in rows]
    trap = 0  # never written: what a table holds behind a row's blocks
    pool = list(range(1, sum(num_blocks) + 3))
    random.Random(case.seed).shuffle(pool)
    # as wide as the longest row, so that reading behind it would leave the table
    table = torch.full((len(rows), max([1, *num_blocks])), trap, dtype=torch.int32)
    slots, is_new = [], []
    for row, (count, (new, seq_len)) in enumerate(zip(num_blocks, rows, strict=True)):
        blocks = [pool.pop() for _ in range(count)]
        table[row, :count] = torch.tensor(blocks, dtype=torch.int32)
        slots += [blocks[place // block_size] * block_size + place % block_size for place in range(seq_len)]
        is_new += [place >= seq_len - new for place in range(seq_len)]
    new_tokens = [new for new, _ in rows]
    qkv = torch.randn(len(slots), (2 * kv_heads) * size + 16, generator=randomness).to(case.dtype)
    key, value = qkv[:, :-16].split(kv_heads * size, dim=1)
    wide_query = torch.randn(sum(new_tokens), query_heads * size + 16, generator=randomness).to(case.dtype)
    return Batch(
        q=wide_query[:, :-16].unflatten(1, (query_heads, size)),
        key=key.unflatten(1, (kv_heads, size)),
        value=value.unflatten(1, (kv_heads, size)),
        kv_cache=torch.full((sum(num_blocks) + 3, 2, block_size, kv_heads, size), torch.nan, dtype=case.dtype),
        query_start_loc=torch.tensor([0, *itertools.accumulate(new_tokens)], dtype=torch.int32),
        seq_lens=torch.tensor([seq_len for _, seq_len in rows], dtype=torch.int32),
        block_table=table,
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        is_new=torch.tensor(is_new, dtype=torch.bool),
        scale=size**-0.5,
    )


def product() -> Iterator[Case]:
    """The whole grid of shapes.

    vLLM: none, tests only
    """
    for seed, values in enumerate(itertools.product(HEADS, HEAD_SIZES, BLOCK_SIZES, DTYPES)):
        yield Case(*values, seed=seed)


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Few combinations in which each value of each axis meets each value of each other axis; greedy, always the same.

    vLLM: none, tests only
    """
    sides = list(itertools.combinations(range(len(axes)), 2))
    missing = {(a, b, i, j) for a, b in sides for i in range(len(axes[a])) for j in range(len(axes[b]))}
    chosen = []
    everything = list(itertools.product(*(range(len(axis)) for axis in axes)))
    while missing:
        best = max(everything, key=lambda c: sum((a, b, c[a], c[b]) in missing for a, b in sides))
        missing -= {(a, b, best[a], best[b]) for a, b in sides}
        chosen.append(tuple(axis[index] for axis, index in zip(axes, best, strict=True)))
    return chosen


def run_case(
    case: Case, rows: Sequence[tuple[int, int]], device: torch.device | str, tuning: Tuning
) -> dict[str, float]:
    """All kernels against the reference on one batch: the largest difference of each.

    Raises AssertionError naming the kernel when one is not within TOLERANCE.

    vLLM: none, tests only
    """
    batch = make_batch(case, rows).to(device)
    caches = batch.kv_cache.unbind(1)
    # Tokens of earlier steps lie in the cache already. Here they have slot -1, as padding has.
    reference.reshape_and_cache(batch.key, batch.value, *caches, batch.slot_mapping.where(~batch.is_new, -1))
    new_slots = batch.slot_mapping.where(batch.is_new, -1)
    expected_cache = batch.kv_cache.clone()
    reference.reshape_and_cache(batch.key, batch.value, *expected_cache.unbind(1), new_slots)
    reshape_and_cache(batch.key, batch.value, *caches, new_slots, tuning=tuning.write)
    assert torch.equal(batch.kv_cache.isnan(), expected_cache.isnan()), f"{case}: reshape_and_cache wrote elsewhere"
    differences = {"reshape_and_cache": _compare(case, "reshape_and_cache", batch.kv_cache, expected_cache)}

    size, width = case.head_size, batch.q.element_size()
    flat = (*caches, batch.query_start_loc, batch.seq_lens, batch.block_table, batch.scale)
    expected = reference.paged_attention(batch.q, *flat)
    got = paged_attention(batch.q, *flat, tuning=tuning.prefill(size, width))
    differences["paged_attention"] = _compare(case, "paged_attention", got, expected)

    # one token of each sequence: its first in the flat batch, or any where it has none
    tokens = batch.query_start_loc[:-1].clamp(max=batch.q.shape[0] - 1).long()
    queries = batch.q[tokens]
    shared = (*caches, batch.block_table, batch.seq_lens, batch.scale)
    expected = torch.empty_like(queries)
    reference.paged_decode(queries, *shared, expected)
    out = torch.full_like(queries, torch.nan)
    paged_decode(queries, *shared, out, tuning=tuning.decode(size, width))
    differences["paged_decode"] = _compare(case, "paged_decode", out, expected)
    out = torch.full_like(queries, torch.nan)
    paged_decode_split(queries, *shared, out, 4, tuning=tuning.split(size, width))
    differences["paged_decode_split"] = _compare(case, "paged_decode_split", out, expected)
    return differences


def _compare(case: Case, kernel: str, got: torch.Tensor, expected: torch.Tensor) -> float:
    absolute, relative = TOLERANCE[case.dtype]
    torch.testing.assert_close(
        got, expected, atol=absolute, rtol=relative, equal_nan=kernel == "reshape_and_cache", msg=f"{case}: {kernel}"
    )
    difference = (got.float() - expected.float()).abs().nan_to_num(0.0)
    return difference.max().item() if difference.numel() else 0.0
