"""Where vLLM goes wrong (trap 62): a preempted request's uncomputed blocks can be hit. Ours forgets them.

docs/differences.md tells what happens, with both outputs.
"""

import itertools
from typing import Any

import pytest
from proof.lockstep.recordings import KNOWN_BUG, files, recording
from proof.lockstep.tools import Core

from minivllm.proof.lockstep import build_core, iterate_steps, replay_scheduler
from minivllm.proof.lockstep.command import find_difference
from minivllm.proof.lockstep.scheduler import PoisonedScheduler

WORKLOADS = {workload["name"]: workload for workload in recording(KNOWN_BUG).workloads}


class Caches:
    """Which tokens' K and V lie in which slot: what a model would have written there."""

    def __init__(self, workload: dict[str, Any], block_size: int) -> None:
        self.prompts = {request["id"]: request["prompt_token_ids"] for request in workload["requests"]}
        self.outputs = {request["id"]: request["output"] for request in workload["requests"]}
        self.block_size = block_size
        self.slots: dict[int, tuple[int, ...]] = {}  # slot -> the tokens from the start up to the one it holds
        self.blocks: dict[str, list[int]] = {}

    def run(self, step: dict[str, Any]) -> list[str]:
        """Write what a step computes; returns where it reads something else than the request's own tokens."""
        for new in step["new"]:
            self.blocks[new["id"]] = list(new["block_ids"])
        computed = {new["id"]: new["num_computed_tokens"] for new in step["new"]}
        for cached in step["cached"]:
            known = [] if cached["resumed"] else self.blocks[cached["id"]]
            self.blocks[cached["id"]] = known + cached["new_block_ids"]
            computed[cached["id"]] = cached["num_computed_tokens"]
        wrong = []
        for req_id, n in step["num_scheduled_tokens"]:
            tokens = self.prompts[req_id] + self.outputs[req_id]
            for position in range(computed[req_id], computed[req_id] + n):
                self.slots[self.slot(req_id, position)] = tuple(tokens[: position + 1])
        for req_id, _ in step["num_scheduled_tokens"]:
            tokens = self.prompts[req_id] + self.outputs[req_id]
            for position in range(computed[req_id]):
                if self.slots.get(self.slot(req_id, position)) != tuple(tokens[: position + 1]):
                    wrong.append(f"step {step['step']}: {req_id} reads position {position}")
        return wrong

    def slot(self, req_id: str, position: int) -> int:
        return self.blocks[req_id][position // self.block_size] * self.block_size + position % self.block_size


def wrong_reads(workload: dict[str, Any], steps: list[dict[str, Any]]) -> list[str]:
    caches = Caches(workload, workload["config"]["block_size"])
    return list(itertools.chain.from_iterable(caches.run(step) for step in steps))


@pytest.mark.parametrize("name", WORKLOADS)
def test_vllm_reads_what_was_never_written(name: str) -> None:
    """In its recording; and our rule taken away, so do we, in the same places."""
    recorded = wrong_reads(WORKLOADS[name], WORKLOADS[name]["steps"])
    assert recorded and wrong_reads(WORKLOADS[name], replay_scheduler(WORKLOADS[name], PoisonedScheduler)) == recorded


@pytest.mark.parametrize("name", WORKLOADS)
def test_ours_reads_what_was_written(name: str) -> None:
    assert wrong_reads(WORKLOADS[name], replay_scheduler(WORKLOADS[name])) == []


@pytest.mark.parametrize("name", WORKLOADS)
def test_without_that_one_rule_ours_is_equal_in_every_field(name: str) -> None:
    assert replay_scheduler(WORKLOADS[name], PoisonedScheduler) == WORKLOADS[name]["steps"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_ours_is_equal_up_to_the_poisoned_hit(name: str) -> None:
    workload = WORKLOADS[name]
    difference = find_difference("scheduler", workload)
    assert wrong_reads(workload, workload["steps"][: difference.index]) == []
    first_wrong = next(
        index for index in range(len(workload["steps"])) if wrong_reads(workload, workload["steps"][: index + 1])
    )
    assert difference.index == first_wrong


@pytest.mark.parametrize("name", WORKLOADS)
def test_only_computed_blocks_can_be_hit_between_steps(name: str) -> None:
    workload = WORKLOADS[name]
    core = build_core(workload)
    scheduler = core.scheduler
    manager = scheduler.kv_cache_manager
    for _ in iterate_steps(workload, core):
        for request in scheduler.running:
            blocks = manager.req_to_blocks[request.request_id]
            for index, block in enumerate(blocks):
                if block.block_hash is not None:
                    assert (index + 1) * manager.block_size <= request.num_computed_tokens


def test_a_block_that_the_lost_step_would_have_completed_is_forgotten_too() -> None:
    core = Core(
        num_blocks=9,
        max_model_len=32,
        policy="priority",
        long_prefill_token_threshold=6,
        max_num_batched_tokens=12,
        max_num_seqs=4,
    )
    victim = core.add("victim", 21, priority=5)
    core.step()
    core.add("b", 8)
    core.step()
    core.step()
    assert victim.num_computed_tokens == 18, "half of its fifth block"
    fifth_block = core.blocks("victim")[4]
    plan = core.step()  # plans its last 3 tokens, which complete that block, and then preempts it
    assert plan.preempted_req_ids == {"victim"}
    assert fifth_block in core.free(), "nobody has overwritten it"
    assert core.pool.blocks[fifth_block].block_hash is None
    assert core.pool.get_cached_block(victim.block_hashes[3]) is not None, "the fourth block is computed"


@pytest.mark.parametrize("file", files("scheduler"))
def test_no_other_recording_reads_what_was_never_written(file: str) -> None:
    for workload in recording(file).workloads:
        assert wrong_reads(workload, workload["steps"]) == [], workload["name"]
