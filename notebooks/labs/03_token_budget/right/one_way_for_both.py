"""A right solution of lab 03: one helper plans the tokens of a request, whichever pass it is in."""


class Scheduler(given.Scheduler):
    def _num_new_tokens(self, missing: int, token_budget: int) -> int:
        if self.long_prefill_token_threshold:
            missing = min(missing, self.long_prefill_token_threshold)
        return missing if missing < token_budget else token_budget

    def _schedule_running(self, step: StepPlan) -> None:
        while step.token_budget and step.req_index < len(self.running):
            request = self.running[step.req_index]
            n = self._wanted(request, request.num_computed_tokens, step)
            if n:
                new_blocks = self._allocate_or_preempt(request, n, step)
                if new_blocks is None:
                    break
                step.new_blocks[request.request_id] = new_blocks
                step.scheduled_running.append(request)
                self._take(request, n, step)
            step.req_index += 1

    def _wanted(self, request: Request, computed: int, step: StepPlan) -> int:
        return self._num_new_tokens(request.num_tokens - computed, step.token_budget)

    def _take(self, request: Request, n: int, step: StepPlan) -> None:
        step.num_scheduled_tokens[request.request_id] = n
        step.token_budget -= n

    def _schedule_waiting(self, step: StepPlan) -> None:
        while self._may_admit(step):
            request = self.waiting.peek_request()
            hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)
            n = self._wanted(request, num_hit_tokens, step)
            alone = StepPlan(token_budget=request.num_tokens, timestamp=step.timestamp)
            if not self.enable_chunked_prefill and n != self._wanted(request, num_hit_tokens, alone):
                break
            fits = self.kv_cache_manager.allocate_slots(
                request, n, num_hit_tokens, hits, full_sequence_must_fit=self.scheduler_reserve_full_isl
            )
            if fits is None:
                break
            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)

    def _may_admit(self, step: StepPlan) -> bool:
        return len(self.waiting) > 0 and step.token_budget > 0 and len(self.running) != self.max_num_running_reqs

    def _admit(self, request: Request, n: int, num_hit_tokens: int, step: StepPlan) -> None:
        request.record_event(EngineCoreEventType.SCHEDULED, step.timestamp)
        request.set_prefill_stats(num_hit_tokens)
        (step.resumed if request.status is RequestStatus.PREEMPTED else step.new).append(request)
        request.num_computed_tokens = num_hit_tokens
        request.status = RequestStatus.RUNNING
        self.running.append(request)
        step.num_scheduled_tokens |= {request.request_id: n}
        step.token_budget -= n

    @boundary("schedule")
    def schedule(self) -> SchedulerOutput:
        step = StepPlan(token_budget=self.max_num_scheduled_tokens, timestamp=self.clock())
        self._schedule_running(step)
        if step.preempted:
            pass  # whoever was preempted would come back at once
        else:
            self._schedule_waiting(step)
        return self._finish_plan(step)
