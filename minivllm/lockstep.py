"""Lockstep: the same decisions as the real vLLM 0.22.0, step by step, against recordings of it.

Owns: how a recorded workload is driven through the engine's own classes, and how two recordings are compared.
Interface: replay_scheduler, replay_engine, replay_sampler; compare.
Must not know: how the recordings were made (record_vllm.py).

A replay takes what was recorded as input and gives what was recorded as output, in the same format: key names, order
of lists, types. traces/vllm-0.22.0/README.md describes it.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from minivllm.config import EngineConfig, cdiv
from minivllm.core.block_hash import BlockHasher, get_request_block_hasher, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.engine.messages import EngineCoreOutput
from minivllm.outputs import Logprob, RequestOutput
from minivllm.sampling_params import SamplingParams, SamplingType

MAX_STEPS = 100_000  # a replay that gets here never ends
SAMPLER_EOS = 2


def build_scheduler(settings: dict[str, Any], scheduler_class: type[Scheduler] = Scheduler) -> Scheduler:
    """A scheduler over a block pool, without a model, from the `config` of a recorded workload."""
    config = EngineConfig(
        block_size=settings["block_size"],
        num_gpu_blocks_override=settings["num_blocks"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        enable_prefix_caching=settings["enable_prefix_caching"],
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        scheduling_policy=settings["policy"],
    ).resolved(max_model_len=settings["max_model_len"])
    pool = BlockPool(config.num_gpu_blocks_override, config.enable_prefix_caching)
    return scheduler_class(config, KVCacheManager(config, pool))


def replay_scheduler(workload: dict[str, Any], scheduler_class: type[Scheduler] = Scheduler) -> list[dict[str, Any]]:
    """Every step of a scheduler workload. No model runs: the token sampled for a request at output index i is
    `output[i]` of the workload.
    """
    return list(iterate_scheduler(workload, build_scheduler(workload["config"], scheduler_class)))


def iterate_scheduler(workload: dict[str, Any], scheduler: Scheduler) -> Iterator[dict[str, Any]]:
    """Drive `scheduler` through a workload, a recorded step at a time; its state can be looked at between steps."""
    hasher = get_request_block_hasher(workload["config"]["block_size"], init_none_hash())
    pending = list(workload["requests"])
    output_of = {request["id"]: request["output"] for request in workload["requests"]}
    live: dict[str, Request] = {}
    for step in range(MAX_STEPS):
        added = []
        while pending and pending[0]["arrival_step"] <= step:
            recorded = pending.pop(0)
            request = _make_request(recorded, workload["eos_token_id"], float(step * 1000 + len(live)), hasher)
            live[request.request_id] = request
            scheduler.add_request(request)
            added.append(request.request_id)
        aborted = []
        for recorded in workload["requests"]:
            if recorded["abort_step"] == step and recorded["id"] in live:
                aborted += scheduler.finish_requests([recorded["id"]], RequestStatus.FINISHED_ABORTED)
        if not pending and not scheduler.has_requests():
            return
        plan = scheduler.schedule()
        record = {"step": step, "added": added, "aborted": aborted, **_describe_plan(plan, scheduler)}
        result = _fake_model(plan, live, output_of)
        record["sampled"] = [
            [req_id, ids] for req_id, ids in zip(result.req_ids, result.sampled_token_ids, strict=True)
        ]
        outputs = scheduler.update_from_output(plan, result)
        record["outputs"] = [_describe_output(output) for output in outputs]
        record["free_blocks_after_update"] = free_block_ids(scheduler)
        yield record
    raise RuntimeError(f"{workload['name']} did not end within {MAX_STEPS} steps")


def free_block_ids(scheduler: Scheduler) -> list[int]:
    """The free queue in order, the next block to be allocated first."""
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    return [block.block_id for block in queue.get_all_free_blocks()]


def _make_request(recorded: dict[str, Any], eos_token_id: int, arrival_time: float, hasher: BlockHasher) -> Request:
    params = SamplingParams(
        temperature=0,
        max_tokens=recorded["max_tokens"],
        min_tokens=recorded["min_tokens"],
        ignore_eos=recorded["ignore_eos"],
        stop_token_ids=recorded["stop_token_ids"],
    )
    params.set_stop_tokens(eos_token_id)
    return Request(
        request_id=recorded["id"],
        prompt_token_ids=recorded["prompt_token_ids"],
        sampling_params=params,
        arrival_time=arrival_time,
        priority=recorded["priority"],
        block_hasher=hasher,
    )


def _fake_model(plan: SchedulerOutput, live: dict[str, Request], output_of: dict[str, list[int]]) -> ModelRunnerOutput:
    """What a model that samples the workload's tokens would hand up."""
    req_ids = list(plan.num_scheduled_tokens)
    sampled = []
    for req_id in req_ids:
        request = live[req_id]
        complete = request.num_computed_tokens >= request.num_tokens
        sampled.append([output_of[req_id][request.num_output_tokens]] if complete else [])
    return ModelRunnerOutput(req_ids, {req_id: row for row, req_id in enumerate(req_ids)}, sampled)


