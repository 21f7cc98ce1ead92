"""Cost of a step of the Scheduler, without a model: requests that all decode, and a made-up token for each.

Owns: the workload. peer_vllm_scheduler.py runs the same with vLLM's classes.
Interface: SETTINGS, measure.
Must not know: torch.
"""

import json
import statistics
import sys
import time
from typing import Any

from minivllm.config import EngineConfig
from minivllm.core.block_hash import get_request_block_hasher, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request
from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.sampling_params import SamplingParams

SETTINGS: dict[str, Any] = {
    "running": [1, 16, 64, 256],
    "prompt_len": 64,
    "output_len": 448,
    "steps": 300,  # a measurement is their median
    "block_size": 16,
    "num_blocks": 10_000,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
}


def make_scheduler(settings: dict[str, Any], running: int) -> Scheduler:
    """A scheduler with `running` waiting requests of different prompts.

    vLLM: none, see peer_vllm_scheduler.py
    """
    config = EngineConfig(
        block_size=settings["block_size"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
    ).resolved(settings["prompt_len"] + settings["output_len"])
    scheduler = Scheduler(config, KVCacheManager(config, BlockPool(settings["num_blocks"], enable_caching=True)))
    hasher = get_request_block_hasher(settings["block_size"], init_none_hash())
    for row in range(running):
        params = SamplingParams(temperature=0, max_tokens=settings["output_len"], ignore_eos=True)
        prompt = [(row * 7919 + i * 31) % 40000 + 5 for i in range(settings["prompt_len"])]
        scheduler.add_request(Request(f"r{row}", prompt, params, arrival_time=float(row), block_hasher=hasher))
    return scheduler


def measure(settings: dict[str, Any], running: int) -> float:
    """Median microseconds of schedule + update_from_output with `running` requests that decode.

    vLLM: none, see peer_vllm_scheduler.py
    """
    scheduler = make_scheduler(settings, running)
    times: list[float] = []
    while len(times) < settings["steps"]:
        start = time.perf_counter()
        plan = scheduler.schedule()
        planned = time.perf_counter()
        ids = list(plan.num_scheduled_tokens)
        decoding = len(ids) == running and plan.total_num_scheduled_tokens == running
        requests = [scheduler.requests[i] for i in ids]
        sampled = [[7] if request.num_computed_tokens >= request.num_tokens else [] for request in requests]
        result = ModelRunnerOutput(ids, {i: row for row, i in enumerate(ids)}, sampled)
        before = time.perf_counter()
        scheduler.update_from_output(plan, result)
        if decoding:
            times.append(planned - start + time.perf_counter() - before)
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        given = json.load(file)
    print(json.dumps({str(n): measure(given, n) for n in given["running"]}))
