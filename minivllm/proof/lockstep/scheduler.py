"""The scheduler in lockstep: a recorded workload, driven through Scheduler and block pool, without a model.

Owns: the order in which things happen in a step, and how a step is written down.
Interface: replay_scheduler, iterate_scheduler, build_scheduler.
Must not know: what vLLM did.

A step: arrivals in list order, aborts, a reset of the prefix cache, schedule(), aborts that arrive while the model
runs, update_from_output(). The engine's own names are vLLM's, so one driver writes down both (`SchedulerAdapter`).
"""

from collections.abc import Iterator
from typing import Any

from minivllm.config import EngineConfig
from minivllm.core.block_hash import BlockHasher, get_request_block_hasher, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.proof.lockstep.recording import Workload
from minivllm.sampling_params import SamplingParams

Step = dict[str, Any]

MAX_STEPS = 100_000  # a workload that gets here never ends


def build_scheduler(settings: dict[str, Any], scheduler_class: type[Scheduler] = Scheduler) -> Scheduler:
    """A scheduler over a block pool, without a model, from the `config` of a recorded workload."""
    config = make_config(settings)
    pool = BlockPool(config.num_gpu_blocks_override, config.enable_prefix_caching)
    return scheduler_class(config, KVCacheManager(config, pool))


def make_config(settings: dict[str, Any]) -> EngineConfig:
    """The engine's settings, from the `config` of a recorded workload."""
    return EngineConfig(
        block_size=settings["block_size"],
        num_gpu_blocks_override=settings["num_blocks"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        enable_prefix_caching=settings["enable_prefix_caching"],
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        scheduling_policy=settings["policy"],
    ).resolved(max_model_len=settings["max_model_len"])


def replay_scheduler(workload: Workload, scheduler_class: type[Scheduler] = Scheduler) -> list[Step]:
    """Every step of a scheduler workload. No model runs: the token sampled for a request at output index i is
    `output[i]` of the workload.
    """
    return list(iterate_scheduler(workload, build_scheduler(workload["config"], scheduler_class)))


class PoisonedScheduler(Scheduler):
    """A scheduler with the fault that vLLM has and ours hasn't: a victim's uncomputed blocks can still be hit."""

    def _forget_uncomputed_blocks(self, victim: Request) -> None:
        """Leave the hashes as they are."""


class SchedulerAdapter:
    """Where our classes and vLLM's have another shape. This one is for ours."""

    def __init__(self, workload: Workload) -> None:
        self.eos_token_id: int = workload["eos_token_id"]
        self.hasher: BlockHasher = get_request_block_hasher(workload["config"]["block_size"], init_none_hash())

    def make_request(self, recorded: dict[str, Any], arrival_time: float) -> Request:
        params = SamplingParams(**sampling_of(recorded))
        params.set_stop_tokens(self.eos_token_id)
        return Request(
            request_id=recorded["id"],
            prompt_token_ids=recorded["prompt_token_ids"],
            sampling_params=params,
            arrival_time=arrival_time,
            priority=recorded["priority"],
            cache_salt=recorded.get("cache_salt"),
            block_hasher=self.hasher,
        )

    def is_finished(self, request: Request) -> bool:
        return request.is_finished

    def abort(self, scheduler: Scheduler, request_id: str) -> None:
        scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)

    def block_ids(self, ids: list[int]) -> list[int]:
        return list(ids)

    def num_common_prefix_blocks(self, plan: Any) -> int:
        return plan.num_common_prefix_blocks

    def update(self, scheduler: Scheduler, plan: Any, req_ids: list[str], sampled: list[list[int]]) -> list[Any]:
        rows = {req_id: row for row, req_id in enumerate(req_ids)}
        return scheduler.update_from_output(plan, ModelRunnerOutput(req_ids, rows, sampled))


