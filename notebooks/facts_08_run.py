"""For notebook 08: the flat batch of a traced step, given to the kernels again in Triton's interpreter, on a CPU.

Owns: nothing.
Interface: can_run; flat_batch, FlatBatch; attend, change, show_spoilt; cells_written; carried.
Must not know: how a kernel works.

Places and lengths are those of the trace, the numbers in them are random.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from minivllm.course.notebook.html import note
from minivllm.course.notebook.tables import table
from minivllm.lessons.facts_08 import HEAD_SIZE, HEADS, KV_HEADS
from minivllm.trace import Trace

POOL = 32  # blocks, of the scenarios' settings
NEEDS_TRITON = "not known here: it needs Triton, which exists for Linux"


def can_run() -> bool:
    """Whether kernels run in this process: Triton is there (it exists for Linux), and it interprets.

    Chooses the interpreter, so call it before anything imports triton.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    from minivllm_kernels import interpreter

    interpreter.speed_up()
    return interpreter.is_interpreting()


@dataclass
class FlatBatch:
    """What a kernel is handed for one step. The numbers are random, places and lengths are those of the trace.

    vLLM: v1/attention/backend.py::CommonAttentionMetadata (with the tensors of one layer)
    """

    query: Any  # float32[T, Hq, D]
    kv_cache: Any  # float32[blocks, 2, block_size, Hkv, D]; NaN in every cell that no token was written to
    query_start_loc: list[int]
    seq_lens: list[int]
    tables: list[list[int]]  # block ids, row by row
    slot_mapping: list[int]

    @property
    def block_size(self) -> int:
        return self.kv_cache.shape[2]

    def with_nan(self, block: int, cell: int, kv_head: int) -> "FlatBatch":
        """The same with one key of one KV head set to NaN."""
        kv_cache = self.kv_cache.clone()
        kv_cache[block, 0, cell, kv_head] = float("nan")
        return replace(self, kv_cache=kv_cache)

    def without_nan(self) -> "FlatBatch":
        """The same with zeros where no token was written."""
        return replace(self, kv_cache=self.kv_cache.nan_to_num(0.0))


def flat_batch(trace: Trace, step: int) -> FlatBatch:
    """The flat batch of a step, from the trace's prepare_inputs and the rows of its state.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    import torch

    (event,) = trace.filter(step=step, kind="prepare_inputs")
    tables = [list(row.block_ids) for row in trace.state_at(event.seq).rows]
    size = trace.header.config.get("block_size", 16)
    randomness = torch.Generator().manual_seed(0)
    query = torch.randn(event.num_tokens, HEADS, HEAD_SIZE, generator=randomness)
    values = torch.randn(max(map(max, tables)) + 1, 2, size, KV_HEADS, HEAD_SIZE, generator=randomness)
    kv_cache = torch.full_like(values, torch.nan)
    for blocks, seq_len in zip(tables, event.seq_lens, strict=True):
        for place in range(seq_len):
            cell = blocks[place // size], slice(None), place % size
            kv_cache[cell] = values[cell]
    return FlatBatch(query, kv_cache, event.query_start_loc, event.seq_lens, tables, event.slot_mapping)


def attend(batch: FlatBatch, form: str | None = None) -> Any:
    """Run the kernel that reads the cache; gives its output [T, Hq, D].

    form: varlen, decode or split; None: the one that the rule chooses.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    import torch

    from minivllm_kernels import paged_attention, paged_decode, tuning

    lens = [end - start for start, end in pairwise(batch.query_start_loc)]
    form = form or tuning.choose_form(len(lens), sum(lens), max(lens), KV_HEADS)
    block_table = torch.zeros(len(batch.tables), max(map(len, batch.tables)), dtype=torch.int32)
    for row, blocks in enumerate(batch.tables):
        block_table[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
    seq_lens, scale = torch.tensor(batch.seq_lens, dtype=torch.int32), HEAD_SIZE**-0.5
    caches = batch.kv_cache.unbind(1)
    if form == "varlen":
        starts = torch.tensor(batch.query_start_loc, dtype=torch.int32)
        return paged_attention.paged_attention(batch.query, *caches, starts, seq_lens, block_table, scale)
    out = torch.zeros_like(batch.query)
    shared = (batch.query, *caches, block_table, seq_lens, scale, out)
    if form == "split":
        paged_decode.paged_decode_split(*shared, tuning.NUM_SEGMENTS)
    else:
        paged_decode.paged_decode(*shared)
    return out


def change(a: FlatBatch, b: FlatBatch, form_of_b: str | None = None) -> str:
    """The largest difference of the outputs of two batches, in words."""
    if not can_run():
        return NEEDS_TRITON
    difference = float((attend(a) - attend(b, form_of_b)).abs().max())
    return (
        "0, to the last bit"
        if difference == 0
        else "below one in a million"
        if difference < 1e-6
        else "more than rounding"
    )


def show_spoilt(batch: FlatBatch, names: str) -> None:
    """A table of requests and query heads: where the output is NaN."""
    if not can_run():
        note(NEEDS_TRITON)
        return
    spoilt = attend(batch).isnan().any(-1).tolist()
    rows = [(name, *("NaN" if head else "·" for head in heads)) for name, heads in zip(names, spoilt, strict=True)]
    table(rows, ("request", *(f"head {head}" for head in range(HEADS))))


def cells_written(slots: list[int], num_blocks: int = POOL, block_size: int = 16) -> int:
    """How many cells of an empty cache are written by the write kernel for these slots; -1 means: not a token.

    Without Triton the reference in torch writes.

    vLLM: v1/attention/ops/triton_reshape_and_cache_flash.py::triton_reshape_and_cache_flash
    """
    import torch

    if can_run():
        from minivllm_kernels.reshape_and_cache import reshape_and_cache
    else:
        from minivllm_kernels.reference import reshape_and_cache
    key = torch.ones(len(slots), KV_HEADS, HEAD_SIZE)
    kv_cache = torch.full((num_blocks, 2, block_size, KV_HEADS, HEAD_SIZE), torch.nan)
    reshape_and_cache(key, key, *kv_cache.unbind(1), torch.tensor(slots))
    return int((~kv_cache[:, 0, :, 0, 0].isnan()).sum())


def carried(query: Any, keys: Any, tile: int) -> Iterator[tuple[int, int, float, float, float]]:
    """(first key, last key, running max, correction, sum) after each tile, for one query [D] and its keys [L, D].

    vLLM: v1/attention/ops/triton_attention_helpers.py::softmax_step
    """
    import torch

    from minivllm_kernels.reference import online_softmax_step

    scores = torch.as_tensor(keys).float() @ torch.as_tensor(query).float() * HEAD_SIZE**-0.5
    largest, total, acc = torch.tensor([-torch.inf]), torch.zeros(1), torch.zeros(1, 1)
    for first in range(0, len(scores), tile):
        part = scores[None, first : first + tile]
        before = largest
        largest, total, acc = online_softmax_step(largest, total, acc, part, torch.zeros(part.shape[1], 1))
        correction = float(torch.exp(before - largest)) if first else 1.0
        yield first, first + part.shape[1] - 1, float(largest), correction, float(total)
