"""The flat batch against plain loops."""

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.worker.batch import PAD_SLOT_ID, FlatBatch, flatten

Row = tuple[int, int, list[int], list[int]]  # computed, scheduled, tokens, blocks


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], int, int]:
    """(rows, block size, padding)."""
    block_size = draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(0, 5))):
        computed, scheduled = draw(st.integers(0, 9)), draw(st.integers(1, 6))
        total = computed + scheduled
        tokens = draw(st.lists(st.integers(0, 2**31 - 1), min_size=total, max_size=total))
        num_blocks = -(-total // block_size)
        blocks = draw(st.lists(st.integers(0, 2**31 - 1), min_size=num_blocks, max_size=num_blocks))
        rows.append((computed, scheduled, tokens, blocks))
    return rows, block_size, draw(st.integers(0, 4))


def flatten_with_loops(rows: list[Row], block_size: int, padding: int) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "input_ids": [],
        "positions": [],
        "query_start_loc": [0],
        "seq_lens": [],
        "slot_mapping": [],
        "logits_indices": [],
    }
    for computed, scheduled, tokens, blocks in rows:
        for position in range(computed, computed + scheduled):
            flat["input_ids"].append(tokens[position])
            flat["positions"].append(position)
            flat["slot_mapping"].append(blocks[position // block_size] * block_size + position % block_size)
        flat["query_start_loc"].append(len(flat["input_ids"]))
        flat["seq_lens"].append(computed + scheduled)
        flat["logits_indices"].append(len(flat["input_ids"]) - 1)
    flat["num_actual_tokens"] = len(flat["input_ids"])
    flat["input_ids"] += [0] * padding
    flat["positions"] += [0] * padding
    flat["slot_mapping"] += [PAD_SLOT_ID] * padding
    return flat


def flatten_rows(rows: list[Row], block_size: int, pad_to: int | None) -> FlatBatch:
    """The arrays as InputBatch has them: wider than any row, the rest full of rubbish."""
    token_ids = np.full((len(rows) + 1, 20), 77, dtype=np.int32)
    block_table = np.full((len(rows) + 1, 20), 88, dtype=np.int32)
    for index, (_, _, tokens, blocks) in enumerate(rows):
        token_ids[index, : len(tokens)] = tokens
        block_table[index, : len(blocks)] = blocks
    computed = np.array([row[0] for row in rows], dtype=np.int32)
    scheduled = np.array([row[1] for row in rows], dtype=np.int32)
    return flatten(computed, scheduled, token_ids, block_table, block_size, pad_to)


@settings(max_examples=300)
@given(batches())
def test_flatten_is_what_loops_give(batch: tuple[list[Row], int, int]) -> None:
    rows, block_size, padding = batch
    wanted = flatten_with_loops(rows, block_size, padding)
    pad_to = wanted["num_actual_tokens"] + padding if padding else None
    flat = flatten_rows(rows, block_size, pad_to)
    for name, value in wanted.items():
        got = getattr(flat, name)
        assert (got if isinstance(got, int) else got.tolist()) == value, name
    assert {field.name for field in fields(flat)} == set(wanted)


def test_types_are_those_that_the_kernels_read() -> None:
    flat = flatten_rows([(3, 2, [1] * 5, [4, 9])], 4, pad_to=3)
    assert {field.name: str(getattr(flat, field.name).dtype) for field in fields(flat)[:-1]} == {
        "input_ids": "int32",
        "positions": "int64",
        "query_start_loc": "int32",
        "seq_lens": "int32",
        "slot_mapping": "int64",
        "logits_indices": "int64",
    }
