"""A right solution of lab 06: budget and index are counted anew from what is left of the plan."""

from minivllm.core.block_pool import KVCacheBlock
from minivllm.core.request import Request, RequestStatus
from minivllm.core.step_plan import StepPlan
from minivllm.course.grader import given


class Scheduler(given.Scheduler):
    """vLLM: v1/core/sched/scheduler.py::Scheduler (simplified: synchronous, no speculative tokens, no connectors)"""

    def _select_victim(self) -> Request:
        """Who gives up its blocks: the latest admitted; by priority, the least important, of equals the latest.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        victim = self.running[-1]
        if self.policy != "fcfs":
            for request in self.running:
                if (request.priority, request.arrival_time) > (victim.priority, victim.arrival_time):
                    victim = request
        return victim

    def _preempt_request(self, victim: Request) -> None:
        """Take a request's blocks and put it back to the front of the waiting queue.

        It keeps its output tokens and its hashes and loses its progress: it will compute prompt and outputs again, as
        far as they can't be found in the prefix cache.

        vLLM: v1/core/sched/scheduler.py::Scheduler._preempt_request
        """
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.prepend_request(victim)

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        """Slots for `n` tokens of a running request, at the cost of others if need be. None: it had to go itself.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        new_blocks = self.kv_cache_manager.allocate_slots(request, n)
        while new_blocks is None:
            victim = self._select_victim()
            self._preempt_for(request, n, victim, step)
            if victim.request_id == request.request_id:
                break
            new_blocks = self.kv_cache_manager.allocate_slots(request, n)
        return new_blocks

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        """Take the victim out of the running list, and out of the plan if it is in it already.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        asker = self.running[step.req_index]
        self.running.remove(victim)
        kept = [request for request in step.scheduled_running if request is not victim]
        step.scheduled_running[:] = kept
        if victim.request_id in step.num_scheduled_tokens:
            del step.num_scheduled_tokens[victim.request_id], step.new_blocks[victim.request_id]
        step.token_budget = self.max_num_scheduled_tokens - sum(step.num_scheduled_tokens.values())
        if asker in self.running:
            step.req_index = self.running.index(asker)