def iterate_scheduler(workload: Workload, scheduler: Any, adapter: SchedulerAdapter | None = None) -> Iterator[Step]:
    """Drive `scheduler` through a workload, a recorded step at a time; its state can be looked at between steps."""
    adapter = adapter or SchedulerAdapter(workload)
    extras = workload.get("extras", False)
    pending = list(workload["requests"])
    output_of = {recorded["id"]: recorded["output"] for recorded in workload["requests"]}
    live: dict[str, Any] = {}
    for number in range(MAX_STEPS):
        step: Step = {"step": number, "added": []}
        while pending and pending[0]["arrival_step"] <= number:
            recorded = pending.pop(0)
            request = adapter.make_request(recorded, float(number * 1000 + len(live)))
            live[recorded["id"]] = request
            scheduler.add_request(request)
            step["added"].append(recorded["id"])
        step["aborted"] = _abort(workload, number, "abort_step", live, scheduler, adapter)
        if extras:
            step["reset"] = scheduler.reset_prefix_cache() if number in workload["reset_steps"] else None
        if not pending and not scheduler.has_requests():
            return
        plan = scheduler.schedule()
        step |= _describe_plan(plan, scheduler, adapter)
        if extras:
            step["num_common_prefix_blocks"] = adapter.num_common_prefix_blocks(plan)
        req_ids, sampled = _sample(plan, output_of, live)
        if extras:
            step["aborted_in_flight"] = _abort(workload, number, "abort_in_flight_step", live, scheduler, adapter)
        step["sampled"] = [list(pair) for pair in zip(req_ids, sampled, strict=True)]
        outputs = adapter.update(scheduler, plan, req_ids, sampled)
        step["outputs"] = [_describe_output(output, extras) for output in outputs]
        step["free_blocks_after_update"] = free_block_ids(scheduler)
        yield step
    raise RuntimeError(f"{workload['name']} did not end within {MAX_STEPS} steps")


def sampling_of(recorded: dict[str, Any]) -> dict[str, Any]:
    """The SamplingParams of a recorded request: what the scheduler looks at."""
    return {
        "temperature": 0,
        "max_tokens": recorded["max_tokens"],
        "min_tokens": recorded["min_tokens"],
        "ignore_eos": recorded["ignore_eos"],
        "stop_token_ids": recorded["stop_token_ids"],
        "skip_reading_prefix_cache": recorded.get("skip_reading_prefix_cache"),
    }


def free_block_ids(scheduler: Any) -> list[int]:
    """The free queue in order, the next block to be allocated first."""
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    return [block.block_id for block in queue.get_all_free_blocks()]


def _abort(
    workload: Workload, number: int, key: str, live: dict[str, Any], scheduler: Any, adapter: SchedulerAdapter
) -> list[str]:
    """Abort the requests whose `key` is this step; returns those that were alive."""
    aborted = []
    for recorded in workload["requests"]:
        request = live.get(recorded["id"])
        if recorded.get(key) == number and request is not None and not adapter.is_finished(request):
            adapter.abort(scheduler, recorded["id"])
            aborted.append(recorded["id"])
    return aborted


def _sample(plan: Any, output_of: dict[str, list[int]], live: dict[str, Any]) -> tuple[list[str], list[list[int]]]:
    """What a model that says the workload's tokens would sample: (request ids, a list of tokens each)."""
    req_ids = list(plan.num_scheduled_tokens)
    sampled = []
    for req_id in req_ids:
        request = live[req_id]
        complete = request.num_computed_tokens >= request.num_tokens
        sampled.append([output_of[req_id][request.num_output_tokens]] if complete else [])
    return req_ids, sampled


def _describe_plan(plan: Any, scheduler: Any, adapter: SchedulerAdapter) -> Step:
    cached = plan.scheduled_cached_reqs
    entries = zip(
        cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, cached.new_block_ids, strict=True
    )
    return {
        "new": [
            {
                "id": new.req_id,
                "num_computed_tokens": new.num_computed_tokens,
                "block_ids": adapter.block_ids(new.block_ids),
            }
            for new in plan.scheduled_new_reqs
        ],
        "cached": [
            {
                "id": req_id,
                "resumed": req_id in cached.resumed_req_ids,
                "num_computed_tokens": num_computed,
                "num_output_tokens": num_output,
                "new_block_ids": [] if block_ids is None else adapter.block_ids(block_ids),
            }
            for req_id, num_computed, num_output, block_ids in entries
        ],
        "num_scheduled_tokens": [[req_id, n] for req_id, n in plan.num_scheduled_tokens.items()],
        "preempted": sorted(plan.preempted_req_ids or ()),
        "finished": sorted(plan.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks_after_schedule": free_block_ids(scheduler),
    }


def _describe_output(output: Any, extras: bool) -> Step:
    described = {
        "id": output.request_id,
        "new_token_ids": list(output.new_token_ids),
        "finish_reason": None if output.finish_reason is None else str(output.finish_reason),
        "stop_reason": output.stop_reason,
    }
    if extras:
        stats = output.prefill_stats
        described["num_cached_tokens"] = None if stats is None else stats.num_cached_tokens
    return described
