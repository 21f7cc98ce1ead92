"""Questions of lab 06: the first victim, its return, and one block fewer."""

import copy
from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question, event, run_of
from minivllm.course.grader.variants import draw, make_workload
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]


def variant(seed: int) -> Workload:
    """A workload with a preemption, not in the first steps, and with more of them when a block is missing."""
    return draw("06", seed, _make, _is_interesting)


def _is_interesting(workload: Workload, run: Run) -> bool:
    fewer = run_of(one_block_fewer(workload))
    if any(len(entry["step"]["preempted"]) > 1 for entry in run + fewer):
        return False  # the order within a step is not asked for
    victims = _victims(run)
    return bool(victims) and victims[0][0] >= 3 and len(_victims(fewer)) >= 2


def _make(random: Random) -> Workload:
    return make_workload(
        random,
        spare_blocks=(2, 3, 4),
        max_num_seqs=(3, 4),
        budget=(16, 20, 24),
        policy=("fcfs", "fcfs", "priority"),
        num_requests=(4, 5),
        prompt_len=(5, 15),
        output_len=(6, 14),
        shared=0.4,
        arrival=(0, 1, 1, 2),
    )


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    step, victim = _victims(run)[0]
    fewer, back = one_block_fewer(workload), _return_of(run, victim, step)
    other = run_of(fewer)
    return step - 1, [
        Question(
            "Q1",
            10,
            "In which step is a request preempted for the first time, and which one? A list of the two.",
            [step, victim],
            event(run, step, "schedule", "Somebody who runs needs a block, and none is free."),
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"When does {victim} come back: in which step, with how many tokens found in the prefix cache, and "
            "how many computed in that step? A list of the three.",
            back,
            event(run, back[0], "schedule", f"{victim} is admitted again: what is still in the cache is found."),
            sized=True,
        ),
        Question(
            "Q3",
            15,
            f"With {fewer['config']['num_blocks'] - 1} usable blocks in place of "
            f"{workload['config']['num_blocks'] - 1}: who is preempted, in order, and in which steps? A list like "
            "[r1, 4, r0, 9].",
            [part for index, req_id in _victims(other) for part in (req_id, index)],
            event(other, _victims(other)[0][0], "schedule", "With so many blocks, the first preemption is here."),
        ),
    ]


def one_block_fewer(workload: Workload) -> Workload:
    """The same workload in a smaller pool."""
    fewer = copy.deepcopy(workload)
    fewer["config"]["num_blocks"] -= 1
    return fewer


def _victims(run: Run) -> list[tuple[int, str]]:
    """(step, request) for each preemption."""
    return [(index, req_id) for index, entry in enumerate(run) for req_id in entry["step"]["preempted"]]


def _return_of(run: Run, req_id: str, step: int) -> list[int]:
    for index in range(step, len(run)):
        for cached in run[index]["step"]["cached"]:
            if cached["id"] == req_id and cached["resumed"]:
                return [index, cached["num_computed_tokens"], dict(run[index]["step"]["num_scheduled_tokens"])[req_id]]
    raise RuntimeError(f"{req_id} does not come back")
