"""StepPlan: the plan of one step while it is made, and how it is written down.

Owns: what the two passes of `Scheduler.schedule` have decided so far.
Interface: its fields; refuse; to_scheduler_output.
Must not know: how a decision is made.
"""

from dataclasses import dataclass, field

from minivllm.core.block_pool import KVCacheBlock
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request
from minivllm.core.sched_output import (
    CachedRequestData,
    NewRequestData,
    Preemption,
    SchedulerOutput,
    Skipped,
    SkipReason,
)


@dataclass(slots=True)
class StepPlan:
    """The plan of one step while it is made.

    vLLM: v1/core/sched/scheduler.py::Scheduler.schedule (its local variables)
    """

    token_budget: int
    timestamp: float  # one stamp for all events of the step, seconds
    req_index: int = 0  # of the running request whose turn it is
    scheduled_running: list[Request] = field(default_factory=list)
    new: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    new_blocks: dict[str, list[KVCacheBlock]] = field(default_factory=dict)  # of scheduled_running
    refused: Skipped | None = None
    preemptions: list[Preemption] = field(default_factory=list)

    def refuse(
        self,
        head: Request,
        reason: SkipReason,
        num_running: int,
        num_hit_tokens: int,
        blocks_needed: int | None = None,
        blocks_free: int | None = None,
    ) -> None:
        """Note why the head of the waiting queue is not admitted. Those behind it wait for it, which needs no note."""
        self.refused = Skipped(
            head.request_id, reason, self.token_budget, num_running, blocks_needed, blocks_free, num_hit_tokens
        )

    def to_scheduler_output(
        self, running: list[Request], kv_cache_manager: KVCacheManager, finished_req_ids: set[str]
    ) -> SchedulerOutput:
        """The plan for the worker. running: after both passes, in order of admission.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        num_common_prefix_blocks = 0
        if running:
            num_common_prefix_blocks = kv_cache_manager.get_num_common_prefix_blocks(running[0].request_id)
        return SchedulerOutput(
            scheduled_new_reqs=[
                NewRequestData(
                    req_id=request.request_id,
                    prompt_token_ids=request.prompt_token_ids,
                    sampling_params=request.sampling_params,
                    block_ids=kv_cache_manager.get_block_ids(request.request_id),
                    num_computed_tokens=request.num_computed_tokens,
                )
                for request in self.new
            ],
            scheduled_cached_reqs=self._make_cached_request_data(kv_cache_manager),
            num_scheduled_tokens=self.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(self.num_scheduled_tokens.values()),
            num_common_prefix_blocks=num_common_prefix_blocks,
            finished_req_ids=finished_req_ids,
            preempted_req_ids={request.request_id for request in self.preempted},
            token_budget_left=self.token_budget,
            num_running_visited=self.req_index,
            refused=self.refused,
            preemptions=self.preemptions,
        )

    def _make_cached_request_data(self, kv_cache_manager: KVCacheManager) -> CachedRequestData:
        """vLLM: v1/core/sched/scheduler.py::Scheduler._make_cached_request_data"""
        known = self.scheduled_running + self.resumed
        new_blocks = [self.new_blocks[request.request_id] for request in self.scheduled_running]
        return CachedRequestData(
            req_ids=[request.request_id for request in known],
            resumed_req_ids={request.request_id for request in self.resumed},
            new_block_ids=[
                *([block.block_id for block in blocks] if blocks else None for blocks in new_blocks),
                *(kv_cache_manager.get_block_ids(request.request_id) for request in self.resumed),
            ],
            num_computed_tokens=[request.num_computed_tokens for request in known],
            num_output_tokens=[request.num_output_tokens for request in known],
        )
