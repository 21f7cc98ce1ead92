"""A right solution of lab 07: loops over rows and tokens; holes are looked for in the list of rows."""

import numpy as np

from minivllm.boundary import boundary
from minivllm.core.sched_output import CachedRequestData, SchedulerOutput
from minivllm.course.grader import given
from minivllm.worker.batch import PAD_SLOT_ID, FlatBatch
from minivllm.worker.input_batch import CachedRequestState


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
    starts, positions, lengths = [0], [], []
    for computed, scheduled in zip(num_computed.tolist(), num_scheduled.tolist(), strict=True):
        positions += list(range(computed, computed + scheduled))
        starts.append(starts[-1] + scheduled)
        lengths.append(computed + scheduled)
    return starts, positions, lengths, [start - 1 for start in starts[1:]]


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
    tokens, slots = [], []
    for row in range(len(query_start_loc) - 1):
        for place in range(query_start_loc[row], query_start_loc[row + 1]):
            position = positions[place]
            tokens.append(token_ids[row][position])
            slots.append(int(block_table[row][position // block_size]) * block_size + position % block_size)
    return tokens, slots


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
    positions, input_ids, slot_mapping = positions.tolist(), list(input_ids), list(slot_mapping)
    while pad_to is not None and len(positions) < pad_to:
        positions.append(0)
        input_ids.append(0)
        slot_mapping.append(PAD_SLOT_ID)
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
        """Take the scheduler's plan in. The order decides who gets which row.

        Drop the ended; take the rows of those that get no tokens, or resume; remember the new; update the known; give
        rows to the new, in the plan's order, then to the known without one; close the holes.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._update_states
        """
        for req_id in plan.finished_req_ids:
            if req_id in self.requests:
                del self.requests[req_id]
            self.remove_request(req_id)
        for req_id in list(self.req_id_to_index):
            stays = req_id in plan.num_scheduled_tokens and req_id not in plan.scheduled_cached_reqs.resumed_req_ids
            if not stays:
                self.remove_request(req_id)
        states = []
        for new in plan.scheduled_new_reqs:
            states.append(self._remember(new))
        states.extend(self._update_known(plan.scheduled_cached_reqs))
        for state in states:
            self.add_request(state)
        self.condense()

    def _update_known(self, cached: CachedRequestData) -> list[CachedRequestState]:
        """Update the requests that the worker knows, and their rows; returns those that need a row, in this order.

        New blocks go behind a request's others; those of a resumed request replace them: its old ones are gone.
        """
        joining = []
        for req_id, new_block_ids, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self.requests[req_id]
            state.num_computed_tokens = num_computed
            added = [] if new_block_ids is None else new_block_ids
            resumed = req_id in cached.resumed_req_ids
            state.block_ids = [*([] if resumed else state.block_ids), *added]
            if req_id in self.req_id_to_index:
                row = self.req_id_to_index[req_id]
                self.num_computed_tokens_cpu[row] = num_computed
                self.block_table.add_row(state.block_ids, row)
            else:
                joining.append(state)
        return joining

    def add_request(self, state: CachedRequestState) -> int:
        """Give a request the lowest hole, or else a new row at the end; returns the row.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.add_request
        """
        if None not in self.req_ids:
            self.req_ids.append(None)
        row = self.req_ids.index(None)
        self.req_ids[row] = state.req_id
        self.req_id_to_index[state.req_id] = row
        num_prompt = len(state.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt] = state.prompt_token_ids
        self.token_ids_cpu[row, num_prompt : state.num_tokens] = state.output_token_ids
        self.num_computed_tokens_cpu[row] = state.num_computed_tokens
        self.block_table.add_row(state.block_ids, row)
        self._sampling_metadata = None
        return row

    def condense(self) -> None:
        """Fill holes from the end: the last row that is none moves into the lowest hole, until no hole is left.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.condense
        """
        while None in self.req_ids:
            if self.req_ids[-1] is None:
                self.req_ids.pop()
            else:
                self._move_last_row(self.req_ids.index(None))
