"""Why a request got nothing: worked out when somebody asks, from the plan and the queues as the plan left them.

Owns: the reasons of those behind the point where a pass ended. The plan says where that was, and why.
Interface: find_skipped.
Must not know: how a plan is made, or who asks. A step does not come here, so waiting costs it nothing.
"""

from collections.abc import Iterable

from minivllm.core.request import Request
from minivllm.core.sched_output import SchedulerOutput, Skipped, SkipReason


def find_skipped(
    plan: SchedulerOutput, running: list[Request], waiting: Iterable[Request], max_num_running_reqs: int
) -> list[Skipped]:
    """Every live request without tokens in this plan: the refused head first, then running, then waiting ones."""

    def skip(request: Request, reason: SkipReason, blocked_by: str | None = None) -> Skipped:
        return Skipped(request.request_id, reason, plan.token_budget_left, len(running), blocked_by=blocked_by)

    refused = plan.refused
    needy = plan.preemptions[-1].for_req_id if plan.preemptions else None
    taken_by = {preemption.req_id: preemption.for_req_id for preemption in plan.preemptions}
    found = [] if refused is None else [refused]
    for request in running[plan.num_running_visited :]:
        if request.request_id not in plan.num_scheduled_tokens:
            found.append(skip(request, "token_budget" if needy is None else "preemption", needy))
    for request in waiting:
        if request.request_id in taken_by:
            found.append(skip(request, "preempted", taken_by[request.request_id]))
        elif needy is not None:
            found.append(skip(request, "preemption", needy))
        elif refused is not None:
            if request.request_id != refused.req_id:
                found.append(skip(request, "head_of_line", refused.req_id))
        elif len(running) >= max_num_running_reqs:
            found.append(skip(request, "seats"))
        else:
            found.append(skip(request, "token_budget"))
    return found
