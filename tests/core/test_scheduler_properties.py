"""The scheduler under workloads that hypothesis makes: everything that must hold, after every plan and update."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from core.watched_scheduler import WatchedScheduler
from core.workloads import Workload, workloads
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.proof.lockstep import build_core, iterate_steps
from minivllm.proof.lockstep.scheduler import PoisonedScheduler
from minivllm.proof.lockstep.workloads import FAMILIES, make_workload

RECORDINGS = Path(__file__).parents[2] / "traces/vllm-0.22.0"


def run(workload: Workload, scheduler_class: type = WatchedScheduler) -> list[dict[str, Any]]:
    """Every step of the workload, all of them checked."""
    core = build_core(workload, {"scheduler": scheduler_class})
    steps = list(iterate_steps(workload, core))
    core.scheduler.check_idle()
    return steps


@settings(max_examples=400)
@given(workloads())
def test_every_step_and_every_end_is_as_it_must_be(workload: Workload) -> None:
    steps = run(workload)
    check_outcomes(workload, steps)
    check_work(workload, steps)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(FAMILIES)))
def test_the_recorded_families_too(random: Any, family: str) -> None:
    workload = make_workload(random, family)
    check_outcomes(workload, run(workload))


def test_the_watch_sees_a_poisoned_prefix_cache() -> None:
    """K2 is not asleep: it finds the fault that vLLM has and ours hasn't."""

    class Poisoned(PoisonedScheduler, WatchedScheduler):
        pass

    known_bug = json.loads(gzip.decompress((RECORDINGS / "vllm-0.22.0-known-bug.json.gz").read_bytes()))
    assert known_bug["workloads"]
    for workload in known_bug["workloads"]:
        run(workload)
        with pytest.raises(AssertionError, match="K2"):
            run(workload, Poisoned)


# ---------------------------------------------------------------------- what a request gets


def check_outcomes(workload: Workload, steps: list[dict[str, Any]]) -> None:
    """A request gets the tokens that its own rules give, whatever company, chunks, hits and preemptions it had."""
    said: dict[str, list[int]] = {recorded["id"]: [] for recorded in workload["requests"]}
    ends: dict[str, list[Any]] = {recorded["id"]: [] for recorded in workload["requests"]}
    for step in steps:
        for output in step["outputs"]:
            said[output["id"]] += output["new_token_ids"]
            if output["finish_reason"] is not None:
                ends[output["id"]].append((output["finish_reason"], output["stop_reason"]))
    aborted = _aborted(steps)
    for recorded in workload["requests"]:
        tokens, reason, stop_reason = _expected(recorded, workload)
        req_id = recorded["id"]
        if req_id in aborted:
            assert said[req_id] == tokens[: len(said[req_id])] and not ends[req_id]
        else:
            assert said[req_id] == tokens and ends[req_id] == [(reason, stop_reason)]


def check_work(workload: Workload, steps: list[dict[str, Any]]) -> None:
    """Without preemption every token but the last, which nobody reads, is computed once or was in the cache."""
    if any(step["preempted"] for step in steps):
        return
    computed: Counter[str] = Counter({new["id"]: new["num_computed_tokens"] for step in steps for new in step["new"]})
    for step in steps:
        computed.update(dict(step["num_scheduled_tokens"]))
    aborted = _aborted(steps)
    for recorded in workload["requests"]:
        if recorded["id"] not in aborted:
            num_tokens = len(recorded["prompt_token_ids"]) + len(_expected(recorded, workload)[0])
            assert computed[recorded["id"]] == num_tokens - 1


def _aborted(steps: list[dict[str, Any]]) -> set[str]:
    return {req_id for step in steps for req_id in step["aborted"] + step.get("aborted_in_flight", [])}


def _expected(recorded: dict[str, Any], workload: Workload) -> tuple[list[int], str, int | None]:
    """(tokens, finish reason, stop reason) of a request, from its own parameters alone."""
    room = workload["config"]["max_model_len"] - len(recorded["prompt_token_ids"])
    for count, token in enumerate(recorded["output"], start=1):
        tokens = recorded["output"][:count]
        if count < recorded["min_tokens"]:
            continue
        if token == workload["eos_token_id"] and not recorded["ignore_eos"]:
            return tokens, "stop", None
        if token in recorded["stop_token_ids"]:
            return tokens, "stop", token
        if count == min(room, recorded["max_tokens"]):
            return tokens, "length", None
    raise AssertionError("the output is too short")
