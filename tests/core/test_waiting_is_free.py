"""Who waits costs a step nothing: counted in bytecodes, which are the same on every machine, and not in seconds."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from minivllm.core.request import RequestStatus
from minivllm.core.request_queue import RequestQueue
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.proof.lockstep import build_core
from minivllm.proof.lockstep.scheduler import SchedulerAdapter

CONFIG = {
    "block_size": 4,
    "num_blocks": 100,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "max_model_len": 48,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
}


def bytecodes(call: Callable[[], Any]) -> tuple[int, Any]:
    """How many bytecodes a call executes, and what it returns. What C does by itself does not count."""
    count = 0

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return local

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return count, result


def crowd(prompts: list[int], num_waiting: int, **settings: Any) -> Scheduler:
    """A scheduler with requests of these prompt lengths, and behind them `num_waiting` short ones."""
    config = CONFIG | settings
    workload = {"config": config, "eos_token_id": 2, "requests": []}
    core = build_core(workload)
    adapter, scheduler = SchedulerAdapter(workload, core), core.scheduler
    recorded = {"max_tokens": 40, "min_tokens": 0, "ignore_eos": True, "stop_token_ids": [], "priority": 0}
    for place, length in enumerate([*prompts, *[5] * num_waiting]):
        one = recorded | {"id": f"r{place}", "prompt_token_ids": [10 + place] * length}
        scheduler.add_request(adapter.make_request(one, float(place)))
    return scheduler


def computed(plan: SchedulerOutput) -> ModelRunnerOutput:
    ids = list(plan.num_scheduled_tokens)
    return ModelRunnerOutput(ids, {req_id: row for row, req_id in enumerate(ids)}, [[7]] * len(ids))


def nobody_walks(queue: RequestQueue) -> Iterator[Any]:
    raise AssertionError("somebody walks through the waiting queue")


# reason of the last one -> prompts before the crowd, settings, steps until the reason holds
CASES: dict[str, tuple[list[int], dict[str, Any], int]] = {
    "seats": ([8, 8], {"max_num_seqs": 2}, 3),
    "head_of_line": ([12, 12, 40], {"num_blocks": 13}, 3),
    "token_budget": ([40, 40], {"max_num_batched_tokens": 16}, 2),
    "preemption": ([21, 21], {"num_blocks": 13, "max_num_seqs": 2}, 5),
}


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("reason", CASES)
def test_a_step_costs_the_same_whoever_waits(reason: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, settings, num_steps = CASES[reason]
    costs = []
    for num_waiting in (3, 700):
        scheduler = crowd(prompts, num_waiting, policy=policy, **settings)
        for _ in range(num_steps - 1):
            plan = scheduler.schedule()
            scheduler.update_from_output(plan, computed(plan))
        with monkeypatch.context() as patch:
            patch.setattr(type(scheduler.waiting), "__iter__", nobody_walks)
            schedule, plan = bytecodes(scheduler.schedule)
        skipped = scheduler.find_skipped(plan)
        assert len(skipped) >= num_waiting and skipped[-1].reason == reason
        with monkeypatch.context() as patch:
            patch.setattr(type(scheduler.waiting), "__iter__", nobody_walks)
            update, _ = bytecodes(partial(scheduler.update_from_output, plan, computed(plan)))
            has, _ = bytecodes(scheduler.has_requests)
        costs.append((schedule, update, has))
    few, many = costs
    if (reason, policy) == ("preemption", "priority"):  # who is put back sinks into a heap
        assert few[0] <= many[0] < 1.2 * few[0] and few[1:] == many[1:]
    else:
        assert few == many


def test_admission_from_a_heap_costs_its_depth_alone() -> None:
    few, many = (bytecodes(crowd([], number, policy="priority").schedule)[0] for number in (50, 3200))
    assert few <= many < 2 * few


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_to_abort_them_all_is_one_walk(policy: str) -> None:
    costs = []
    for num_waiting in (200, 1600):
        scheduler = crowd([8], num_waiting, policy=policy, max_num_seqs=1)
        scheduler.schedule()
        ids = [f"r{place}" for place in range(num_waiting)]
        cost, ended = bytecodes(partial(scheduler.finish_requests, ids, RequestStatus.FINISHED_ABORTED))
        assert ended == ids
        assert [request.request_id for request in scheduler.waiting] == [f"r{num_waiting}"] and not scheduler.running
        costs.append(cost)
    assert costs[1] < 10 * costs[0]
