"""FlatBatch: all tokens of a step in one row, and the arrays that say whose they are. Made by `flatten`.

There is no padding and no batch dimension: token t of the flat batch belongs to one request (row), has one position in
it, and its K and V go to one slot of the cache.
"""

from dataclasses import dataclass

import numpy as np

PAD_SLOT_ID = -1  # K and V of a token with this slot are not written


@dataclass(slots=True)
class FlatBatch:
    """R rows, T tokens of this step (padding included, if asked for).

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs (its results, in one place)
    """

    input_ids: np.ndarray  # int32[T]
    positions: np.ndarray  # int64[T], within the request
    query_start_loc: np.ndarray  # int32[R + 1]; row r holds tokens query_start_loc[r] .. query_start_loc[r + 1] - 1
    seq_lens: np.ndarray  # int32[R]; tokens of row r whose K and V exist after this step
    slot_mapping: np.ndarray  # int64[T]; slot s is offset s % block_size of block s // block_size
    logits_indices: np.ndarray  # int64[R]; the last token of every row
    num_actual_tokens: int  # T without padding


def flatten(
    num_computed: np.ndarray,
    num_scheduled: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
    pad_to: int | None = None,
) -> FlatBatch:
    """Lay the scheduled tokens of all rows side by side.

    num_computed, num_scheduled: int32[R]. token_ids: int32[R, >= tokens of the row]. block_table: int32[R, W].
    pad_to: length to pad T to; padding has position 0, slot -1, token 0, and belongs to no row.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    num_rows = len(num_scheduled)
    cumulative = np.cumsum(num_scheduled, dtype=np.int64)
    num_tokens = int(cumulative[-1]) if num_rows else 0
    query_start_loc = np.zeros(num_rows + 1, dtype=np.int32)
    query_start_loc[1:] = cumulative

    req_indices = np.repeat(np.arange(num_rows), num_scheduled)  # [2, 3] -> 0 0 1 1 1
    query_pos = np.arange(num_tokens) - query_start_loc[req_indices]  # 0 1 0 1 2
    positions = num_computed[req_indices] + query_pos
    blocks = block_table[req_indices, positions // block_size].astype(np.int64)
    slot_mapping = blocks * block_size + positions % block_size
    input_ids = token_ids[req_indices, positions]

    num_padding = (pad_to or num_tokens) - num_tokens
    return FlatBatch(
        input_ids=np.pad(input_ids, (0, num_padding)).astype(np.int32),
        positions=np.pad(positions, (0, num_padding)).astype(np.int64),
        query_start_loc=query_start_loc,
        seq_lens=(num_computed + num_scheduled).astype(np.int32),
        slot_mapping=np.pad(slot_mapping, (0, num_padding), constant_values=PAD_SLOT_ID),
        logits_indices=cumulative - 1,
        num_actual_tokens=num_tokens,
    )
