"""A right solution of lab 06: victims stand in a row before the first goes."""

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
        row = list(self.running)
        if self.policy == "priority":
            row.sort(key=lambda request: (request.priority, request.arrival_time))
        return row.pop()

    def _preempt_request(self, victim: Request) -> None:
        """Take a request's blocks and put it back to the front of the waiting queue.

        It keeps its output tokens and its hashes and loses its progress: it will compute prompt and outputs again, as
        far as they can't be found in the prefix cache.

        vLLM: v1/core/sched/scheduler.py::Scheduler._preempt_request
        """
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        self.waiting.prepend_request(victim)
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens, victim.status = 0, RequestStatus.PREEMPTED

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        """Slots for `n` tokens of a running request, at the cost of others if need be. None: it had to go itself.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
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
        """Take the victim out of the running list, and out of the plan if it is in it already.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        self.running = [request for request in self.running if request is not victim]
        tokens = step.num_scheduled_tokens.pop(victim.request_id, None)
        if tokens is not None:
            step.scheduled_running = [request for request in step.scheduled_running if request is not victim]
            step.new_blocks = {name: blocks for name, blocks in step.new_blocks.items() if name != victim.request_id}
            step.token_budget = step.token_budget + tokens
            step.req_index = step.req_index - 1
