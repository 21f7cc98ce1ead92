"""A right solution of lab 06: victims stand in a row before the first goes."""


class Scheduler(given.Scheduler):
    def _select_victim(self) -> Request:
        row = list(self.running)
        if self.policy == "priority":
            row.sort(key=lambda request: (request.priority, request.arrival_time))
        return row.pop()

    def _preempt_request(self, victim: Request) -> None:
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        self.waiting.prepend_request(victim)
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens, victim.status = 0, RequestStatus.PREEMPTED

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        for _ in range(len(self.running) + 1):
            blocks = self.kv_cache_manager.allocate_slots(request, n)
            if blocks is not None:
                return blocks
            victim = self._select_victim()
            self._preempt_for(request, n, victim, step)
            if request not in self.running:
                return None
        return None

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        self.running = [request for request in self.running if request is not victim]
        tokens = step.num_scheduled_tokens.pop(victim.request_id, None)
        if tokens is not None:
            step.scheduled_running = [request for request in step.scheduled_running if request is not victim]
            step.new_blocks = {name: blocks for name, blocks in step.new_blocks.items() if name != victim.request_id}
            step.token_budget = step.token_budget + tokens
            step.req_index = step.req_index - 1
