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


def locate_tokens(
    num_computed: np.ndarray, num_scheduled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where every token of the step stands: (query_start_loc, positions, seq_lens, logits_indices).

    query_start_loc: int[R + 1]; the place in the flat batch where each row's tokens begin, and last the end of all, T.
    positions: int[T]; each token's position in its request.
    seq_lens: int[R]; the tokens of each row whose K and V exist after the step.
    logits_indices: int[R]; the place of each row's last token in the flat batch.

    num_computed, num_scheduled: int32[R]; the row's tokens before this step, and those of this step, at least 1. They
    belong to the caller, and stay as they are.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    cumulative = np.cumsum(num_scheduled, dtype=np.int64)
    query_start_loc = np.concatenate([[0], cumulative])
    req_indices = np.repeat(np.arange(len(num_scheduled)), num_scheduled)  # [2, 3] -> 0 0 1 1 1
    query_pos = np.arange(len(req_indices)) - query_start_loc[req_indices]  # 0 1 0 1 2
    positions = num_computed[req_indices] + query_pos
    seq_lens = num_computed + num_scheduled
    logits_indices = cumulative - 1
    return query_start_loc, positions, seq_lens, logits_indices


def read_tables(
    query_start_loc: np.ndarray,
    positions: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """What the tables of tokens and of blocks say of each token of the step: (input_ids, slot_mapping), both int[T].

    input_ids: which token it is. slot_mapping: the slot that its K and V go to.

    query_start_loc, positions: of locate_tokens, int64. token_ids: int32[>= R, >= tokens of the row], by row and
    position. block_table: int32[>= R, >= blocks of the row], by row and position // block_size.

    vLLM: v1/worker/block_table.py::BlockTable.compute_slot_mapping (with the token ids of _prepare_inputs)
    """
    req_indices = np.repeat(np.arange(len(query_start_loc) - 1), np.diff(query_start_loc))
    blocks = block_table[req_indices, positions // block_size].astype(np.int64)
    slot_mapping = blocks * block_size + positions % block_size
    return token_ids[req_indices, positions], slot_mapping


def flatten(
    num_computed: np.ndarray,
    num_scheduled: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
    pad_to: int | None = None,
) -> FlatBatch:
    """Lay the scheduled tokens of all rows side by side.

    num_computed, num_scheduled, token_ids, block_table: as in locate_tokens and read_tables.
    pad_to: length to pad T to, never less than T; None: no padding. Padding stands at the end, has token 0, position 0
    and slot -1, and belongs to no row.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    query_start_loc, positions, seq_lens, logits_indices = locate_tokens(num_computed, num_scheduled)
    query_start_loc, positions = np.asarray(query_start_loc), np.asarray(positions)
    input_ids, slot_mapping = read_tables(query_start_loc, positions, token_ids, block_table, block_size)
    num_tokens = len(positions)
    # >>> lab 07.4 lengthen input_ids, positions and slot_mapping to pad_to, if it is given
    num_padding = (pad_to or num_tokens) - num_tokens
    input_ids = np.pad(input_ids, (0, num_padding))
    positions = np.pad(positions, (0, num_padding))
    slot_mapping = np.pad(slot_mapping, (0, num_padding), constant_values=PAD_SLOT_ID)
    # <<< lab 07.4
    return FlatBatch(
        input_ids=np.asarray(input_ids, dtype=np.int32),
        positions=np.asarray(positions, dtype=np.int64),
        query_start_loc=np.asarray(query_start_loc, dtype=np.int32),
        seq_lens=np.asarray(seq_lens, dtype=np.int32),
        slot_mapping=np.asarray(slot_mapping, dtype=np.int64),
        logits_indices=np.asarray(logits_indices, dtype=np.int64),
        num_actual_tokens=num_tokens,
    )
