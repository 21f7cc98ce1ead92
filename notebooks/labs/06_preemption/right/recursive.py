"""A right solution of lab 06: after each victim it asks itself again."""


class Scheduler(given.Scheduler):
    def _select_victim(self) -> Request:
        if self.policy == "fcfs":
            return self.running[len(self.running) - 1]
        return sorted(self.running, key=lambda request: (request.priority, request.arrival_time))[-1]

    def _preempt_request(self, victim: Request) -> None:
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.prepend_request(victim)
        self.kv_cache_manager.free(victim)

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        blocks = self.kv_cache_manager.allocate_slots(request, n)
        if blocks is not None:
            return blocks
        victim = self._select_victim()
        self._preempt_for(request, n, victim, step)
        return None if victim is request else self._allocate_or_preempt(request, n, step)

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        place = self.running.index(victim)
        del self.running[place]
        if victim in step.scheduled_running:
            step.scheduled_running.remove(victim)
            step.token_budget += step.num_scheduled_tokens[victim.request_id]
            del step.num_scheduled_tokens[victim.request_id]
            step.new_blocks.pop(victim.request_id)
            step.req_index -= 1
