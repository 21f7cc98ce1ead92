"""Lab 06 · Preemption and resumption

Name the victim, what it keeps and what it loses, when it returns, and how much is computed again.

    6.1  the victim (10 points)
    6.2  what it keeps, and what it loses (15 points)
    6.3  room for one, at the cost of others (20 points)
    6.4  all of it, on longer runs (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 06
"""

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
        raise NotImplementedError("Lab 6.1: one rule for each policy")

    def _preempt_request(self, victim: Request) -> None:
        """Take a request's blocks and put it back to the front of the waiting queue.

        It keeps its output tokens and its hashes and loses its progress: it will compute prompt and outputs again, as
        far as they can't be found in the prefix cache.

        vLLM: v1/core/sched/scheduler.py::Scheduler._preempt_request
        """
        victim.num_preemptions += 1
        raise NotImplementedError("Lab 6.2: blocks, status, progress, queue")

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        """Slots for `n` tokens of a running request, at the cost of others if need be. None: it had to go itself.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        raise NotImplementedError("Lab 6.3: until the tokens fit, preempt one request after the other")

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        """Take the victim out of the running list, and out of the plan if it is in it already.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        raise NotImplementedError("Lab 6.3: out of the running list; undo what the plan holds of it")
