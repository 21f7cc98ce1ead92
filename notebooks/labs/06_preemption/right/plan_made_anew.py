"""A right solution of lab 06: budget and index are counted anew from what is left of the plan."""


class Scheduler(given.Scheduler):
    def _select_victim(self) -> Request:
        victim = self.running[-1]
        if self.policy != "fcfs":
            for request in self.running:
                if (request.priority, request.arrival_time) > (victim.priority, victim.arrival_time):
                    victim = request
        return victim

    def _preempt_request(self, victim: Request) -> None:
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.prepend_request(victim)

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        new_blocks = self.kv_cache_manager.allocate_slots(request, n)
        while new_blocks is None:
            victim = self._select_victim()
            self._preempt_for(request, n, victim, step)
            if victim.request_id == request.request_id:
                break
            new_blocks = self.kv_cache_manager.allocate_slots(request, n)
        return new_blocks

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        asker = self.running[step.req_index]
        self.running.remove(victim)
        kept = [request for request in step.scheduled_running if request is not victim]
        step.scheduled_running[:] = kept
        if victim.request_id in step.num_scheduled_tokens:
            del step.num_scheduled_tokens[victim.request_id], step.new_blocks[victim.request_id]
        step.token_budget = self.max_num_scheduled_tokens - sum(step.num_scheduled_tokens.values())
        if asker in self.running:
            step.req_index = self.running.index(asker)