def _describe_plan(plan: SchedulerOutput, scheduler: Scheduler) -> dict[str, Any]:
    cached = plan.scheduled_cached_reqs
    return {
        "new": [
            {"id": new.req_id, "num_computed_tokens": new.num_computed_tokens, "block_ids": list(new.block_ids)}
            for new in plan.scheduled_new_reqs
        ],
        "cached": [
            {
                "id": req_id,
                "resumed": req_id in cached.resumed_req_ids,
                "num_computed_tokens": num_computed,
                "num_output_tokens": num_output,
                "new_block_ids": list(block_ids or []),
            }
            for req_id, num_computed, num_output, block_ids in zip(
                cached.req_ids,
                cached.num_computed_tokens,
                cached.num_output_tokens,
                cached.new_block_ids,
                strict=True,
            )
        ],
        "num_scheduled_tokens": [[req_id, n] for req_id, n in plan.num_scheduled_tokens.items()],
        "preempted": sorted(plan.preempted_req_ids),
        "finished": sorted(plan.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks_after_schedule": free_block_ids(scheduler),
    }


def _describe_output(output: EngineCoreOutput) -> dict[str, Any]:
    return {
        "id": output.request_id,
        "new_token_ids": output.new_token_ids,
        "finish_reason": None if output.finish_reason is None else str(output.finish_reason),
        "stop_reason": output.stop_reason,
    }


# ---------------------------------------------------------------------- the sampler


def replay_sampler(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What the sampler makes of a batch of recorded logits, just before the random draw.

    A row's `processed_logprobs` has None for a masked token, and is None for a greedy row, which has `greedy_token`.
    """
    import torch  # here, since replaying scheduler workloads needs none of it

    from minivllm.sample.sampler import process
    from minivllm.worker.input_batch import CachedRequestState, make_sampling_metadata

    rows = case["rows"]
    states = [
        CachedRequestState(
            req_id=f"q{index}",
            prompt_token_ids=row["prompt_token_ids"],
            sampling_params=_sampler_params(row),
            block_ids=[],
            num_computed_tokens=0,
            output_token_ids=row["output_token_ids"],
        )
        for index, row in enumerate(rows)
    ]
    logits = torch.tensor([row["logits"] for row in rows], dtype=torch.float32)
    greedy, processed = process(logits, make_sampling_metadata(states, logits.shape[1], logits.device))
    logprobs = processed.log_softmax(dim=-1).tolist()
    replayed = []
    for index, state in enumerate(states):
        is_greedy = state.sampling_params.sampling_type is SamplingType.GREEDY
        values = [None if value == float("-inf") else round(value, 5) for value in logprobs[index]]
        replayed.append(
            {
                "processed_logprobs": None if is_greedy else values,
                "greedy_token": int(greedy[index]) if is_greedy else None,
            }
        )
    return replayed


def _sampler_params(row: dict[str, Any]) -> SamplingParams:
    """The recorded batches have end-of-text id 2 and max_tokens 64; JSON made strings of the keys of logit_bias."""
    sampling = dict(row["sampling"])
    if sampling.get("logit_bias"):
        sampling["logit_bias"] = {int(token): bias for token, bias in sampling["logit_bias"].items()}
    params = SamplingParams(max_tokens=64, **sampling)
    params.set_stop_tokens(SAMPLER_EOS)
    params._bad_words_token_ids = row["bad_words_token_ids"]
    return params


# ---------------------------------------------------------------------- the whole engine


def replay_engine(scenario: dict[str, Any], model: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Run a recorded scenario: what the worker flattened in each step, and what the caller got.

    All requests are added before the first step. A request with a `prompt` is passed as text, any other as token ids.
    """
    from minivllm.llm import LLM

    requests = scenario["requests"]
    with LLM(model, multiprocess=False, **scenario["engine_args"]) as llm:
        steps = _record_steps(llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner)
        outputs = llm.generate(
            [request["prompt_token_ids"] if request["prompt"] is None else request["prompt"] for request in requests],
            [_engine_params(request["sampling"]) for request in requests],
            use_tqdm=False,
            priority=[request.get("priority", 0) for request in requests],
        )
    return {"steps": steps, "outputs": [_describe_request_output(output) for output in outputs]}


def _engine_params(sampling: dict[str, Any]) -> SamplingParams:
    """Every recorded request is greedy; JSON made strings of the keys of logit_bias."""
    sampling = {"temperature": 0, **sampling}
    if sampling.get("logit_bias"):
        sampling["logit_bias"] = {int(token): bias for token, bias in sampling["logit_bias"].items()}
    return SamplingParams(**sampling)


def _record_steps(runner: Any) -> list[dict[str, Any]]:
    """Watch a model runner from outside; the list grows by one for each flat batch it makes."""
    steps: list[dict[str, Any]] = []
    prepare_inputs = runner.prepare_inputs

    def watched(plan: SchedulerOutput) -> Any:
        batch = prepare_inputs(plan)
        steps.append(_describe_batch(batch, runner.input_batch))
        return batch

    runner.prepare_inputs = watched
    return steps


def _describe_batch(batch: Any, input_batch: Any) -> dict[str, Any]:
    query_start_loc = batch.query_start_loc.tolist()
    seq_lens = batch.seq_lens.tolist()
    table = input_batch.block_table.block_table
    return {
        "req_order": [req_id if "_" in req_id else req_id.rsplit("-", 1)[0] for req_id in input_batch.req_ids],
        "num_scheduled_tokens": [end - start for start, end in pairwise(query_start_loc)],
        "input_ids": batch.input_ids.tolist(),
        "positions": batch.positions.tolist(),
        "query_start_loc": query_start_loc,
        "seq_lens": seq_lens,
        "block_table": [
            table[row, : cdiv(length, input_batch.block_size)].tolist() for row, length in enumerate(seq_lens)
        ],
        "slot_mapping": batch.slot_mapping.tolist(),
        "logits_indices": batch.logits_indices.tolist(),
    }


def _describe_request_output(output: RequestOutput) -> dict[str, Any]:
    return {
        "request_id": output.request_id,
        "num_cached_tokens": output.num_cached_tokens,
        "prompt_logprobs": _describe_logprobs(output.prompt_logprobs),
        "outputs": [
            {
                "index": completion.index,
                "text": completion.text,
                "token_ids": list(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "stop_reason": completion.stop_reason,
                "cumulative_logprob": completion.cumulative_logprob,
                "logprobs": _describe_logprobs(completion.logprobs),
            }
            for completion in output.outputs
        ],
    }


def _describe_logprobs(places: list[dict[int, Logprob] | None] | None) -> list[dict[str, Any] | None] | None:
    if not places:
        return None
    return [
        {
            str(token): {"logprob": round(lp.logprob, 4), "rank": lp.rank, "token": lp.decoded_token}
            for token, lp in place.items()
        }
        if place
        else None
        for place in places
    ]
