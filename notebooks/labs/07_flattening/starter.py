"""Lab 07 · Flattening

Write down positions, query_start_loc, seq_lens and slots of any mixed batch by hand.

    7.1  positions, starts and lengths (15 points)
    7.2  token ids and slots (15 points)
    7.3  the rows of the batch (20 points)
    7.4  padding (10 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 07
"""

import heapq

import numpy as np

from minivllm.boundary import boundary
from minivllm.core.sched_output import CachedRequestData, SchedulerOutput
from minivllm.labs import given
from minivllm.worker.batch import PAD_SLOT_ID, FlatBatch
from minivllm.worker.input_batch import CachedRequestState


def locate_tokens(
    num_computed: np.ndarray, num_scheduled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where every token of the step stands, (query_start_loc, positions, seq_lens, logits_indices):
    where each row's tokens begin in the flat batch, and where the last ones end [R + 1]; the position of each token in
    its request [T]; the tokens of each row whose K and V exist after the step [R]; each row's last token in the flat
    batch [R].

    num_computed, num_scheduled: int32[R]; the row's tokens before this step, and those of this step.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    raise NotImplementedError("Lab 7.1: where each row begins, where each token stands, how long each row is")


def read_tables(
    query_start_loc: np.ndarray,
    positions: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """What the tables of tokens and of blocks say of each token: (input_ids, slot_mapping).

    query_start_loc, positions: of locate_tokens. token_ids: int32[R, >= tokens of the row]. block_table: int32[R, W].

    vLLM: v1/worker/block_table.py::BlockTable.compute_slot_mapping (with the token ids of _prepare_inputs)
    """
    raise NotImplementedError("Lab 7.2: the token at each position of its row, and the slot that its K and V go to")


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
    query_start_loc, positions, seq_lens, logits_indices = locate_tokens(num_computed, num_scheduled)
    query_start_loc, positions = np.asarray(query_start_loc), np.asarray(positions)
    input_ids, slot_mapping = read_tables(query_start_loc, positions, token_ids, block_table, block_size)
    num_tokens = len(positions)
    raise NotImplementedError("Lab 7.4: lengthen input_ids, positions and slot_mapping to pad_to, if it is given")
    return FlatBatch(
        input_ids=np.asarray(input_ids, dtype=np.int32),
        positions=np.asarray(positions, dtype=np.int64),
        query_start_loc=np.asarray(query_start_loc, dtype=np.int32),
        seq_lens=np.asarray(seq_lens, dtype=np.int32),
        slot_mapping=np.asarray(slot_mapping, dtype=np.int64),
        logits_indices=np.asarray(logits_indices, dtype=np.int64),
        num_actual_tokens=num_tokens,
    )


class InputBatch(given.InputBatch):
    """vLLM: v1/worker/gpu_input_batch.py::InputBatch (with GPUModelRunner.requests and ._update_states)"""

    @boundary("update_states")
    def update_states(self, plan: SchedulerOutput) -> None:
        """Take the scheduler's plan in: drop, add, extend, and close the holes. The order decides who gets which row.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._update_states
        """
        raise NotImplementedError("Lab 7.3: drop the ended and the unscheduled, add those that join, close the holes")

    def _update_known(self, cached: CachedRequestData) -> list[CachedRequestState]:
        """Update the requests that the worker knows, and their rows; returns those that need a row."""
        joining = []
        for req_id, new_block_ids, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self.requests[req_id]
            raise NotImplementedError("Lab 7.3: count and blocks, remembered and in the row; who has no row joins")
        return joining

    def add_request(self, state: CachedRequestState) -> int:
        """Give a request the lowest free row; returns it.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.add_request
        """
        raise NotImplementedError("Lab 7.3: the lowest hole, or a new row at the end: row, and its place in req_ids")
        self.req_id_to_index[state.req_id] = row
        num_prompt = len(state.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt] = state.prompt_token_ids
        self.token_ids_cpu[row, num_prompt : state.num_tokens] = state.output_token_ids
        self.num_computed_tokens_cpu[row] = state.num_computed_tokens
        self.block_table.add_row(state.block_ids, row)
        self._sampling_metadata = None
        return row

    def condense(self) -> None:
        """Fill holes from the end: the last row moves into the lowest hole, until there is none.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.condense
        """
        raise NotImplementedError("Lab 7.3: while there is a hole: the last row moves into the lowest")
