"""A scheduler and a block pool to drive by hand, with made-up tokens and a model that says what the test wants."""

from typing import Any

from minivllm.core.block_hash import get_request_block_hasher, init_none_hash
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.engine.messages import EngineCoreOutput
from minivllm.proof.lockstep import build_core
from minivllm.sampling_params import SamplingParams

EOS_TOKEN_ID = 2
SETTINGS = {
    "block_size": 4,
    "num_blocks": 17,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "max_model_len": 64,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
}


class Core:
    """Scheduler, cache and a scripted model. Every sampled token is new unless the test names it."""

    def __init__(self, scheduler_class: type[Scheduler] = Scheduler, **settings: Any) -> None:
        self.settings = SETTINGS | settings
        self.scheduler = build_core({"config": self.settings, "requests": []}, {"scheduler": scheduler_class}).scheduler
        self.manager = self.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.hasher = get_request_block_hasher(self.settings["block_size"], init_none_hash("test"))
        self.requests: dict[str, Request] = {}
        self.next_token = 100

    def new_tokens(self, count: int) -> list[int]:
        """Tokens that nobody has had before."""
        self.next_token += count
        return list(range(self.next_token - count, self.next_token))

    def add(
        self, request_id: str, prompt: int | list[int], priority: int = 0, cache_salt: str | None = None, **params: Any
    ) -> Request:
        """A request; `prompt` is a number of new tokens, or the tokens themselves."""
        sampling = SamplingParams(**({"temperature": 0, "max_tokens": 50} | params))
        sampling.set_stop_tokens(EOS_TOKEN_ID)
        request = Request(
            request_id=request_id,
            prompt_token_ids=self.new_tokens(prompt) if isinstance(prompt, int) else list(prompt),
            sampling_params=sampling,
            arrival_time=float(len(self.requests)),
            priority=priority,
            cache_salt=cache_salt,
            block_hasher=self.hasher,
        )
        self.requests[request_id] = request
        self.scheduler.add_request(request)
        return request

    def update(self, plan: SchedulerOutput, **tokens: int) -> list[EngineCoreOutput]:
        """Hand a plan's result up; `tokens` names what a request's token is to be."""
        req_ids = list(plan.num_scheduled_tokens)
        sampled = []
        for req_id in req_ids:
            request = self.requests[req_id]
            complete = request.num_computed_tokens >= request.num_tokens
            sampled.append([tokens.get(req_id) or self.new_tokens(1)[0]] if complete else [])
        rows = {req_id: row for row, req_id in enumerate(req_ids)}
        return self.scheduler.update_from_output(plan, ModelRunnerOutput(req_ids, rows, sampled))

    def step(self, **tokens: int) -> SchedulerOutput:
        """A whole step; returns its plan."""
        plan = self.scheduler.schedule()
        self.update(plan, **tokens)
        return plan

    def abort(self, request_id: str) -> list[str]:
        return self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)

    def blocks(self, request_id: str) -> list[int]:
        return self.manager.get_block_ids(request_id)

    def free(self) -> list[int]:
        """The free queue, the next block to be handed out first."""
        return [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]

    def names(self, queue: Any) -> list[str]:
        return [request.request_id for request in queue]
