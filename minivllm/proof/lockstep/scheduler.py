"""The scheduler in lockstep: a recorded workload, driven through an engine core whose model's tokens are given.

Owns: what happens before, in and after each step, and how a step is written down.
Interface: replay_scheduler, iterate_steps, build_core, Between.
Must not know: what vLLM did.

A step: arrivals in list order, aborts, a reset of the prefix cache, EngineCore.step() with aborts that arrive while the
model runs. The engine's own names are vLLM's, so one driver writes down both (`SchedulerAdapter`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minivllm.config import EngineConfig
from minivllm.core.request import Request
from minivllm.core.sched_output import CachedRequestData, ModelRunnerOutput, SchedulerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.engine.assemble import assemble
from minivllm.engine.core import EngineCore
from minivllm.proof.lockstep.recording import Workload
from minivllm.sampling_params import SamplingParams
from minivllm.worker.recorded_executor import RecordedExecutor

Step = dict[str, Any]

MAX_STEPS = 100_000  # a workload that gets here never ends
NO_PLAN = SchedulerOutput([], CachedRequestData(), {}, 0, 0, set(), set(), 0)


def build_core(
    workload: Workload, parts: Mapping[str, Any] | None = None, executor: Any = None, **settings: Any
) -> EngineCore:
    """A core for a workload. executor: None: no model runs, the token sampled for a request at output index i is
    `output[i]`. settings: beside the workload's own.
    """
    if executor is None:
        executor = RecordedExecutor({recorded["id"]: recorded["output"] for recorded in workload["requests"]})
    return assemble(make_config(workload["config"], **settings), executor, parts or {})


def make_config(settings: dict[str, Any], **more: Any) -> EngineConfig:
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
        **more,
    ).resolved(max_model_len=settings["max_model_len"])


def replay_scheduler(workload: Workload, scheduler_class: type[Scheduler] = Scheduler) -> list[Step]:
    """Every step of a scheduler workload."""
    return list(iterate_steps(workload, build_core(workload, {"scheduler": scheduler_class})))


class PoisonedScheduler(Scheduler):
    """A scheduler with the fault that vLLM has and ours hasn't: a victim's uncomputed blocks can still be hit."""

    def _forget_uncomputed_blocks(self, victim: Request) -> None:
        """Leave the hashes as they are."""


class SchedulerAdapter:
    """Where our classes and vLLM's have another shape. This one is for ours."""

    def __init__(self, workload: Workload, core: EngineCore) -> None:
        self.eos_token_id: int = workload["eos_token_id"]
        self.hasher = core.request_block_hasher

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

    def block_ids(self, ids: list[int]) -> list[int]:
        return list(ids)

    def num_common_prefix_blocks(self, plan: Any) -> int:
        return plan.num_common_prefix_blocks


class Between:
    """An executor, and what is looked at or done between a plan and its update."""

    def __init__(
        self, executor: Any, planned: Callable[[Any], None], computed: Callable[[Any], None] | None = None
    ) -> None:
        self.executor, self.planned, self.computed = executor, planned, computed

    def execute_model(self, plan: Any) -> ModelRunnerOutput:
        self.planned(plan)
        result = self.executor.execute_model(plan)
        if result is None:
            result = self.executor.sample_tokens()
        if self.computed is not None:
            self.computed(result)
        return result


def iterate_steps(
    workload: Workload,
    core: EngineCore,
    adapter: SchedulerAdapter | None = None,
    planned: Callable[[Any], None] | None = None,
) -> Iterator[Step]:
    """Drive a core through a workload, a recorded step at a time; its state can be looked at between steps.

    planned: called with every plan, before it is computed.
    """
    adapter = adapter or SchedulerAdapter(workload, core)
    extras = workload.get("extras", False)
    scheduler, pending = core.scheduler, list(workload["requests"])
    live: dict[str, Any] = {}

    def alive(key: str, number: int) -> list[str]:
        """The requests whose `key` is this step, of those that have not ended."""
        return [
            recorded["id"]
            for recorded in workload["requests"]
            if recorded.get(key) == number and recorded["id"] in live and not adapter.is_finished(live[recorded["id"]])
        ]

    def note_plan(plan: Any) -> None:
        if planned is not None:
            planned(plan)
        step.update(_describe_plan(plan, scheduler, adapter))
        if extras:
            step["num_common_prefix_blocks"] = adapter.num_common_prefix_blocks(plan)

    def note_result(result: Any) -> None:
        if extras:
            step["aborted_in_flight"] = alive("abort_in_flight_step", step["step"])
            core.aborts_queue.put(step["aborted_in_flight"])
        step["sampled"] = [list(pair) for pair in zip(result.req_ids, result.sampled_token_ids, strict=True)]

    executor = core.model_executor
    core.model_executor = Between(executor, note_plan, note_result)
    for number in range(MAX_STEPS):
        step: Step = {"step": number, "added": []}
        while pending and pending[0]["arrival_step"] <= number:
            recorded = pending.pop(0)
            live[recorded["id"]] = adapter.make_request(recorded, float(number * 1000 + len(live)))
            core.add_request(live[recorded["id"]])
            step["added"].append(recorded["id"])
        step["aborted"] = alive("abort_step", number)
        for req_id in step["aborted"]:
            core.abort_requests([req_id])
        if extras:
            step["reset"] = core.reset_prefix_cache() if number in workload["reset_steps"] else None
        if not pending and not scheduler.has_requests():
            core.model_executor = executor
            return
        outputs, _ = core.step()
        if "new" not in step:  # nobody is there, so there was no plan
            step |= _describe_plan(NO_PLAN, scheduler, adapter) | {"sampled": []}
            if extras:
                step |= {"num_common_prefix_blocks": 0, "aborted_in_flight": []}
        step["outputs"] = [_describe_output(output, extras) for output in (outputs.outputs if outputs else ())]
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
