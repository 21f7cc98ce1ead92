"""Wrong solutions of lab 07: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

LOCATE = "locate_tokens"
READ = "read_tables"
ROWS = "InputBatch"
RETURN = "return query_start_loc, positions, seq_lens, logits_indices"
POSITIONS = "positions = num_computed[req_indices] + query_pos"
IN_CHUNK = "(np.arange(len(positions)) - np.asarray(query_start_loc)[req_indices])"
REBUILD = (
    "order = {order}\n"
    "        for row in range(len(self.req_ids)):\n"
    "            self.block_table.clear_row(row)\n"
    "        self.req_ids.clear()\n"
    "        self._holes.clear()\n"
    "        for req_id in order:\n"
    "            self.add_request(self.requests[req_id])"
)

WRONG = [
    Wrong(
        id="positions_restart",
        task="7.1",
        symbol=LOCATE,
        old=POSITIONS,
        new="positions = query_pos",
        misconception="positions count within the step",
        message="positions begin at 0 in every step. They count in the request: its num_computed tokens come before.",
    ),
    Wrong(
        id="positions_run_through_the_batch",
        task="7.1",
        symbol=LOCATE,
        old=POSITIONS,
        new="positions = num_computed[req_indices] + np.arange(len(req_indices))",
        misconception="one batch, one count",
        message="positions run on from row to row. Each row counts for itself.",
    ),
    Wrong(
        id="positions_from_one",
        task="7.1",
        symbol=LOCATE,
        old=POSITIONS,
        new="positions = num_computed[req_indices] + query_pos + 1",
        misconception="the first token is number 1",
        message="every position is one too high. The first token of a request has position 0.",
    ),
    Wrong(
        id="starts_without_zero",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return cumulative, positions, seq_lens, logits_indices",
        misconception="the ends say it all",
        message="query_start_loc lacks the 0 in front: R + 1 numbers give every one of R rows a start and an end.",
    ),
    Wrong(
        id="starts_sum_lengths",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return np.concatenate([[0], np.cumsum(seq_lens)]), positions, seq_lens, logits_indices",
        misconception="a row takes as much room as its request is long",
        message="query_start_loc adds up whole requests. Only the tokens of this step lie in the flat batch.",
    ),
    Wrong(
        id="length_is_the_chunk",
        task="7.1",
        symbol=LOCATE,
        old="seq_lens = num_computed + num_scheduled",
        new="seq_lens = num_scheduled",
        misconception="the length of what is computed",
        message="seq_lens holds the tokens of this step. Attention also reads what was computed before.",
    ),
    Wrong(
        id="length_before_the_step",
        task="7.1",
        symbol=LOCATE,
        old="seq_lens = num_computed + num_scheduled",
        new="seq_lens = num_computed",
        misconception="what is in the cache now",
        message="seq_lens leaves out the tokens of this step. Their K and V are written before attention reads.",
    ),
    Wrong(
        id="logits_one_too_far",
        task="7.1",
        symbol=LOCATE,
        old="logits_indices = cumulative - 1",
        new="logits_indices = cumulative",
        misconception="the end of a row is its last token",
        message="logits_indices points one behind the last token of each row.",
    ),
    Wrong(
        id="logits_of_the_first",
        task="7.1",
        symbol=LOCATE,
        old="logits_indices = cumulative - 1",
        new="logits_indices = cumulative - num_scheduled",
        misconception="a row is where it begins",
        message="logits_indices points at the first token of each row. The next token follows from the last one.",
    ),
    Wrong(
        id="logits_are_positions",
        task="7.1",
        symbol=LOCATE,
        old="logits_indices = cumulative - 1",
        new="logits_indices = seq_lens - 1",
        misconception="the last position, for the last place in the flat batch",
        message="logits_indices holds positions in the request. It must hold places in the flat batch.",
    ),
    Wrong(
        id="starts_of_the_rows_alone",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return cumulative - num_scheduled, positions, seq_lens, logits_indices",
        misconception="R rows have R starts",
        message="query_start_loc lacks its last number: R + 1 numbers, and the last says where the last row ends.",
    ),
    Wrong(
        id="starts_are_floats",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return query_start_loc.astype(float), positions, seq_lens, logits_indices",
        misconception="a number is a number",
        message=(
            "query_start_loc holds floats. numpy repeats and indexes with integers alone; np.zeros needs "
            "dtype=int for them."
        ),
    ),
    Wrong(
        id="another_order",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return positions, query_start_loc, seq_lens, logits_indices",
        misconception="the order is free",
        message=(
            "positions come first in what is returned. The docstring names the order: query_start_loc is the first."
        ),
    ),
    Wrong(
        id="nothing_returned",
        task="7.1",
        symbol=LOCATE,
        old=RETURN,
        new="return None",
        misconception="the last line is the result",
        message="locate_tokens ends without a return, or returns None.",
    ),
    Wrong(
        id="places_for_positions",
        task="7.1",
        symbol=LOCATE,
        old=POSITIONS,
        new="positions = np.arange(len(req_indices))",
        misconception="a position is a place in the flat batch",
        message="positions are places in the flat batch. They count in the request: its computed tokens come before.",
    ),
    Wrong(
        id="a_list_for_each_row",
        task="7.1",
        symbol=LOCATE,
        old=POSITIONS,
        new="positions = [list(range(c, c + n)) for c, n in zip(num_computed, num_scheduled)]",
        misconception="rows stay apart",
        message="positions is a list of lists, one for each row. All T of them lie side by side in one.",
    ),
    Wrong(
        id="computed_changed_in_place",
        task="7.1",
        symbol=LOCATE,
        old="seq_lens = num_computed + num_scheduled",
        new="seq_lens = num_computed\n    seq_lens += num_scheduled",
        misconception="a new name is a new array",
        message=(
            "+= wrote into num_computed: a second name for an array is the same array. These are the rows' own counts."
        ),
    ),
    Wrong(
        id="logits_of_every_token",
        task="7.1",
        symbol=LOCATE,
        old="logits_indices = cumulative - 1",
        new="logits_indices = np.arange(len(req_indices))",
        misconception="every token is followed by a new one",
        message=(
            "logits_indices names every token. Only the last one of each row is followed by a token that is not "
            "known yet."
        ),
    ),
    Wrong(
        id="offset_in_chunk",
        task="7.2",
        symbol=READ,
        old="positions % block_size",
        new=f"{IN_CHUNK} % block_size",
        misconception="the chunk starts a block",
        message="you used the place in the chunk, not the position, for the offset in the block.",
    ),
    Wrong(
        id="block_in_chunk",
        task="7.2",
        symbol=READ,
        old="positions // block_size",
        new=f"{IN_CHUNK} // block_size",
        misconception="the chunk starts the table",
        message="you used the place in the chunk, not the position, to find the block in the table.",
    ),
    Wrong(
        id="slot_without_offset",
        task="7.2",
        symbol=READ,
        old="blocks * block_size + positions % block_size",
        new="blocks * block_size",
        misconception="a block is a place",
        message="all tokens of a block go to its first slot. The offset in the block is missing.",
    ),
    Wrong(
        id="block_is_the_slot",
        task="7.2",
        symbol=READ,
        old="blocks * block_size + positions % block_size",
        new="blocks + positions % block_size",
        misconception="a block id is a slot",
        message="the block id was not multiplied: block b begins at slot b * block_size.",
    ),
    Wrong(
        id="block_of_next",
        task="7.2",
        symbol=READ,
        old="positions // block_size",
        new="(positions + 1) // block_size",
        misconception="positions count from 1",
        message="the last position of each block is looked up in the next one.",
    ),
    Wrong(
        id="slot_is_position",
        task="7.2",
        symbol=READ,
        old="slot_mapping = blocks * block_size + positions % block_size",
        new="slot_mapping = positions.copy()",
        misconception="logical is physical",
        message="the slot is the position, as if every request began at slot 0. The block table was not asked.",
    ),
    Wrong(
        id="table_of_row_zero",
        task="7.2",
        symbol=READ,
        old="block_table[req_indices,",
        new="block_table[0 * req_indices,",
        misconception="there is one table",
        message="all rows were looked up in the block table of row 0.",
    ),
    Wrong(
        id="tokens_of_row_zero",
        task="7.2",
        symbol=READ,
        old="token_ids[req_indices, positions]",
        new="token_ids[0 * req_indices, positions]",
        misconception="there is one list of tokens",
        message="the token ids of all rows were read from row 0.",
    ),
    Wrong(
        id="tokens_from_chunk_start",
        task="7.2",
        symbol=READ,
        old="token_ids[req_indices, positions]",
        new=f"token_ids[req_indices, {IN_CHUNK}]",
        misconception="the chunk starts the request",
        message="input_ids begins with the first token of the request. It must begin where this step begins.",
    ),
    Wrong(
        id="quotient_and_remainder_swapped",
        task="7.2",
        symbol=READ,
        old="positions // block_size",
        new="positions % block_size",
        misconception="% finds the block",
        message=(
            "quotient and remainder are swapped: position // block_size finds the entry of the table, % the offset."
        ),
        more=((READ, "+ positions % block_size", "+ positions // block_size"),),
    ),
    Wrong(
        id="table_read_at_the_position",
        task="7.2",
        symbol=READ,
        old="positions // block_size",
        new="positions",
        misconception="the table has an entry for each token",
        message="the block table was read at the position. It has an entry for each block: position // block_size.",
    ),
    Wrong(
        id="blocks_count_from_one",
        task="7.2",
        symbol=READ,
        old="blocks * block_size",
        new="(blocks - 1) * block_size",
        misconception="block 1 is the first",
        message="1 was taken off the block id. Block b begins at slot b * block_size; block 0 is a block too.",
    ),
    Wrong(
        id="offset_in_the_flat_batch",
        task="7.2",
        symbol=READ,
        old="positions % block_size",
        new="np.arange(len(positions)) % block_size",
        misconception="places and positions are the same",
        message="you used the place in the flat batch, not the position, for the offset in the block.",
    ),
    Wrong(
        id="tokens_at_the_place",
        task="7.2",
        symbol=READ,
        old="token_ids[req_indices, positions]",
        new="token_ids[req_indices, np.arange(len(positions)) % token_ids.shape[1]]",
        misconception="the table of tokens is flat too",
        message="input_ids was read at the place in the flat batch. Row r of token_ids is read at the position.",
    ),
    Wrong(
        id="first_token_to_the_row_before",
        task="7.2",
        symbol=READ,
        old="np.repeat(np.arange(len(query_start_loc) - 1), np.diff(query_start_loc))",
        new="np.searchsorted(query_start_loc[1:], np.arange(len(positions)))",
        misconception="a start is the end of the row before",
        message=(
            "the first token of each row was given to the row before: place query_start_loc[r] is in row r "
            '(side="right").'
        ),
    ),
    Wrong(
        id="row_looked_for_by_position",
        task="7.2",
        symbol=READ,
        old="np.repeat(np.arange(len(query_start_loc) - 1), np.diff(query_start_loc))",
        new='np.searchsorted(query_start_loc, positions, side="right") - 1',
        misconception="starts are positions",
        message="the row of a token was looked for by its position. query_start_loc counts places in the flat batch.",
    ),
    Wrong(
        id="all_rows_are_row_zero",
        task="7.2",
        symbol=READ,
        old="req_indices = np.repeat(np.arange(len(query_start_loc) - 1), np.diff(query_start_loc))",
        new="req_indices = np.zeros(len(positions), dtype=int)",
        misconception="a batch has one row",
        message="tokens and blocks of all rows were read from row 0.",
    ),
    Wrong(
        id="column_before_row",
        task="7.2",
        symbol=READ,
        old="token_ids[req_indices, positions]",
        new="token_ids[positions, req_indices]",
        misconception="x comes before y",
        message="token_ids was read at (position, row). The row comes first.",
    ),
    Wrong(
        id="results_swapped",
        task="7.2",
        symbol=READ,
        old="return token_ids[req_indices, positions], slot_mapping",
        new="return slot_mapping, token_ids[req_indices, positions]",
        misconception="the order is free",
        message="the slots come first in what is returned. The docstring names the order: input_ids is the first.",
    ),
    Wrong(
        id="always_a_new_row",
        task="7.3",
        symbol=f"{ROWS}.add_request",
        old="if self._holes:",
        new="if False:",
        misconception="newcomers queue at the end",
        message="a request was put at the end although there was a hole. The lowest hole is taken first.",
    ),
    Wrong(
        id="highest_hole_first",
        task="7.3",
        symbol=f"{ROWS}.add_request",
        old="heapq.heappop(self._holes)",
        new="self._holes.pop(self._holes.index(max(self._holes)))",
        misconception="a stack of holes",
        message="a request was put into the highest hole. heapq.heappop(self._holes) takes the lowest; pop() doesn't.",
    ),
    Wrong(
        id="closed_up_in_order",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="while self._holes:",
        new=REBUILD.format(order="[req_id for req_id in self.req_ids if req_id is not None]")
        + "\n        while self._holes:",
        misconception="condense keeps the order",
        message="all rows behind a hole moved up by one. Only the last row moves, into the hole: less is copied.",
    ),
    Wrong(
        id="fills_the_highest_hole",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="heapq.heappop(self._holes)",
        new="self._holes.pop(self._holes.index(max(self._holes)))",
        misconception="the nearest hole is the cheapest",
        message="the last row moved into the highest hole. It goes into the lowest.",
    ),
    Wrong(
        id="condense_before_adding",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="        for state in joining:\n            self.add_request(state)\n        self.condense()",
        new="        self.condense()\n        for state in joining:\n            self.add_request(state)",
        misconception="tidy up first",
        message="holes were closed before the newcomers came. They take the holes; only what is left over is closed.",
    ),
    Wrong(
        id="scheduler_order",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="        self.condense()",
        new="        self.condense()\n        " + REBUILD.format(order="list(plan.num_scheduled_tokens)"),
        misconception="rows stand as they were scheduled",
        message="the rows stand in the order of the plan. A row stays where it is until it ends, or a hole pulls it.",
    ),
    Wrong(
        id="resumed_blocks_appended",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="state.block_ids = list(new_block_ids)  # its old blocks are gone",
        new="state.block_ids.extend(new_block_ids)",
        misconception="new blocks extend the table",
        message="a resumed request kept its old blocks in front. They belong to others now: the new ones replace them.",
    ),
    Wrong(
        id="always_replaced",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="state.block_ids.extend(new_block_ids)",
        new="state.block_ids = list(new_block_ids)",
        misconception="the plan carries the whole table",
        message="new blocks replaced the table of a running request. The plan carries the new ones alone.",
        more=((f"{ROWS}._update_known", "append_row(new_block_ids, row)", "add_row(new_block_ids, row)"),),
    ),
    Wrong(
        id="row_without_its_new_blocks",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="self.block_table.append_row(new_block_ids, row)",
        new="pass",
        misconception="what is remembered is what the kernels read",
        message="new blocks are remembered, but the row's block table does not have them. The kernels read the table.",
    ),
    Wrong(
        id="unscheduled_keeps_its_row",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="if req_id not in plan.num_scheduled_tokens or req_id in resumed:",
        new="if req_id in resumed:",
        misconception="only the end takes a row away",
        message="a request that gets no token in this step kept its row. Every row of the batch has tokens.",
    ),
    Wrong(
        id="unscheduled_is_forgotten",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="self.remove_request(req_id)  # it keeps its state, and loses its row",
        new="self.remove_request(req_id)\n                self.requests.pop(req_id)",
        misconception="no row, no request",
        message="a request that was left out of a step was forgotten. It comes back, and nobody sends its tokens.",
    ),
    Wrong(
        id="counts_not_updated",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="            self.num_computed_tokens_cpu[row] = num_computed",
        new="            pass",
        misconception="the worker counts for itself",
        message="the row's num_computed_tokens stayed what it was. The plan says how many there are before this step.",
    ),
    Wrong(
        id="hole_stays_in_the_heap",
        task="7.3",
        symbol=f"{ROWS}.add_request",
        old="heapq.heappop(self._holes)",
        new="self._holes[0]",
        misconception="to look is to take",
        message="the hole is filled, and still in self._holes: heapq.heappop takes it out.",
    ),
    Wrong(
        id="hole_filled_without_a_name",
        task="7.3",
        symbol=f"{ROWS}.add_request",
        old="self.req_ids[row] = state.req_id",
        new="pass",
        misconception="a row is a number",
        message="a hole was taken, but req_ids still has None there.",
    ),
    Wrong(
        id="holes_left_open",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="        self.condense()",
        new="        pass",
        misconception="a hole is harmless",
        message="the holes that nobody took were not closed: condense was not called.",
    ),
    Wrong(
        id="ended_is_remembered",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="self.requests.pop(req_id, None)",
        new="pass",
        misconception="no row, no trace",
        message="a request that has ended is still in self.requests. Nobody else drops it.",
    ),
    Wrong(
        id="ended_was_known",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="self.requests.pop(req_id, None)",
        new="del self.requests[req_id]",
        misconception="who ends has been here",
        message=(
            "finished_req_ids may name a request that was aborted while it waited: the worker has never heard of it."
        ),
    ),
    Wrong(
        id="known_before_new",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old=(
            "        joining = [self._remember(new) for new in plan.scheduled_new_reqs]\n"
            "        joining += self._update_known(plan.scheduled_cached_reqs)"
        ),
        new=(
            "        joining = self._update_known(plan.scheduled_cached_reqs)\n"
            "        joining += [self._remember(new) for new in plan.scheduled_new_reqs]"
        ),
        misconception="who was here first is served first",
        message="those that come back got their rows before the new ones. The new come first.",
    ),
    Wrong(
        id="everybody_joins",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="if row is None:",
        new="if True:",
        misconception="every step begins with empty rows",
        message="a request that has a row was given another one. Only those without a row join.",
    ),
    Wrong(
        id="nobody_comes_back",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="joining.append(state)",
        new="pass",
        misconception="a known request has a row",
        message="a known request without a row got none. It had been preempted or left out, and is back.",
    ),
    Wrong(
        id="all_blocks_appended",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="append_row(new_block_ids, row)",
        new="append_row(state.block_ids, row)",
        misconception="the row is written anew",
        message="the row got all blocks of its request behind those that it has. append_row takes the new ones alone.",
    ),
    Wrong(
        id="row_replaced_by_its_new_blocks",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="append_row(new_block_ids, row)",
        new="add_row(new_block_ids, row)",
        misconception="add_row adds",
        message="add_row put the new blocks in place of the row's. New blocks go behind the others: append_row.",
    ),
    Wrong(
        id="remembered_blocks_stay",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="state.block_ids.extend(new_block_ids)",
        new="pass",
        misconception="the row remembers",
        message="the row has its new blocks, but the request's state hasn't: when it loses its row they are forgotten.",
    ),
    Wrong(
        id="remembered_count_stays",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="state.num_computed_tokens = num_computed",
        new="pass",
        misconception="the row remembers",
        message="the state's num_computed_tokens stayed what it was. add_request takes the row's count from there.",
    ),
    Wrong(
        id="none_extends_the_state",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="elif new_block_ids is not None:",
        new="else:",
        misconception="no new blocks is an empty list",
        message="new_block_ids is None when there are no new blocks: there is nothing to add then.",
    ),
    Wrong(
        id="none_extends_the_row",
        task="7.3",
        symbol=f"{ROWS}._update_known",
        old="            if new_block_ids is not None:\n                self.block_table",
        new="            if True:\n                self.block_table",
        misconception="no new blocks is an empty list",
        message="new_block_ids is None when there are no new blocks: there is nothing to add then.",
    ),
    Wrong(
        id="last_row_is_a_hole",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="            while self.req_ids and self.req_ids[-1] is None:\n                self.req_ids.pop()\n",
        new="",
        misconception="the last row is a request",
        message="the last row was moved although it is a hole. Holes at the end are dropped first.",
    ),
    Wrong(
        id="names_moved_without_their_rows",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="        while self._holes:\n            while self.req_ids and self.req_ids[-1] is None:",
        new=(
            "        self.req_ids = [req_id for req_id in self.req_ids if req_id is not None]\n"
            "        self.req_id_to_index = {req_id: row for row, req_id in enumerate(self.req_ids)}\n"
            "        self._holes = []\n"
            "        while self._holes:\n"
            "            while self.req_ids and self.req_ids[-1] is None:"
        ),
        misconception="a row is its name",
        message=(
            "req_ids closed up, but tokens, count and blocks stayed where they were. _move_last_row moves all "
            "that a row has."
        ),
    ),
    Wrong(
        id="hole_looked_at_not_taken",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="heapq.heappop(self._holes)",
        new="self._holes[0]",
        misconception="to look is to take",
        message=(
            "condense looks at self._holes[0] and leaves it there: the loop never ends. heapq.heappop takes it out."
        ),
    ),
    Wrong(
        id="dropped_hole_is_filled",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="if hole < len(self.req_ids):",
        new="if True:",
        misconception="a hole in the heap is a hole in the rows",
        message="a hole was filled that is no row any more: it stood at the end, and was dropped.",
    ),
    Wrong(
        id="end_dropped_once",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old=(
            "        while self._holes:\n"
            "            while self.req_ids and self.req_ids[-1] is None:\n"
            "                self.req_ids.pop()\n"
        ),
        new=(
            "        while self.req_ids and self.req_ids[-1] is None:\n"
            "            self.req_ids.pop()\n"
            "        while self._holes:\n"
        ),
        misconception="one look at the end is enough",
        message=(
            "holes at the end were dropped once, before the loop. When the last row has moved, a hole may be "
            "last again."
        ),
    ),
    Wrong(
        id="row_dropped_after_its_move",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old="self._move_last_row(hole)",
        new="self._move_last_row(hole)\n                self.req_ids.pop()",
        misconception="to move is to copy",
        message="_move_last_row takes the last row away itself. One more was taken away after it.",
    ),
    Wrong(
        id="heap_outlives_the_holes",
        task="7.3",
        symbol=f"{ROWS}.condense",
        old=(
            "        while self._holes:\n"
            "            while self.req_ids and self.req_ids[-1] is None:\n"
            "                self.req_ids.pop()\n"
            "            hole = heapq.heappop(self._holes)\n"
            "            if hole < len(self.req_ids):\n"
            "                self._move_last_row(hole)"
        ),
        new=(
            "        while None in self.req_ids:\n"
            "            if self.req_ids[-1] is None:\n"
            "                self.req_ids.pop()\n"
            "            else:\n"
            "                self._move_last_row(self.req_ids.index(None))"
        ),
        misconception="req_ids says it all",
        message="the holes are closed, and self._holes still names them: the next request is put into one.",
        more=((f"{ROWS}.add_request", "if self._holes:", "if self._holes and self._holes[0] < len(self.req_ids):"),),
    ),
    Wrong(
        id="pads_with_slot_zero",
        task="7.4",
        symbol="flatten",
        old="constant_values=PAD_SLOT_ID",
        new="constant_values=0",
        misconception="0 is nothing",
        message="padding writes to slot 0. That is a real place, in block 0; -1 is written nowhere.",
    ),
    Wrong(
        id="padding_counts_on",
        task="7.4",
        symbol="flatten",
        old="positions = np.pad(positions, (0, num_padding))",
        new='positions = np.pad(positions, (0, num_padding), mode="edge")',
        misconception="repeat the last one",
        message="padding repeats the last position. It has position 0.",
    ),
    Wrong(
        id="pads_the_tail_of_ids_only",
        task="7.4",
        symbol="flatten",
        old="positions = np.pad(positions, (0, num_padding))",
        new="positions = positions + 0",
        misconception="the model reads input_ids alone",
        message="the arrays have different lengths: positions was not padded.",
    ),
    Wrong(
        id="pad_to_is_how_many",
        task="7.4",
        symbol="flatten",
        old="(pad_to or num_tokens) - num_tokens",
        new="pad_to or 0",
        misconception="pad_to is how many are added",
        message="pad_to tokens were added. It is the length that comes out.",
    ),
    Wrong(
        id="pads_in_front",
        task="7.4",
        symbol="flatten",
        old="slot_mapping = np.pad(slot_mapping, (0, num_padding), constant_values=PAD_SLOT_ID)",
        new="slot_mapping = np.pad(slot_mapping, (num_padding, 0), constant_values=PAD_SLOT_ID)",
        misconception="padding may stand anywhere",
        message="slot_mapping was padded in front, so each token's K and V go to another token's slot.",
    ),
    Wrong(
        id="pad_to_is_never_none",
        task="7.4",
        symbol="flatten",
        old="(pad_to or num_tokens) - num_tokens",
        new="pad_to - num_tokens",
        misconception="there is always padding",
        message="pad_to may be None: nothing is added then.",
    ),
    Wrong(
        id="all_padded_in_front",
        task="7.4",
        symbol="flatten",
        old="input_ids = np.pad(input_ids, (0, num_padding))",
        new="input_ids = np.pad(input_ids, (num_padding, 0))",
        misconception="padding may stand anywhere",
        message=(
            "padding stands in front. It goes to the end: query_start_loc and logits_indices count from the "
            "first token."
        ),
    ),
    Wrong(
        id="padding_at_position_minus_one",
        task="7.4",
        symbol="flatten",
        old="positions = np.pad(positions, (0, num_padding))",
        new="positions = np.pad(positions, (0, num_padding), constant_values=-1)",
        misconception="-1 is nothing everywhere",
        message="padding has position -1. It has position 0: positions index a table, and only a slot may be -1.",
    ),
    Wrong(
        id="slots_not_padded",
        task="7.4",
        symbol="flatten",
        old="slot_mapping = np.pad(slot_mapping, (0, num_padding), constant_values=PAD_SLOT_ID)",
        new="slot_mapping = slot_mapping",
        misconception="padding has no slot",
        message="the arrays have different lengths: slot_mapping was not padded.",
    ),
    Wrong(
        id="starts_padded",
        task="7.4",
        symbol="flatten",
        old="input_ids = np.pad(input_ids, (0, num_padding))",
        new=(
            "input_ids = np.pad(input_ids, (0, num_padding))\n"
            "    query_start_loc = query_start_loc if pad_to is None else np.append(query_start_loc, pad_to)"
        ),
        misconception="padding is a row",
        message="query_start_loc has an entry for the padding. It belongs to no row.",
    ),
    Wrong(
        id="lengths_padded",
        task="7.4",
        symbol="flatten",
        old="input_ids = np.pad(input_ids, (0, num_padding))",
        new="input_ids = np.pad(input_ids, (0, num_padding))\n    seq_lens = np.pad(seq_lens, (0, num_padding))",
        misconception="all arrays grow",
        message="seq_lens was padded too. It has a number for each row, and padding is no row.",
    ),
    Wrong(
        id="padding_is_counted",
        task="7.4",
        symbol="flatten",
        old="input_ids = np.pad(input_ids, (0, num_padding))",
        new="input_ids = np.pad(input_ids, (0, num_padding))\n    num_tokens += num_padding",
        misconception="T is T",
        message="num_actual_tokens counts the padding. It is the number of real tokens.",
    ),
]

HARMLESS = [
    Harmless(
        id="ended_rows_left_to_the_next_rule",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old="            self.requests.pop(req_id, None)\n            self.remove_request(req_id)",
        new="            self.requests.pop(req_id, None)",
        proof=(
            "Who has ended gets no token, so the rule for the unscheduled takes the row; the order of holes is a "
            "heap's."
        ),
    ),
    Harmless(
        id="resumed_rows_left_to_the_last_rule",
        task="7.3",
        symbol=f"{ROWS}.update_states",
        old=" or req_id in resumed:",
        new=":",
        proof="A preempted request got no token in the step of its preemption, so it has lost its row by then.",
    ),
]
