"""Lab 02 · Request states and stop rules

Given a request and a sampled token, say whether it stops, with which reason, when its blocks are free and when the
worker hears of it.

    2.1  the rules by which a request ends (20 points)
    2.2  several tokens at once (10 points)
    2.3  what comes back, and aborts (20 points)
    2.4  an end in two phases (10 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 02
"""

from collections.abc import Callable, Iterable

from minivllm.boundary import boundary
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader import given
from minivllm.engine.messages import EngineCoreOutput, FinishReason


def check_stop(request: Request, max_model_len: int) -> bool:
    """Whether the request ends with its last token; sets its status and stop_reason.

    The order matters: min_tokens first, then the end-of-text token (stop_reason None), then stop ids, then lengths.

    vLLM: v1/core/sched/utils.py::check_stop (simplified: no repetition detection)
    """
    raise NotImplementedError("Lab 2.1: the rules, in their order")


def update_request_with_output(
    request: Request,
    new_token_ids: list[int],
    max_model_len: int,
    check_stop: Callable[[Request, int], bool] = check_stop,
) -> tuple[list[int], bool]:
    """Append sampled tokens until one of them ends the request. Returns the tokens that count, and whether it ended.

    vLLM: v1/core/sched/scheduler.py::Scheduler._update_request_with_output
    """
    raise NotImplementedError("Lab 2.2: append and test, token by token")


class Scheduler(given.Scheduler):
    """vLLM: v1/core/sched/scheduler.py::Scheduler (simplified: synchronous, no speculative tokens, no connectors)"""

    @boundary("update_from_output")
    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Take the sampled tokens in, end what ends, and say what is new. A request without new tokens says nothing.

        vLLM: v1/core/sched/scheduler.py::Scheduler.update_from_output
        """
        raise NotImplementedError("Lab 2.3: append the sampled tokens, end what ends, say what is new")

    @boundary("finish_requests")
    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[str]:
        """End requests from outside, as an abort does. Unknown and ended ids are ignored; returns those that ended.

        vLLM: v1/core/sched/scheduler.py::Scheduler.finish_requests
        """
        raise NotImplementedError("Lab 2.3: take each live request out of its queue, and end it")

    def _free_request(self, request: Request) -> None:
        """The first of two phases: blocks are free now, the worker hears of it with the next plan.

        vLLM: v1/core/sched/scheduler.py::Scheduler._free_request
        """
        raise NotImplementedError("Lab 2.4: who ended, its blocks, its entry")

    def _update_after_schedule(self, plan: SchedulerOutput) -> None:
        """Count the planned tokens as computed; the next plan carries the next ends.

        vLLM: v1/core/sched/scheduler.py::Scheduler._update_after_schedule
        """
        raise NotImplementedError("Lab 2.4: counts, and whose end has been told")
