"""Cost of a step of the core, without a model: requests that all decode, and a made-up token for each; beside others
that wait for a seat.

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
from minivllm.core.request import Request
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.engine.assemble import assemble
from minivllm.engine.core import EngineCore
from minivllm.sampling_params import SamplingParams
from minivllm.worker.recorded_executor import RecordedExecutor

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


class TimedExecutor(RecordedExecutor):
    """Says token 7 for every request, and how long it took, which is no time of the scheduler's."""

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        start = time.thread_time()
        result = super().execute_model(plan)
        self.num_tokens, self.seconds = plan.total_num_scheduled_tokens, time.thread_time() - start
        return result


def make_core(settings: dict[str, Any], requests: int) -> EngineCore:
    """A core with so many waiting requests of different prompts."""
    config = EngineConfig(
        block_size=settings["block_size"],
        num_gpu_blocks_override=settings["num_blocks"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
    ).resolved(settings["prompt_len"] + settings["output_len"])
    output = [7] * settings["output_len"]
    core = assemble(config, TimedExecutor({f"r{row}": output for row in range(requests)}), {})
    for row in range(requests):
        params = SamplingParams(temperature=0, max_tokens=settings["output_len"], ignore_eos=True)
        prompt = [(row * 7919 + i * 31) % 40000 + 5 for i in range(settings["prompt_len"])]
        core.add_request(
            Request(f"r{row}", prompt, params, arrival_time=float(row), block_hasher=core.request_block_hasher)
        )
    return core


def measure(settings: dict[str, Any], running: int, waiting: int = 0) -> float:
    """Median microseconds of a step with `running` requests that decode, without what the executor takes. Those that
    wait could run only if there were more seats. The processor's time: whatever else runs here does not count.
    """
    core = make_core({**settings, "max_num_seqs": running}, running + waiting)
    executor, times = core.model_executor, []
    while len(times) < settings["steps"]:
        start = time.thread_time()
        outputs, _ = core.step()
        seconds = time.thread_time() - start - executor.seconds
        if outputs is not None and len(outputs.outputs) == running == executor.num_tokens:
            times.append(seconds)
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
