"""What the scheduler hands down (SchedulerOutput) and what the worker hands up (ModelRunnerOutput), on one page.

Both stay inside the core process. One KV cache group, so a block table is a plain list of ids.
"""

from dataclasses import dataclass, field
from typing import Literal

from minivllm.engine.messages import LogprobsLists
from minivllm.sampling_params import SamplingParams


@dataclass(slots=True)
class NewRequestData:
    """A request that the worker sees for the first time.

    vLLM: v1/core/sched/output.py::NewRequestData
    """

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: list[int]  # all its blocks, cache hits first
    num_computed_tokens: int  # tokens whose K and V are already in those blocks


@dataclass(slots=True)
class CachedRequestData:
    """Requests that the worker knows: running ones, then resumed ones. Lists of equal length.

    vLLM: v1/core/sched/output.py::CachedRequestData
    """

    req_ids: list[str] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)  # their block ids replace, the others' extend
    new_block_ids: list[list[int] | None] = field(default_factory=list)  # None: no new block
    num_computed_tokens: list[int] = field(default_factory=list)  # before this step's tokens
    num_output_tokens: list[int] = field(default_factory=list)


SkipReason = Literal["token_budget", "seats", "blocks", "not_fit_in_budget", "preemption", "head_of_line", "preempted"]


@dataclass(slots=True)
class Skipped:
    """A request that got no token in this step, why, and the numbers behind it.

    token_budget: nothing of the budget was left. seats: max_num_seqs requests run. blocks: it needs more blocks than
    are free. not_fit_in_budget: without chunked prefill its prompt is longer than the budget that is left.
    preemption: something was preempted in this step, so nobody is admitted. head_of_line: the request before it could
    not be admitted. preempted: it ran, and lost its blocks in this step.

    vLLM: none, vLLM does not say why a request waits
    """

    req_id: str
    reason: SkipReason
    token_budget: int  # tokens left when it was its turn
    num_running: int
    blocks_needed: int | None = None
    blocks_free: int | None = None
    num_hit_tokens: int | None = None  # prefix-cache hit of a waiting request
    blocked_by: str | None = None  # head_of_line: the request in front. preempted: the one that needed the block


@dataclass(slots=True)
class Preemption:
    """One victim: who needed blocks, how many, and what the victim gave back.

    vLLM: none, vLLM only reports the ids
    """

    req_id: str
    for_req_id: str
    blocks_needed: int
    blocks_free: int  # before the victim gave its own back
    num_computed_tokens: int  # tokens to compute again, less what the prefix cache keeps
    was_scheduled: bool  # it already had tokens in this step, which were taken back
    blocks_returned: int = 0


@dataclass(slots=True)
class SchedulerOutput:
    """The plan of one step.

    vLLM: v1/core/sched/output.py::SchedulerOutput
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]  # in scheduling order: running, then admitted
    total_num_scheduled_tokens: int
    num_common_prefix_blocks: int
    finished_req_ids: set[str]  # ended since the last step: the worker drops them now
    preempted_req_ids: set[str]
    token_budget_left: int
    num_running_visited: int = 0  # those of `running` whose turn came; the pass ended before the others
    refused: Skipped | None = None  # the head of the waiting queue, if it was looked at and not admitted
    preemptions: list[Preemption] = field(default_factory=list)  # in the order they happened


@dataclass(slots=True)
class ModelRunnerOutput:
    """What the worker sampled, in row order: look rows up by `req_id_to_index`, never by position in the plan.

    vLLM: v1/outputs.py::ModelRunnerOutput
    """

    req_ids: list[str]
    req_id_to_index: dict[str, int]
    sampled_token_ids: list[list[int]]  # [] for a row whose prompt is not complete yet
    logprobs: LogprobsLists | None = None  # one place a row
    prompt_logprobs_dict: dict[str, LogprobsLists] = field(default_factory=dict)


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=[])
