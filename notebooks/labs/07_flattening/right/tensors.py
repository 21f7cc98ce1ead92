"""A right solution of lab 07: torch; the rows as two sets of numbers."""

import torch


def locate_tokens(
    num_computed: np.ndarray, num_scheduled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    computed, scheduled = torch.as_tensor(num_computed).long(), torch.as_tensor(num_scheduled).long()
    ends = scheduled.cumsum(0)
    shift = computed - (ends - scheduled)  # from place in the batch to position
    positions = torch.arange(int(scheduled.sum())) + shift.repeat_interleave(scheduled)
    return torch.cat([torch.zeros(1, dtype=torch.int64), ends]), positions, computed + scheduled, ends - 1


def read_tables(
    query_start_loc: np.ndarray,
    positions: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    starts, places = torch.as_tensor(query_start_loc).long(), torch.as_tensor(positions).long()
    owners = torch.arange(len(starts) - 1).repeat_interleave(starts.diff())
    width = block_table.shape[1]
    columns = places.div(block_size, rounding_mode="floor")
    blocks = torch.as_tensor(block_table).long().flatten()[owners * width + columns]
    tokens = torch.as_tensor(token_ids)[owners, places]
    return tokens, blocks * block_size + places.remainder(block_size)


def flatten(
    num_computed: np.ndarray,
    num_scheduled: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
    pad_to: int | None = None,
) -> FlatBatch:
    query_start_loc, positions, seq_lens, logits_indices = locate_tokens(num_computed, num_scheduled)
    query_start_loc, positions = np.asarray(query_start_loc), np.asarray(positions)
    input_ids, slot_mapping = read_tables(query_start_loc, positions, token_ids, block_table, block_size)
    num_tokens = len(positions)
    missing = 0 if pad_to is None else pad_to - num_tokens
    input_ids = torch.cat([torch.as_tensor(input_ids), torch.zeros(missing, dtype=torch.int64)])
    positions = torch.cat([torch.as_tensor(positions), torch.zeros(missing, dtype=torch.int64)])
    slot_mapping = torch.cat([torch.as_tensor(slot_mapping), torch.full((missing,), PAD_SLOT_ID)])
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
    @boundary("update_states")
    def update_states(self, plan: SchedulerOutput) -> None:
        known, resumed = plan.scheduled_cached_reqs, plan.scheduled_cached_reqs.resumed_req_ids
        for req_id in plan.finished_req_ids:
            self.requests.pop(req_id, None)
        going_on = set(known.req_ids) - resumed - plan.finished_req_ids
        for req_id in set(self.req_id_to_index) - going_on:
            self.remove_request(req_id)
        for new in plan.scheduled_new_reqs:
            self.add_request(self._remember(new))
        for state in self._update_known(known):
            self.add_request(state)
        self.condense()

    def _update_known(self, cached: CachedRequestData) -> list[CachedRequestState]:
        joining = []
        for req_id, new_block_ids, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self.requests[req_id]
            if req_id in cached.resumed_req_ids:
                state.block_ids.clear()
            state.block_ids += new_block_ids or []
            state.num_computed_tokens = num_computed
            row = self.req_id_to_index.get(req_id, -1)
            if row < 0:
                joining.append(state)
            else:
                self.num_computed_tokens_cpu[row] = num_computed
                self.block_table.append_row(new_block_ids or [], row)
        return joining

    def add_request(self, state: CachedRequestState) -> int:
        free = [number for number, req_id in enumerate(self.req_ids) if req_id is None]
        row = min(free, default=len(self.req_ids))
        if free:
            self._holes.remove(row)
            heapq.heapify(self._holes)
        self.req_ids[row : row + 1] = [state.req_id]
        self.req_id_to_index[state.req_id] = row
        num_prompt = len(state.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt] = state.prompt_token_ids
        self.token_ids_cpu[row, num_prompt : state.num_tokens] = state.output_token_ids
        self.num_computed_tokens_cpu[row] = state.num_computed_tokens
        self.block_table.add_row(state.block_ids, row)
        self._sampling_metadata = None
        return row

    def condense(self) -> None:
        num_live = len(self.req_id_to_index)
        holes = [number for number in range(num_live) if self.req_ids[number] is None]
        for hole in holes:
            while self.req_ids[-1] is None:
                self.req_ids.pop()
            self._move_last_row(hole)
        del self.req_ids[num_live:]
        self._holes.clear()
