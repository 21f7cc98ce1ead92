"""A right solution of lab 07: rows by binary search, slots from a table of all slots; rows by two lists."""


def locate_tokens(
    num_computed: np.ndarray, num_scheduled: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    starts = np.zeros(len(num_scheduled) + 1, dtype=np.int64)
    np.add.accumulate(num_scheduled, out=starts[1:])
    places = np.arange(starts[-1])
    owners = np.searchsorted(starts, places, side="right") - 1
    seq_lens = num_computed + num_scheduled
    return starts, seq_lens[owners] - (starts[owners + 1] - places), seq_lens, starts[1:] - 1


def read_tables(
    query_start_loc: np.ndarray,
    positions: np.ndarray,
    token_ids: np.ndarray,
    block_table: np.ndarray,
    block_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    slots = block_table.astype(np.int64)[:, :, None] * block_size + np.arange(block_size)  # of every position of a row
    slots = slots.reshape(len(block_table), -1)
    owners = np.searchsorted(query_start_loc, np.arange(len(positions)), side="right") - 1
    return token_ids[owners, positions], slots[owners, positions]


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
    length = num_tokens if pad_to is None else pad_to
    padded = np.zeros((3, length), dtype=np.int64)
    padded[2] = PAD_SLOT_ID
    padded[:, :num_tokens] = input_ids, positions, slot_mapping
    input_ids, positions, slot_mapping = padded
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
        gone = list(plan.finished_req_ids)
        for req_id in gone:
            self.requests.pop(req_id, None)
        gone += [
            req_id
            for req_id in self.req_id_to_index
            if req_id not in plan.num_scheduled_tokens or req_id in plan.scheduled_cached_reqs.resumed_req_ids
        ]
        for req_id in gone:
            self.remove_request(req_id)
        new = [self._remember(data) for data in plan.scheduled_new_reqs]
        old = self._update_known(plan.scheduled_cached_reqs)
        for state in new + old:
            self.add_request(state)
        self.condense()

    def _update_known(self, cached: CachedRequestData) -> list[CachedRequestState]:
        joining = []
        for req_id, new_block_ids, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self.requests[req_id]
            state.num_computed_tokens = num_computed
            row = self.req_id_to_index.get(req_id)
            if req_id in cached.resumed_req_ids:
                state.block_ids = list(new_block_ids)
            elif new_block_ids:
                state.block_ids = state.block_ids + new_block_ids
            if row is None:
                joining.append(state)
            else:
                self.num_computed_tokens_cpu[row] = num_computed
                self.block_table.add_row(state.block_ids, row)
        return joining

    def add_request(self, state: CachedRequestState) -> int:
        row = heapq.heappop(self._holes) if self._holes else len(self.req_ids)
        if row == len(self.req_ids):
            self.req_ids.append(state.req_id)
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
        low, high = 0, len(self.req_ids) - 1
        while low < high:
            if self.req_ids[low] is not None:
                low += 1
            elif self.req_ids[high] is None:
                self.req_ids.pop()
                high -= 1
            else:
                self._move_last_row(low)
                high -= 1
        while self.req_ids and self.req_ids[-1] is None:
            self.req_ids.pop()
        self._holes = []
