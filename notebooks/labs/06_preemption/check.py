"""Lab 06: what is asked about preemption, and what is expected."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.config import cdiv
from minivllm.course.grader import evidence
from minivllm.course.grader.checksum_worker import generated
from minivllm.course.grader.judge import Ask, Check, Outcome
from minivllm.course.grader.words import count
from minivllm.course.places import repo_path

LADDER = evidence.ladder_check()

# ---------------------------------------------------------------------- the text does not depend on the pool

ENGINE_SCENARIOS = Path("traces/vllm-0.22.0/vllm-0.22.0-engine.json")
SCENARIO = "preempt"
MAX_STEPS = 400


@cache
def scenario() -> dict[str, Any]:
    """The engine scenario `preempt` as a workload: four requests in a pool that is too small for them."""
    scenarios = json.loads(repo_path(ENGINE_SCENARIOS).read_bytes())["scenarios"]
    recorded = next(one for one in scenarios if one["name"] == SCENARIO)
    settings = recorded["engine_args"]
    config = {
        "block_size": settings["block_size"],
        "num_blocks": settings["num_gpu_blocks_override"],
        "max_num_seqs": settings["max_num_seqs"],
        "max_num_batched_tokens": settings["max_num_batched_tokens"],
        "max_model_len": settings["max_model_len"],
        "enable_prefix_caching": settings["enable_prefix_caching"],
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
    }
    requests = [
        {
            "id": f"r{number}",
            "arrival_step": 0,
            "prompt_token_ids": request["prompt_token_ids"],
            "max_tokens": request["sampling"]["max_tokens"],
            "min_tokens": 0,
            "ignore_eos": request["sampling"]["ignore_eos"],
            "stop_token_ids": [],
            "priority": 0,
        }
        for number, request in enumerate(recorded["requests"])
    ]
    return {"name": SCENARIO, "config": config, "eos_token_id": 2, "requests": requests}


@cache
def tokens_of_an_ample_pool() -> dict[str, list[int]]:
    """What the callers get from the engine's own parts when nobody has to be preempted."""
    workload = scenario()
    config = workload["config"]
    num_blocks = 1 + len(workload["requests"]) * cdiv(config["max_model_len"], config["block_size"])
    return generated({}, _asked(workload | {"config": config | {"num_blocks": num_blocks}}), [])


def _asked(workload: dict[str, Any]) -> dict[str, Any]:
    return {"workload": workload, "max_steps": MAX_STEPS}


def check_tokens(ask: Ask) -> Outcome:
    """Who was preempted gets the same tokens as if there had been room for all."""
    outcome = Outcome()
    answer = ask.student("checksum_worker:generated", _asked(scenario()))
    if evidence.ends_the_check(answer, outcome):
        return outcome
    config = scenario()["config"]
    lengths = ", ".join(str(len(request["prompt_token_ids"])) for request in scenario()["requests"])
    told = (
        f"the engine's scenario `{SCENARIO}` with a checksum of what attention reads in place of the model: prompts of "
        f"{lengths} tokens, {config['num_blocks'] - 1} usable blocks of {config['block_size']}"
    )
    failure = evidence.unit_failure(
        answer,
        tokens_of_an_ample_pool(),
        case="the text",
        told=told,
        size=500,
        tell=_tell_tokens,
        says="the engine with an ample pool",
    )
    outcome.add(answer.mark, failure)
    return outcome


def _tell_tokens(expected: dict[str, list[int]], got: Any) -> tuple[str, str, str]:
    """The first token of a request that differs. got: the outputs, or those after every step of a run without end."""
    found = got if isinstance(got, dict) else got[-1] if got else {}
    for req_id, tokens in expected.items():
        theirs = found.get(req_id, [])
        for place, token in enumerate(tokens):
            if theirs[place : place + 1] != [token]:
                other = f"token {theirs[place]}" if place < len(theirs) else f"the end after {count(place, 'token')}"
                return f"{req_id}, output token {place}", f"token {token}", other
        if len(theirs) > len(tokens):
            return req_id, count(len(tokens), "output token"), str(len(theirs))
    return "", f"tokens of {len(expected)} requests", f"{len(found)}"


CHECKS = {
    "6.1": (Check("ladder", "smallest workloads of vLLM", 10, LADDER),),
    "6.2": (
        Check("ladder", "smallest workloads of vLLM", 10, LADDER),
        Check("families", "recorded decisions", 5, evidence.recorded_check("preempt")),
    ),
    "6.3": (
        Check("ladder", "smallest workloads of vLLM", 12, LADDER),
        Check("families", "recorded decisions", 8, evidence.recorded_check("preempt", "priority")),
    ),
    "6.4": (
        Check("families", "recorded decisions", 8, evidence.recorded_check("preempt", "priority", "nocache", "hard")),
        Check("invariants", "rules on every step", 5, evidence.invariant_check("preempt", "hard")),
        Check("tokens", "the text of an ample pool", 2, check_tokens),
    ),
}

# README, "Further": vLLM 0.22.0 itself breaks K2 on these four
STRETCH = (Check("known-bug", "where vLLM 0.22.0 itself reads what nobody wrote", 0, evidence.known_bug_check),)
