"""Cost of a step of the Scheduler, without a model: requests that all decode, and a made-up token for each; beside
others that wait for a seat.

Owns: the workload. peer_vllm_scheduler.py runs the same with vLLM's classes.
Interface: SETTINGS, measure, measure_all.
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
    "waiting": [0, 1000, 20_000],  # for a seat, while `beside_waiting` run
    "beside_waiting": 64,
    "prompt_len": 64,
    "output_len": 448,
    "steps": 300,  # a measurement is their median
    "block_size": 16,
    "num_blocks": 10_000,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
}


def make_scheduler(settings: dict[str, Any], requests: int) -> Scheduler:
    """A scheduler with so many waiting requests of different prompts."""
    config = EngineConfig(
        block_size=settings["block_size"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
    ).resolved(settings["prompt_len"] + settings["output_len"])
    scheduler = Scheduler(config, KVCacheManager(config, BlockPool(settings["num_blocks"], enable_caching=True)))
    hasher = get_request_block_hasher(settings["block_size"], init_none_hash())
    for row in range(requests):
        params = SamplingParams(temperature=0, max_tokens=settings["output_len"], ignore_eos=True)
        prompt = [(row * 7919 + i * 31) % 40000 + 5 for i in range(settings["prompt_len"])]
        scheduler.add_request(Request(f"r{row}", prompt, params, arrival_time=float(row), block_hasher=hasher))
    return scheduler


def measure(settings: dict[str, Any], running: int, waiting: int = 0) -> float:
    """Median microseconds of schedule + update_from_output with `running` requests that decode. Those that wait could
    run only if there were more seats. The processor's time: whatever else runs here does not count.
    """
    scheduler = make_scheduler({**settings, "max_num_seqs": running}, running + waiting)
    times: list[float] = []
    while len(times) < settings["steps"]:
        start = time.thread_time()
        plan = scheduler.schedule()
        planned = time.thread_time()
        ids = list(plan.num_scheduled_tokens)
        decoding = len(ids) == running and plan.total_num_scheduled_tokens == running
        requests = [scheduler.requests[i] for i in ids]
        sampled = [[7] if request.num_computed_tokens >= request.num_tokens else [] for request in requests]
        result = ModelRunnerOutput(ids, {i: row for row, i in enumerate(ids)}, sampled)
        before = time.thread_time()
        scheduler.update_from_output(plan, result)
        if decoding:
            times.append(planned - start + time.thread_time() - before)
    return statistics.median(times) * 1e6


def measure_all(settings: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a step, by what runs and by what waits."""
    running = {f"{count}_running_us": measure(settings, count) for count in settings["running"]}
    beside = settings["beside_waiting"]
    return running | {f"{count}_waiting_us": measure(settings, beside, count) for count in settings["waiting"]}


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        given = json.load(file)
    print(json.dumps(measure_all(given)))
