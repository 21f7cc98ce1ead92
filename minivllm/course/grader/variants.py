"""Workloads by seed, small enough to be followed by hand.

Owns: how they are drawn. Interface: draw, make_workload.
Must not know: what makes a workload interesting; each lab's questions.py says that.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from minivllm.config import cdiv
from minivllm.course.grader.seeds import run_of
from minivllm.proof.lockstep.recording import Workload

EOS_TOKEN_ID = 2
MAX_TRIES = 400
Run = list[dict[str, Any]]


def draw(
    lab: str, seed: int, make: Callable[[Random], Workload], interesting: Callable[[Workload, Run], bool]
) -> Workload:
    """The first workload of a seed's row that is interesting."""
    random = Random(f"lab {lab} {seed}")
    for _ in range(MAX_TRIES):
        workload = make(random)
        if interesting(workload, run_of(workload)):
            return workload
    raise RuntimeError(f"lab {lab}, seed {seed}: no interesting workload in {MAX_TRIES}")


def make_workload(
    random: Random,
    *,
    block_size: tuple[int, ...] = (4,),
    spare_blocks: tuple[int, ...] = (2, 3, 4, 5, 6, 8),
    max_num_seqs: tuple[int, ...] = (2, 3, 4),
    budget: tuple[int, ...] = (12, 16, 20, 24),
    threshold: tuple[int, ...] = (0,),
    policy: tuple[str, ...] = ("fcfs",),
    caching: bool = True,
    num_requests: tuple[int, int] = (4, 6),
    prompt_len: tuple[int, int] = (5, 18),
    output_len: tuple[int, int] = (2, 9),
    shared: float = 0.7,
    arrival: tuple[int, ...] = (0, 0, 1, 2),
) -> Workload:
    """A workload of a few requests, some of which begin with the same tokens."""
    size = random.choice(block_size)
    longest = prompt_len[1] + output_len[1] + 1
    config = {
        "block_size": size,
        "num_blocks": 1 + cdiv(longest, size) + random.choice(spare_blocks),
        "max_num_seqs": random.choice(max_num_seqs),
        "max_num_batched_tokens": random.choice(budget),
        "max_model_len": longest,
        "enable_prefix_caching": caching,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": random.choice(threshold),
        "policy": random.choice(policy),
    }
    prefixes = [[random.randint(10, 99) for _ in range(prompt_len[1])] for _ in range(2)]
    requests, step = [], 0
    for index in range(random.randint(*num_requests)):
        length = random.randint(*prompt_len)
        prompt = [random.randint(10, 99) for _ in range(length)]
        if random.random() < shared:
            kept = random.randint(length // 2, length)
            prompt[:kept] = random.choice(prefixes)[:kept]
        max_tokens = random.randint(*output_len)
        requests.append(
            {
                "id": f"r{index}",
                "arrival_step": step,
                "prompt_token_ids": prompt,
                "max_tokens": max_tokens,
                "min_tokens": 0,
                "ignore_eos": False,
                "stop_token_ids": [],
                "priority": random.randint(0, 2) if config["policy"] == "priority" else 0,
                "abort_step": None,
                "output": [random.randint(10, 99) for _ in range(max_tokens + 2)],
            }
        )
        step += random.choice(arrival)
    return {"name": "variant", "config": config, "eos_token_id": EOS_TOKEN_ID, "requests": requests}
