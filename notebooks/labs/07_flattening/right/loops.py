"""A right solution of lab 07: loops over rows and tokens; holes are looked for in the list of rows."""


def locate_tokens(
    num_computed: np.ndarray, num_scheduled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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
    @boundary("update_states")
    def update_states(self, plan: SchedulerOutput) -> None:
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
        while None in self.req_ids:
            if self.req_ids[-1] is None:
                self.req_ids.pop()
            else:
                self._move_last_row(self.req_ids.index(None))
