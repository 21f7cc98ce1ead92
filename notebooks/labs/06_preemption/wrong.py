"""Wrong solutions of lab 06: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Wrong

WRONG = [
    Wrong(
        id="victim_is_the_first",
        task="6.1",
        symbol="Scheduler._select_victim",
        old="return self.running[-1]",
        new="return self.running[0]",
        misconception="the oldest had its turn",
        message="the request that was admitted first is the victim. The last one in is the first one out.",
    ),
    Wrong(
        id="victim_is_the_longest",
        task="6.1",
        symbol="Scheduler._select_victim",
        old="return self.running[-1]",
        new="return max(self.running, key=lambda request: request.num_tokens)",
        misconception="it frees the most",
        message="the longest request is the victim. Length does not matter: the last admitted goes.",
    ),
    Wrong(
        id="priority_smallest_is_victim",
        task="6.1",
        symbol="Scheduler._select_victim",
        old="return max(self.running, key=lambda request: (request.priority, request.arrival_time))",
        new="return min(self.running, key=lambda request: (request.priority, request.arrival_time))",
        misconception="a small number is a low priority",
        message="the request with the smallest priority value is the victim. A small value is important.",
    ),
    Wrong(
        id="priority_tie_oldest",
        task="6.1",
        symbol="Scheduler._select_victim",
        old="key=lambda request: (request.priority, request.arrival_time)",
        new="key=lambda request: (request.priority, -request.arrival_time)",
        misconception="who waited longest",
        message="of equally important requests the oldest is the victim. The latest goes.",
    ),
    Wrong(
        id="priority_ignores_arrival",
        task="6.1",
        symbol="Scheduler._select_victim",
        old="key=lambda request: (request.priority, request.arrival_time)",
        new="key=lambda request: request.priority",
        misconception="priority says it all",
        message="of equally important requests the first found is the victim. The latest to arrive goes.",
    ),
    Wrong(
        id="priority_uses_last",
        task="6.1",
        symbol="Scheduler._select_victim",
        old=(
            '        if self.policy == "priority":\n'
            "            return max(self.running, key=lambda request: (request.priority, request.arrival_time))\n"
        ),
        new="",
        misconception="the last one in is the first one out",
        message="under the priority policy the last admitted is the victim. The least important one goes.",
    ),
    Wrong(
        id="preempted_to_the_back",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old="self.waiting.prepend_request(victim)",
        new="self.waiting.add_request(victim)",
        misconception="it lost its turn",
        message="the victim went to the back of the waiting queue. It comes back first.",
    ),
    Wrong(
        id="computed_not_reset",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        victim.num_computed_tokens = 0\n"),
        new="",
        misconception="its tokens were computed",
        message="num_computed_tokens is kept. The blocks are gone, and K and V with them.",
    ),
    Wrong(
        id="outputs_dropped",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        victim.num_computed_tokens = 0\n"),
        new=(
            "        victim.num_computed_tokens = 0\n"
            "        victim.output_token_ids.clear()\n"
            "        victim.all_token_ids[:] = victim.prompt_token_ids\n"
        ),
        misconception="start again from the prompt",
        message="the outputs were dropped. The caller has them already: they are kept, and computed again.",
    ),
    Wrong(
        id="hashes_dropped",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        victim.num_computed_tokens = 0\n"),
        new=("        victim.num_computed_tokens = 0\n        victim.block_hashes.clear()\n"),
        misconception="no blocks, no hashes",
        message="the block hashes were dropped, so that the victim finds none of its own blocks when it returns.",
    ),
    Wrong(
        id="blocks_kept",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        self.kv_cache_manager.free(victim)\n"),
        new="",
        misconception="they will be needed again",
        message="the victim keeps its blocks. It was preempted to give them up.",
    ),
    Wrong(
        id="status_set_to_waiting",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old="RequestStatus.PREEMPTED",
        new="RequestStatus.WAITING",
        misconception="it waits",
        message=(
            "the status is WAITING, so that the victim comes back as a request the worker has never seen. "
            "PREEMPTED makes it a resumed one."
        ),
    ),
    Wrong(
        id="no_hit_on_resume",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        self.kv_cache_manager.free(victim)\n"),
        new=(
            "        blocks = self.kv_cache_manager.req_to_blocks.get(victim.request_id, [])\n"
            "        self.kv_cache_manager.block_pool.forget_hashes(blocks)\n"
            "        self.kv_cache_manager.free(victim)\n"
        ),
        misconception="what is given back is forgotten",
        message="the victim finds nothing in the prefix cache when it returns. Its blocks are there until overwritten.",
    ),
    Wrong(
        id="frees_in_table_order",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        self.kv_cache_manager.free(victim)\n"),
        new=(
            "        manager = self.kv_cache_manager\n"
            "        manager.num_cached_block.pop(victim.request_id, None)\n"
            "        manager.block_pool.free_blocks(manager.req_to_blocks.pop(victim.request_id, []))\n"
        ),
        misconception="freed is freed",
        message=(
            "the victim's blocks are freed from the beginning of its table. The last one goes first, so that a prefix "
            "is evicted after what follows it."
        ),
    ),
    Wrong(
        id="outputs_count_as_computed",
        task="6.2",
        symbol="Scheduler._preempt_request",
        old=("        victim.num_computed_tokens = 0\n"),
        new=("        victim.num_computed_tokens = victim.num_output_tokens\n"),
        misconception="the prompt is computed again",
        message="the outputs count as computed. Their K and V were in the blocks too: all of it is computed again.",
    ),
    Wrong(
        id="victim_never_the_asker",
        task="6.3",
        symbol="Scheduler._allocate_or_preempt",
        old=("            victim = self._select_victim()\n"),
        new=(
            "            others = [one for one in self.running if one is not request]\n"
            '            victim = others[-1] if others and self.policy == "fcfs" else self._select_victim()\n'
        ),
        misconception="someone else must pay",
        message="somebody else was preempted although the asker stands last. The victim may be the request that asks.",
    ),
    Wrong(
        id="asks_only_once",
        task="6.3",
        symbol="Scheduler._allocate_or_preempt",
        old=("            if victim is request:\n                return None\n"),
        new=(
            "            if victim is request:\n"
            "                return None\n"
            "            return self.kv_cache_manager.allocate_slots(request, n)\n"
        ),
        misconception="one block was missing",
        message="one victim, then it gives up. A chunk may need the blocks of several.",
    ),
    Wrong(
        id="waiting_pass_runs_anyway",
        task="6.3",
        symbol="Scheduler._allocate_or_preempt",
        old="self._preempt_for(request, n, victim, step)",
        new="self._take_from_running(victim, step)\n            self._preempt_request(victim)",
        misconception="there is room again",
        message=(
            "the plan does not say that somebody was preempted, so that the waiting pass runs in the same step. "
            "_preempt_for notes it."
        ),
    ),
    Wrong(
        id="undo_keeps_budget",
        task="6.3",
        symbol="Scheduler._take_from_running",
        old="step.token_budget += step.num_scheduled_tokens.pop(victim.request_id)",
        new="step.num_scheduled_tokens.pop(victim.request_id)",
        misconception="its tokens are spent",
        message="the victim had tokens in this step, and they were not given back to the budget.",
    ),
    Wrong(
        id="undo_keeps_index",
        task="6.3",
        symbol="Scheduler._take_from_running",
        old=("            step.req_index -= 1\n"),
        new="",
        misconception="the loop goes on",
        message="the victim stood before the asker, and the index did not step back: the next request loses its turn.",
    ),
    Wrong(
        id="undo_keeps_entry",
        task="6.3",
        symbol="Scheduler._take_from_running",
        old=(
            "            step.scheduled_running.remove(victim)\n"
            "            step.token_budget += step.num_scheduled_tokens.pop(victim.request_id)\n"
            "            del step.new_blocks[victim.request_id]\n"
        ),
        new=("            step.token_budget += step.num_scheduled_tokens[victim.request_id]\n"),
        misconception="the plan is the plan",
        message="the plan still holds the tokens of a victim that has no blocks any more.",
    ),
    Wrong(
        id="no_undo",
        task="6.3",
        symbol="Scheduler._take_from_running",
        old=("        if victim.request_id in step.num_scheduled_tokens:\n"),
        new=("        if False:\n"),
        misconception="whoever was planned is safe",
        message="the plan still holds a victim that had its tokens before it was chosen: undo its entry.",
    ),
    Wrong(
        id="asker_takes_without_leaving",
        task="6.3",
        symbol="Scheduler._allocate_or_preempt",
        old=("            if victim is request:\n                return None\n"),
        new=("            if victim is request:\n                return []\n"),
        misconception="no new blocks",
        message="the request preempted itself and is planned all the same. None says that it had to go.",
    ),
]
