"""Cost of a step of vLLM's own Scheduler, without a model. A script for a Python that has vllm 0.22.0, and not ours.

    PEER_PYTHON peer_vllm_scheduler.py MODEL_FOLDER SETTINGS.json

Owns: the workload of `own_scheduler.py`, in vLLM's classes. Prints one line of JSON: name -> microseconds.
Must not know: minivllm, which that Python need not have.
"""

import json
import os
import statistics
import sys
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager


def make_scheduler(model: str, settings: dict) -> Scheduler:
    """vLLM: v1/core/sched/scheduler.py::Scheduler.__init__"""
    limit = settings["prompt_len"] + settings["output_len"]
    model_config = ModelConfig(model=model, tokenizer=model, dtype="float32", max_model_len=limit, seed=0)
    scheduler_config = SchedulerConfig(
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_model_len=limit,
        enable_chunked_prefill=True,
        async_scheduling=False,
        is_encoder_decoder=False,
    )
    cache_config = CacheConfig(block_size=settings["block_size"], enable_prefix_caching=True)
    config = VllmConfig(scheduler_config=scheduler_config, model_config=model_config, cache_config=cache_config)
    config.cache_config.num_gpu_blocks = settings["num_blocks"]
    spec = FullAttentionSpec(block_size=settings["block_size"], num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv_cache_config = KVCacheConfig(
        num_blocks=settings["num_blocks"], kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return Scheduler(
        vllm_config=config,
        kv_cache_config=kv_cache_config,
        log_stats=False,
        block_size=settings["block_size"],
        structured_output_manager=StructuredOutputManager(config),
    )


def measure(model: str, settings: dict, running: int, waiting: int = 0) -> float:
    """Median microseconds of schedule + update_from_output with `running` requests that decode. Those that wait could
    run only if there were more seats. The processor's time: whatever else runs here does not count.

    vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
    """
    scheduler = make_scheduler(model, {**settings, "max_num_seqs": running})
    hasher = get_request_block_hasher(settings["block_size"], sha256)
    for row in range(running + waiting):
        params = SamplingParams(temperature=0, max_tokens=settings["output_len"], ignore_eos=True)
        prompt = [(row * 7919 + i * 31) % 40000 + 5 for i in range(settings["prompt_len"])]
        scheduler.add_request(Request(f"r{row}", prompt, params, None, arrival_time=float(row), block_hasher=hasher))
    times = []
    while len(times) < settings["steps"]:
        start = time.thread_time()
        plan = scheduler.schedule()
        planned = time.thread_time()
        ids = list(plan.num_scheduled_tokens)
        decoding = len(ids) == running and plan.total_num_scheduled_tokens == running
        requests = [scheduler.requests[i] for i in ids]
        sampled = [[7] if request.num_computed_tokens >= request.num_tokens else [] for request in requests]
        result = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={i: row for row, i in enumerate(ids)}, sampled_token_ids=sampled
        )
        before = time.thread_time()
        scheduler.update_from_output(plan, result)
        if decoding:
            times.append(planned - start + time.thread_time() - before)
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    init_none_hash(sha256)
    with open(sys.argv[2]) as file:
        given = json.load(file)
    found = {f"{n}_running_us": measure(sys.argv[1], given, n) for n in given["running"]}
    beside = given["beside_waiting"]
    found |= {f"{n}_waiting_us": measure(sys.argv[1], given, beside, n) for n in given["waiting"]}
    print(json.dumps(found))
