"""Growth: many requests through one engine, and its memory after some of them and after all.

    python -m minivllm.proof.bench.own_memory JOB.json

Owns: the requests. The engine runs in this process, so what it keeps is seen here.
Must not know: what the engine keeps.
"""

import gc
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minivllm.llm import LLM
from minivllm.sampling_params import SamplingParams

NUM_BLOCKS = 100


def run_job(job: dict[str, Any]) -> dict[str, float]:
    """Memory in MB after each of the job's checkpoints (numbers of requests), and objects that Python tracks."""
    figures: dict[str, float] = {}
    # few blocks: the prefix cache is full soon, and what grows afterwards is a leak
    settings = {"max_model_len": job["max_model_len"], "num_gpu_blocks_override": NUM_BLOCKS, "multiprocess": False}
    with LLM(job["model"], **settings) as llm:
        done = 0
        for checkpoint in job["checkpoints"]:
            for prompts, params in batches(checkpoint - done, done, llm.model_config.vocab_size):
                llm.generate(prompts, params, use_tqdm=False)
            done = checkpoint
            gc.collect()
            figures[f"objects_after_{checkpoint}"] = len(gc.get_objects())
            resident = resident_mb()
            if resident is not None:
                figures[f"resident_mb_after_{checkpoint}"] = resident
    return figures


def batches(count: int, seed: int, vocab_size: int) -> Iterator[tuple[list[list[int]], list[SamplingParams]]]:
    """`count` requests in batches of 16: some share a prefix, some have a seed, some ask for logprobs."""
    source = random.Random(seed)
    shared = [source.randrange(3, vocab_size) for _ in range(20)]
    for start in range(0, count, 16):
        rows = range(min(16, count - start))
        prompts = [shared[: 4 * (row % 5)] + [source.randrange(3, vocab_size) for _ in range(4)] for row in rows]
        yield (
            prompts,
            [
                SamplingParams(
                    temperature=float(row % 2),
                    seed=row if row % 4 == 1 else None,
                    logprobs=2 if row % 3 == 0 else None,
                    max_tokens=source.randint(1, 6),
                    ignore_eos=True,
                )
                for row in rows
            ],
        )


def resident_mb() -> float | None:
    """Memory of this process that is in use now; None where /proc does not say."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(run_job(json.load(file))), flush=True)
