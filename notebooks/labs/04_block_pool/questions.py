"""Questions of lab 04: free queue, next block, shared blocks, in a workload of the student's own."""

from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question, event
from minivllm.course.grader.variants import draw, make_workload
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]


def variant(seed: int) -> Workload:
    """A workload in which requests share blocks while others come and go."""
    return draw("04", seed, _make, lambda workload, run: bool(_moments(run)))


def _make(random: Random) -> Workload:
    workload = make_workload(random, max_num_seqs=(3, 4), budget=(24, 32), prompt_len=(11, 18), shared=1.0)
    first = workload["requests"][0]
    # it shares nothing, so that the shared blocks are not always the first ones
    first["prompt_token_ids"] = [random.randint(100, 199) for _ in range(random.randint(3, 15))]
    return workload


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    moment, (later, req_id, block_id) = Random(seed).choice(_moments(run))
    first_five = run[moment]["updated"]["free"][:5]
    shared = _shared(run[moment]["planned"])
    return moment, [
        Question(
            "Q1",
            10,
            f"Which are the first five blocks of the free queue after step {moment} (after `update_from_output`)? "
            "In order, the next to be handed out first.",
            first_five,
            event(run, moment, "update_from_output", "Who ends gives its blocks back: the last of its table first."),
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"After step {moment}, {req_id} gets its next new block in step {later}. Which one?",
            block_id,
            event(run, later, "schedule", "A new block is taken from the front of the free queue."),
        ),
        Question(
            "Q3",
            15,
            f"Which blocks have a ref_cnt of 2 or more when step {moment} has been planned? Rising order.",
            shared,
            event(run, moment, "schedule", "ref_cnt is the number of tables that hold the block; a hit is one more."),
        ),
    ]


def _shared(state: dict[str, Any]) -> list[int]:
    return [block_id for block_id, ref_cnt in enumerate(state["ref_cnts"]) if ref_cnt >= 2]


def _moments(run: Run) -> list[tuple[int, tuple[int, str, int]]]:
    """Every (step, (later step, request, the block that it gets there)) with five free blocks and three shared ones."""
    found = []
    for moment in range(2, len(run) - 2):
        if len(run[moment]["updated"]["free"]) < 5 or len(_shared(run[moment]["planned"])) < 3:
            continue
        for later in range(moment + 1, min(moment + 6, len(run))):
            gets = [
                one for one in run[later]["step"]["cached"] if len(one["new_block_ids"]) == 1 and not one["resumed"]
            ]
            if gets:
                found.append((moment, (later, gets[0]["id"], gets[0]["new_block_ids"][0])))
                break
    return found
