"""A right solution of lab 03: the running pass walks over a copy, and asks who is still there."""


class Scheduler(given.Scheduler):
    def _num_new_tokens(self, missing: int, token_budget: int) -> int:
        limit = self.long_prefill_token_threshold or missing
        return min(missing, limit, token_budget)

    def _schedule_running(self, step: StepPlan) -> None:
        for request in list(self.running):
            if step.token_budget <= 0:
                return
            if request not in self.running:
                continue  # it was preempted in this step
            wanted = request.num_tokens - request.num_computed_tokens
            room = self.max_model_len - 1 - request.num_computed_tokens
            n = min(self._num_new_tokens(wanted, step.token_budget), room)
            if n > 0:
                blocks = self._allocate_or_preempt(request, n, step)
                if blocks is None:
                    return
                step.num_scheduled_tokens[request.request_id] = n
                step.new_blocks[request.request_id] = blocks
                step.scheduled_running.append(request)
                step.token_budget -= n
            step.req_index = self.running.index(request) + 1

    def _schedule_waiting(self, step: StepPlan) -> None:
        while True:
            seats = self.max_num_running_reqs - len(self.running)
            if not self.waiting or seats <= 0 or step.token_budget <= 0:
                return
            request = self.waiting.peek_request()
            hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)
            missing = request.num_tokens - num_hit_tokens
            n = self._num_new_tokens(missing, step.token_budget)
            capped = self._num_new_tokens(missing, missing)
            if n < capped and not self.enable_chunked_prefill:
                return
            whole = self.scheduler_reserve_full_isl
            if self.kv_cache_manager.allocate_slots(request, n, num_hit_tokens, hits, whole) is None:
                return
            self.waiting.pop_request()
            self._admit(request, n, num_hit_tokens, step)

    def _admit(self, request: Request, n: int, num_hit_tokens: int, step: StepPlan) -> None:
        request.record_event(EngineCoreEventType.SCHEDULED, step.timestamp)
        request.set_prefill_stats(num_hit_tokens)
        (step.resumed if request.status is RequestStatus.PREEMPTED else step.new).append(request)
        self.running += [request]
        request.status, request.num_computed_tokens = RequestStatus.RUNNING, num_hit_tokens
        step.num_scheduled_tokens[request.request_id] = n
        step.token_budget = step.token_budget - n

    @boundary("schedule")
    def schedule(self) -> SchedulerOutput:
        step = StepPlan(token_budget=self.max_num_scheduled_tokens, timestamp=self.clock())
        self._schedule_running(step)
        if len(step.preempted) == 0:
            self._schedule_waiting(step)
        return self._finish_plan(step)
