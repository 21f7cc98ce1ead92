"""Why a request got nothing: one small case for each reason, with the numbers that a reader would look up."""

from typing import Any, NamedTuple

from minivllm.core.sched_output import Preemption, SchedulerOutput, Skipped
from minivllm.core.scheduler import Scheduler
from minivllm.proof.lockstep import build_core, iterate_steps


class Step(NamedTuple):
    plan: SchedulerOutput
    skipped: list[Skipped]  # asked for before anything else happened


class Remembering(Scheduler):
    """Keeps its plans, and why they left somebody out."""

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.steps: list[Step] = []

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        self.steps.append(Step(plan, self.find_skipped(plan)))
        return plan


def steps_of(
    prompts: list[list[int]],
    priorities: list[int] | None = None,
    arrivals: list[int] | None = None,
    **settings: Any,
) -> list[Step]:
    """The steps of requests r0, r1, … which want 40 tokens each, as far as the context goes."""
    config = {
        "block_size": 4,
        "num_blocks": 100,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 16,
        "max_model_len": 48,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
    }
    requests = [
        {
            "id": f"r{index}",
            "arrival_step": arrivals[index] if arrivals else 0,
            "prompt_token_ids": prompt,
            "max_tokens": 40,
            "min_tokens": 0,
            "ignore_eos": True,
            "stop_token_ids": [],
            "priority": priorities[index] if priorities else 0,
            "abort_step": None,
            "output": [100 + index] * 50,
        }
        for index, prompt in enumerate(prompts)
    ]
    workload = {"name": "skipped", "config": config | settings, "eos_token_id": 2, "requests": requests}
    core = build_core(workload, {"scheduler": Remembering})
    for _ in iterate_steps(workload, core):
        pass
    return core.scheduler.steps


def test_token_budget() -> None:
    first, second, *_ = steps_of([[1] * 20, [2] * 5, [3] * 5])
    assert first.plan.num_scheduled_tokens == {"r0": 16}
    assert first.skipped == [
        Skipped("r1", "token_budget", token_budget=0, num_running=1),
        Skipped("r2", "token_budget", token_budget=0, num_running=1),
    ]
    assert second.plan.num_scheduled_tokens == {"r0": 4, "r1": 5, "r2": 5}
    assert second.skipped == [] and second.plan.token_budget_left == 2


def test_seats() -> None:
    first, *_ = steps_of([[1] * 4, [2] * 4], max_num_seqs=1)
    assert first.skipped == [Skipped("r1", "seats", token_budget=12, num_running=1)]


def test_blocks_and_head_of_line() -> None:
    """Twelve blocks: r0 takes eight at once, r1 shares four of them and would need five of the four that are left."""
    first, *_ = steps_of([[1] * 32, [1] * 16 + [2] * 17, [3]], num_blocks=13, max_num_batched_tokens=64)
    assert first.plan.num_scheduled_tokens == {"r0": 32}
    assert first.skipped == [
        Skipped("r1", "blocks", token_budget=32, num_running=1, blocks_needed=5, blocks_free=4, num_hit_tokens=16),
        Skipped("r2", "head_of_line", token_budget=32, num_running=1, blocked_by="r1"),
    ]


def test_not_fit_in_budget() -> None:
    first, *_ = steps_of([[1] * 40, [2] * 30, [3]], max_num_batched_tokens=48, enable_chunked_prefill=False)
    assert first.skipped == [
        Skipped("r1", "not_fit_in_budget", token_budget=8, num_running=1, num_hit_tokens=0),
        Skipped("r2", "head_of_line", token_budget=8, num_running=1, blocked_by="r1"),
    ]


def test_preempted_and_preemption() -> None:
    """Twelve blocks: r0 and r1 hold six each when r0 needs a seventh, and r2 waits for a seat."""
    with_preemption = next(
        step
        for step in steps_of([[1] * 21, [2] * 21, [3]], num_blocks=13, max_num_seqs=2, max_num_batched_tokens=64)
        if step.plan.preemptions
    )
    assert with_preemption.plan.preemptions == [
        Preemption(
            "r1",
            for_req_id="r0",
            blocks_needed=1,
            blocks_free=0,
            blocks_returned=6,
            num_computed_tokens=24,
            was_scheduled=False,
        )
    ]
    assert with_preemption.plan.preempted_req_ids == {"r1"}
    assert with_preemption.plan.num_scheduled_tokens == {"r0": 1}
    assert with_preemption.skipped == [
        Skipped("r1", "preempted", token_budget=63, num_running=1, blocked_by="r0"),
        Skipped("r2", "preemption", token_budget=63, num_running=1, blocked_by="r0"),
    ]


def test_a_victim_that_was_scheduled_already() -> None:
    """By priority r0 goes, though it stands first and has its token in this step: the token is taken back, and those
    behind it still get their turn."""
    every_step = steps_of(
        [[1] * 20, [2] * 22, [3]],
        priorities=[5, 1, 1],
        arrivals=[0, 1, 1],
        policy="priority",
        num_blocks=14,
        max_num_batched_tokens=64,
    )
    with_preemption = next(step for step in every_step if step.plan.preemptions)
    (preemption,) = with_preemption.plan.preemptions
    assert (preemption.req_id, preemption.for_req_id, preemption.was_scheduled) == ("r0", "r1", True)
    assert with_preemption.plan.num_scheduled_tokens == {"r1": 1, "r2": 1}
    assert with_preemption.plan.token_budget_left == 62
    assert with_preemption.skipped == [Skipped("r0", "preempted", token_budget=62, num_running=2, blocked_by="r1")]


def test_who_lacks_a_block_may_be_its_own_victim() -> None:
    every_step = steps_of([[1] * 21, [2] * 22], num_blocks=13, max_num_batched_tokens=64)
    with_preemption = next(step for step in every_step if step.plan.preemptions)
    assert [(p.req_id, p.for_req_id) for p in with_preemption.plan.preemptions] == [("r1", "r1")]
    assert with_preemption.plan.num_scheduled_tokens == {"r0": 1}
    assert with_preemption.skipped == [Skipped("r1", "preempted", token_budget=63, num_running=1, blocked_by="r1")]


def test_who_runs_behind_one_that_gave_itself_up_gets_nothing() -> None:
    """By priority r1 goes, since it lacks a block itself; the pass ends there, before r2."""
    every_step = steps_of(
        [[1] * 21, [2] * 22, [3]],
        priorities=[1, 5, 1],
        arrivals=[0, 0, 1],
        policy="priority",
        num_blocks=14,
        max_num_batched_tokens=64,
    )
    with_preemption = next(step for step in every_step if step.plan.preemptions)
    assert [(p.req_id, p.for_req_id) for p in with_preemption.plan.preemptions] == [("r1", "r1")]
    assert with_preemption.plan.num_scheduled_tokens == {"r0": 1}
    assert with_preemption.skipped == [
        Skipped("r2", "preemption", token_budget=63, num_running=2, blocked_by="r1"),
        Skipped("r1", "preempted", token_budget=63, num_running=2, blocked_by="r1"),
    ]
