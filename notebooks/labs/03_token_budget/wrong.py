"""Wrong solutions of lab 03: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Harmless, Wrong

BUDGET = "Scheduler._num_new_tokens"
RUNNING = "Scheduler._schedule_running"
WAITING = "Scheduler._schedule_waiting"
ADMIT = "Scheduler._admit"
SCHEDULE = "Scheduler.schedule"

WRONG = [
    Wrong(
        id="threshold_only_from_twice_its_size",
        task="3.1",
        symbol=BUDGET,
        old="if 0 < self.long_prefill_token_threshold < missing:",
        new="if 0 < self.long_prefill_token_threshold and missing >= 2 * self.long_prefill_token_threshold:",
        misconception="a long prompt is one of several chunks",
        message="the threshold is used only when the request misses twice as much. It caps every request that misses "
        "more than it.",
    ),
    Wrong(
        id="threshold_zero_is_a_limit",
        task="3.1",
        symbol=BUDGET,
        old="        if 0 < self.long_prefill_token_threshold < missing:\n"
        "            missing = self.long_prefill_token_threshold\n"
        "        return min(missing, token_budget)",
        new="        return min(missing, token_budget, self.long_prefill_token_threshold)",
        misconception="min(n, threshold)",
        message="a threshold of 0 is taken as a limit of 0 tokens. It means that there is none.",
    ),
    Wrong(
        id="budget_forgotten",
        task="3.1",
        symbol=BUDGET,
        old="return min(missing, token_budget)",
        new="return missing",
        misconception="the caller looks at the budget",
        message="a request gets more than is left of the budget.",
    ),
    Wrong(
        id="threshold_caps_by_one_less",
        task="3.1",
        symbol=BUDGET,
        old="missing = self.long_prefill_token_threshold",
        new="missing = self.long_prefill_token_threshold - 1",
        misconception="below the threshold",
        message="a capped request gets one token less than the threshold. The threshold itself is allowed.",
    ),
    Wrong(
        id="budget_not_reduced_by_running",
        task="3.2",
        symbol=RUNNING,
        old="            step.token_budget -= n\n",
        new="",
        misconception="decodes are free",
        message="the running pass does not take its tokens from the budget. All tokens of a step share one budget.",
    ),
    Wrong(
        id="budget_of_requests",
        task="3.2",
        symbol=RUNNING,
        old="step.token_budget -= n",
        new="step.token_budget -= 1",
        misconception="a running request is one token",
        message="the running pass takes 1 from the budget for each request. A chunk of n tokens takes n.",
    ),
    Wrong(
        id="running_means_one_token",
        task="3.2",
        symbol=RUNNING,
        old="n = self._num_new_tokens(request.num_tokens - request.num_computed_tokens, step.token_budget)",
        new="n = 1",
        misconception="running means decoding",
        message="every running request gets one token. One whose prompt was cut into chunks still misses more: "
        "num_tokens - num_computed_tokens.",
    ),
    Wrong(
        id="threshold_forgotten_in_running",
        task="3.2",
        symbol=RUNNING,
        old="n = self._num_new_tokens(request.num_tokens - request.num_computed_tokens, step.token_budget)",
        new="n = min(request.num_tokens - request.num_computed_tokens, step.token_budget)",
        misconception="the threshold is for newcomers",
        message="the threshold does not cap the later chunks of a long prompt. It holds in both passes.",
    ),
    Wrong(
        id="only_one_running_request",
        task="3.2",
        symbol=RUNNING,
        old="while step.req_index < len(self.running) and step.token_budget > 0:",
        new="while step.req_index < min(len(self.running), 1) and step.token_budget > 0:",
        misconception="one after the other",
        message="only the first running request gets tokens. Continuous batching gives every one its share of a step.",
    ),
    Wrong(
        id="charges_cached_tokens",
        task="3.3",
        symbol=ADMIT,
        old="step.token_budget -= n",
        new="step.token_budget -= n + num_hit_tokens",
        misconception="cached tokens use budget",
        message="tokens found in the prefix cache are taken from the budget. It counts tokens that are computed.",
    ),
    Wrong(
        id="recomputes_cached_tokens",
        task="3.3",
        symbol=WAITING,
        old="missing = request.num_tokens - num_hit_tokens",
        new="missing = request.num_tokens",
        misconception="the prompt must be scheduled",
        message="you schedule the whole prompt, also the part whose K and V were found in the cache. A request needs "
        "num_tokens less the tokens that were hit.",
    ),
    Wrong(
        id="prompt_only_on_resume",
        task="3.3",
        symbol=WAITING,
        old="missing = request.num_tokens - num_hit_tokens",
        new="missing = request.num_prompt_tokens - num_hit_tokens",
        misconception="only prompts are prefilled",
        message="a request that comes back after a preemption gets its prompt alone. It computes its outputs "
        "again too: num_tokens counts both.",
    ),
    Wrong(
        id="one_admission_per_step",
        task="3.3",
        symbol=WAITING,
        old="            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)",
        new="            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)\n            break",
        misconception="one prefill at a time",
        message="one request is admitted, then the pass ends. It goes on while budget, seats and blocks last.",
    ),
    Wrong(
        id="seats_off_by_one",
        task="3.3",
        symbol=WAITING,
        old="len(self.running) < self.max_num_running_reqs:",
        new="len(self.running) <= self.max_num_running_reqs:",
        misconception="the limit is included",
        message="one request more runs than there are seats.",
    ),
    Wrong(
        id="seats_count_admissions_only",
        task="3.3",
        symbol=WAITING,
        old="len(self.running) < self.max_num_running_reqs:",
        new="len(step.new) + len(step.resumed) < self.max_num_running_reqs:",
        misconception="seats of this step",
        message="only this step's admissions are counted against the seats. Whoever runs already sits on one.",
    ),
    Wrong(
        id="no_chunk_off_rule",
        task="3.3",
        symbol=WAITING,
        old="if not self.enable_chunked_prefill and self._num_new_tokens(missing, missing) > step.token_budget:",
        new="if False:",
        misconception="the budget cuts every prompt",
        message="without chunked prefill a prompt was cut to fit the budget. Then it has to wait until it fits whole.",
    ),
    Wrong(
        id="chunk_off_tests_before_threshold",
        task="3.3",
        symbol=WAITING,
        old="self._num_new_tokens(missing, missing) > step.token_budget:",
        new="missing > step.token_budget:",
        misconception="whole means the whole prompt",
        message="the rule for chunked prefill off is tested before the threshold caps the tokens. vLLM caps first.",
    ),
    Wrong(
        id="threshold_forgotten_in_waiting",
        task="3.3",
        symbol=WAITING,
        old="n = self._num_new_tokens(missing, step.token_budget)",
        new="n = min(missing, step.token_budget)",
        misconception="the threshold is for later chunks",
        message="the threshold does not cap the first chunk of a prompt. It holds in both passes.",
    ),
    Wrong(
        id="skips_the_blocked_head",
        task="3.3",
        symbol=WAITING,
        old="                break\n            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)",
        new="                for request in list(self.waiting)[1:]:\n"
        "                    hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)\n"
        "                    n = self._num_new_tokens(request.num_tokens - num_hit_tokens, step.token_budget)\n"
        "                    if self.kv_cache_manager.allocate_slots(\n"
        "                        request, n, num_hit_tokens, hits, full_sequence_must_fit=True\n"
        "                    ) is not None:\n"
        "                        break\n"
        "                else:\n"
        "                    break\n"
        "                self.waiting.remove_request(request)\n"
        "                self._admit(request, n, num_hit_tokens, step)\n"
        "                continue\n"
        "            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)",
        misconception="use the room for someone smaller",
        message="a request behind the head was admitted because the head did not fit. The head blocks the queue: "
        "otherwise a large request could wait for ever.",
    ),
    Wrong(
        id="waiting_preempts",
        task="3.3",
        symbol="Scheduler._schedule_waiting",
        old="            if fits is None:\n",
        new='            rival = self._select_victim() if self.policy == "priority" and self.running else request\n'
        "            rival_is_new = rival in step.new + step.resumed\n"
        "            if fits is None and rival.priority > request.priority and not rival_is_new:\n"
        "                self._take_from_running(rival, step)\n"
        "                self._preempt_request(rival)\n"
        "                continue\n"
        "            if fits is None:\n",
        misconception="the important one goes first",
        message="a waiting request preempts a running one. Only a running one does; who waits, waits.",
    ),
    Wrong(
        id="blocked_head_goes_to_the_back",
        task="3.3",
        symbol=WAITING,
        old="                break\n            self._admit(",
        new='                if self.policy == "fcfs":\n'
        "                    self.waiting.add_request(self.waiting.pop_request())\n"
        "                break\n            self._admit(",
        misconception="let the next one try",
        message="the head that did not fit went to the back of the queue. It keeps its place.",
    ),
    Wrong(
        id="admits_what_cannot_fit",
        task="3.3",
        symbol=WAITING,
        old="request, n, num_hit_tokens, hits, full_sequence_must_fit=self.scheduler_reserve_full_isl\n"
        "            )\n            if fits is None:",
        new="request, n, num_hit_tokens, hits, full_sequence_must_fit=False\n"
        "            )\n            if fits is None:",
        misconception="the chunk fits, the rest will find room",
        message="a request was admitted though its whole sequence does not fit, only its first chunk. Pass "
        "full_sequence_must_fit.",
    ),
    Wrong(
        id="computed_ignores_hit",
        task="3.3",
        symbol=ADMIT,
        old="request.num_computed_tokens = num_hit_tokens",
        new="request.num_computed_tokens = 0",
        misconception="nothing was computed yet",
        message="num_computed_tokens starts at 0 although tokens were hit. Their K and V are there: they are computed.",
    ),
    Wrong(
        id="newcomers_in_front",
        task="3.3",
        symbol=ADMIT,
        old="self.running.append(request)",
        new="self.running.insert(0, request)",
        misconception="who is new is served first",
        message="the admitted request stands in front of the running list. It is in order of admission: the last "
        "one in is the last.",
    ),
    Wrong(
        id="waiting_before_running",
        task="3.4",
        symbol=SCHEDULE,
        old="        self._schedule_running(step)\n"
        "        if not step.preempted:\n"
        "            self._schedule_waiting(step)\n",
        new="        old = list(self.running)\n"
        "        self._schedule_waiting(step)\n"
        "        new = self.running[len(old) :]\n"
        "        self.running = old\n"
        "        self._schedule_running(step)\n"
        "        self.running = self.running + new\n",
        misconception="newcomers are prefilled before decodes",
        message="the waiting pass runs first. Running requests come first, so that a newcomer never takes the "
        "budget or the blocks of one that runs.",
    ),
    Wrong(
        id="no_mixed_batches",
        task="3.4",
        symbol=SCHEDULE,
        old="if not step.preempted:",
        new="if not step.preempted and not step.num_scheduled_tokens:",
        misconception="prefill and decode do not mix",
        message="nobody is admitted while somebody runs. A step mixes both: what is left of the budget goes "
        "to newcomers.",
    ),
    Wrong(
        id="admits_after_preempting",
        task="3.4",
        symbol=SCHEDULE,
        old="        if not step.preempted:\n            self._schedule_waiting(step)",
        new="        self._schedule_waiting(step)",
        misconception="there is room again",
        message="the waiting pass runs in a step that preempted: the victim takes back at once what it just gave up.",
    ),
    Wrong(
        id="no_waiting_pass_when_all_run",
        task="3.4",
        symbol=SCHEDULE,
        old="if not step.preempted:",
        new="if not step.preempted and not self.running:",
        misconception="a batch is full when it runs",
        message="nobody is admitted while somebody runs. A step mixes both: what is left of the budget goes "
        "to newcomers.",
    ),
    Wrong(
        id="loop_over_the_running_list",
        task="3.2",
        symbol=RUNNING,
        old=(
            "        while step.req_index < len(self.running) and step.token_budget > 0:\n"
            "            request = self.running[step.req_index]\n"
        ),
        new="        for request in self.running:\n            if step.token_budget == 0:\n                break\n",
        misconception="the list stays as it is",
        message=(
            "the loop has an index of its own, such as that of `for request in self.running`. A preemption takes "
            "a request out of the list, and the next one is passed over: count with step.req_index, which moves "
            "along."
        ),
        more=(
            (RUNNING, "            if n == 0:\n                step.req_index += 1\n", "            if n == 0:\n"),
            (
                RUNNING,
                "            step.token_budget -= n\n            step.req_index += 1\n",
                "            step.token_budget -= n\n",
            ),
        ),
    ),
    Wrong(
        id="loop_over_a_copy",
        task="3.2",
        symbol=RUNNING,
        old=(
            "        while step.req_index < len(self.running) and step.token_budget > 0:\n"
            "            request = self.running[step.req_index]\n"
        ),
        new=(
            "        for request in list(self.running):\n"
            "            if step.token_budget == 0:\n"
            "                break\n"
        ),
        misconception="a copy is safe",
        message=(
            "the loop goes over a copy of the running list. A victim of this step is in the copy still, and gets "
            "tokens without a seat."
        ),
        more=(
            (RUNNING, "            if n == 0:\n                step.req_index += 1\n", "            if n == 0:\n"),
            (
                RUNNING,
                "            step.token_budget -= n\n            step.req_index += 1\n",
                "            step.token_budget -= n\n",
            ),
        ),
    ),
    Wrong(
        id="new_blocks_not_noted",
        task="3.2",
        symbol=RUNNING,
        old="            step.new_blocks[request.request_id] = new_blocks\n",
        new="",
        misconception="the table is enough",
        message=(
            "step.new_blocks has no entry for a running request. The worker is told from it; its blocks go in, "
            "also when there are none: []."
        ),
    ),
    Wrong(
        id="new_blocks_noted_if_any",
        task="3.2",
        symbol=RUNNING,
        old="            step.new_blocks[request.request_id] = new_blocks\n",
        new="            if new_blocks:\n                step.new_blocks[request.request_id] = new_blocks\n",
        misconception="no news, no entry",
        message="step.new_blocks has no entry for a request that needed no new block. The empty list goes in too.",
    ),
    Wrong(
        id="goes_on_after_its_own_preemption",
        task="3.2",
        symbol=RUNNING,
        old="            if new_blocks is None:\n                break\n",
        new="            if new_blocks is None:\n                continue\n",
        misconception="the others may fit",
        message=(
            "the pass goes on after a request that was preempted itself. None means that the pool is empty for "
            "this step: the pass is over."
        ),
    ),
    Wrong(
        id="decode_misses_nothing",
        task="3.2",
        symbol=RUNNING,
        old="request.num_tokens - request.num_computed_tokens, step",
        new="request.num_prompt_tokens - request.num_computed_tokens, step",
        misconception="only prompts are missing",
        message=(
            "what a running request misses is counted from its prompt alone. Its last output is not computed yet "
            "either: num_tokens counts both."
        ),
    ),
    Wrong(
        id="decode_misses_nothing_unguarded",
        task="3.2",
        symbol=RUNNING,
        old="request.num_tokens - request.num_computed_tokens, step",
        new="request.num_prompt_tokens - request.num_computed_tokens, step",
        misconception="only prompts are missing",
        message=(
            "what a running request misses is counted from its prompt alone. Its last output is not computed yet "
            "either: num_tokens counts both."
        ),
        more=(
            (RUNNING, "            if n == 0:\n                step.req_index += 1\n                continue\n", ""),
        ),
    ),
    Wrong(
        id="turn_never_ends",
        task="3.2",
        symbol=RUNNING,
        old="            step.token_budget -= n\n            step.req_index += 1\n",
        new="            step.token_budget -= n\n",
        misconception="the loop moves by itself",
        message="the same request has its turn again and again: step.req_index does not move after it.",
    ),
    Wrong(
        id="computed_at_admission",
        task="3.3",
        symbol=ADMIT,
        old="request.num_computed_tokens = num_hit_tokens",
        new="request.num_computed_tokens = num_hit_tokens + n",
        misconception="what is planned is computed",
        message=(
            "the tokens of this step are counted twice. At admission the hits alone are computed; schedule adds "
            "the tokens of the step, for all requests, at its end."
        ),
    ),
    Wrong(
        id="passes_swapped",
        task="3.4",
        symbol=SCHEDULE,
        old=(
            "        self._schedule_running(step)\n"
            "        if not step.preempted:\n"
            "            self._schedule_waiting(step)\n"
        ),
        new="        self._schedule_waiting(step)\n        self._schedule_running(step)\n",
        misconception="newcomers are prefilled before decodes",
        message=(
            "the waiting pass runs first. Then the running pass meets the newcomers again, and they may take "
            "what a running request needs."
        ),
    ),
]

HARMLESS = [
    Harmless(
        id="no_cap_at_the_end_of_the_context",
        task="3.2",
        symbol=RUNNING,
        old="            n = min(n, self.max_model_len - 1 - request.num_computed_tokens)\n",
        new="",
        proof="A running request has fewer tokens than max_model_len, or it would have ended: it never misses more "
        "than the cap allows. Only speculative tokens could.",
    ),
    Harmless(
        id="break_at_nothing_missing",
        task="3.2",
        symbol=RUNNING,
        old="            if n == 0:\n                step.req_index += 1\n                continue\n",
        new="            if n == 0:\n                break\n",
        proof="Without speculative tokens a running request always misses one token at least, and the loop ends when "
        "the budget is 0: n is never 0.",
    ),
]
