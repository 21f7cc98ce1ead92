"""A small cache and a mask to look at, in the notebook of lab 08.

Owns: nothing. Interface: numbered_cache, cache_rows, mask_rows.
Must not know: what is graded.
"""

from typing import Any

import numpy as np


def numbered_cache(table: list[int], seq_len: int, block_size: int, num_blocks: int) -> np.ndarray:
    """A cache [num_blocks, block_size, 1, 1] in which each key of one sequence is its own place; NaN elsewhere."""
    cache = np.full((num_blocks, block_size, 1, 1), np.nan)
    for place in range(seq_len):
        cache[table[place // block_size], place % block_size] = place
    return cache


def cache_rows(cache: np.ndarray) -> list[dict[str, Any]]:
    """A row for each block, for `minivllm.course.notebook.table`."""
    return [
        {"block": block}
        | {f"offset {i}": "" if np.isnan(key) else f"key {key:.0f}" for i, key in enumerate(keys[:, 0, 0])}
        for block, keys in enumerate(cache)
    ]


def mask_rows(num_queries: int, seq_len: int) -> list[dict[str, Any]]:
    """A row for each of the last num_queries tokens: which keys it sees."""
    return [
        {"query": i} | {f"key {p}": "x" if p <= seq_len - num_queries + i else "" for p in range(seq_len)}
        for i in range(num_queries)
    ]
