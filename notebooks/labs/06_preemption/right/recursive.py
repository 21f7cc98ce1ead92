"""A right solution of lab 06: after each victim it asks itself again."""

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
        if self.policy == "fcfs":
            return self.running[len(self.running) - 1]
        return sorted(self.running, key=lambda request: (request.priority, request.arrival_time))[-1]

    def _preempt_request(self, victim: Request) -> None:
        """Take a request's blocks and put it back to the front of the waiting queue.

        It keeps its output tokens and its hashes and loses its progress: it will compute prompt and outputs again, as
        far as they can't be found in the prefix cache.

        vLLM: v1/core/sched/scheduler.py::Scheduler._preempt_request
        """
        self._forget_uncomputed_blocks(victim)
        victim.num_preemptions += 1
        victim.num_computed_tokens = 0
        victim.status = RequestStatus.PREEMPTED
        self.waiting.prepend_request(victim)
        self.kv_cache_manager.free(victim)

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        """Slots for `n` tokens of a running request, at the cost of others if need be. None: it had to go itself.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        blocks = self.kv_cache_manager.allocate_slots(request, n)
        if blocks is not None:
            return blocks
        victim = self._select_victim()
        self._preempt_for(request, n, victim, step)
        return None if victim is request else self._allocate_or_preempt(request, n, step)

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        """Take the victim out of the running list, and out of the plan if it is in it already.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        place = self.running.index(victim)
        del self.running[place]
        if victim in step.scheduled_running:
            step.scheduled_running.remove(victim)
            step.token_budget += step.num_scheduled_tokens[victim.request_id]
            del step.num_scheduled_tokens[victim.request_id]
            step.new_blocks.pop(victim.request_id)
            step.req_index -= 1
