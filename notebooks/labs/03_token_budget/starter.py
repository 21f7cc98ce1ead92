"""Lab 03 · The token budget

Predict, for any step, how many tokens each request gets, and why the others got none.

    3.1  tokens for one request (10 points)
    3.2  running pass (15 points)
    3.3  waiting pass (20 points)
    3.4  the order of the passes (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 03
"""

from minivllm.boundary import boundary
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import SchedulerOutput
from minivllm.core.step_plan import StepPlan
from minivllm.course.grader import given
from minivllm.engine.messages import EngineCoreEventType


class Scheduler(given.Scheduler):
    """vLLM: v1/core/sched/scheduler.py::Scheduler (simplified: synchronous, no speculative tokens, no connectors)"""

    def _num_new_tokens(self, missing: int, token_budget: int) -> int:
        """Tokens that a request gets of its `missing` ones: at most the threshold (0: none), and at most the budget."""
        raise NotImplementedError("Lab 3.1: threshold, then budget")

    def _schedule_running(self, step: StepPlan) -> None:
        """Pass 1: every running request gets what it misses, in order of admission.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        raise NotImplementedError("Lab 3.2: give every running request what it misses, while there is budget")

    def _schedule_waiting(self, step: StepPlan) -> None:
        """Pass 2: admit from the head of the waiting queue. The first that can't be admitted ends the pass.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        raise NotImplementedError("Lab 3.3: admit from the head, while budget, seats and blocks last")

    def _admit(self, request: Request, n: int, num_hit_tokens: int, step: StepPlan) -> None:
        """Give a waiting request, which has left its queue, a seat and `n` tokens. Its hits count as computed.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        request.record_event(EngineCoreEventType.SCHEDULED, step.timestamp)
        request.set_prefill_stats(num_hit_tokens)
        (step.resumed if request.status is RequestStatus.PREEMPTED else step.new).append(request)
        raise NotImplementedError("Lab 3.3: seat, status, progress, tokens")

    @boundary("schedule")
    def schedule(self) -> SchedulerOutput:
        """Plan one step. num_computed_tokens advances here, before anything is computed.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        step = StepPlan(token_budget=self.max_num_scheduled_tokens, timestamp=self.clock())
        raise NotImplementedError("Lab 3.4: the two passes")
        return self._finish_plan(step)
