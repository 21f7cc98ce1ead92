"""A right solution of lab 03: each pass treats one request, then calls itself."""


class Scheduler(given.Scheduler):
    def _num_new_tokens(self, missing: int, token_budget: int) -> int:
        caps = [missing, token_budget]
        if self.long_prefill_token_threshold > 0:
            caps.append(self.long_prefill_token_threshold)
        return min(caps)

    def _schedule_running(self, step: StepPlan) -> None:
        if step.req_index >= len(self.running) or step.token_budget < 1:
            return
        request = self.running[step.req_index]
        n = self._num_new_tokens(request.num_tokens - request.num_computed_tokens, step.token_budget)
        if n:
            new_blocks = self._allocate_or_preempt(request, n, step)
            if new_blocks is None:
                return
            step.token_budget -= n
            step.num_scheduled_tokens[request.request_id] = n
            step.new_blocks[request.request_id] = new_blocks
            step.scheduled_running += [request]
        step.req_index += 1
        self._schedule_running(step)

    def _schedule_waiting(self, step: StepPlan) -> None:
        if not self.waiting or step.token_budget == 0 or len(self.running) >= self.max_num_running_reqs:
            return
        request = self.waiting.peek_request()
        hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)
        rest = self._num_new_tokens(request.num_tokens - num_hit_tokens, request.num_tokens)
        if rest > step.token_budget:
            if not self.enable_chunked_prefill:
                return
            rest = step.token_budget
        if (
            self.kv_cache_manager.allocate_slots(request, rest, num_hit_tokens, hits, self.scheduler_reserve_full_isl)
            is not None
        ):
            self._admit(self.waiting.pop_request(), rest, num_hit_tokens, step)
            self._schedule_waiting(step)

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
        if not step.preempted:
            self._schedule_waiting(step)
        return self._finish_plan(step)
