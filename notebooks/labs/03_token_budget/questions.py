"""Questions of lab 03: tokens of a mixed step, time to the first token, and twice the budget."""

import copy
from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question, event, run_of
from minivllm.course.grader.variants import draw, make_workload
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]


def variant(seed: int) -> Workload:
    """A workload in which a step holds chunks and single tokens."""
    return draw("03", seed, _make, lambda workload, run: bool(_mixed_steps(run)))


def _make(random: Random) -> Workload:
    return make_workload(
        random,
        spare_blocks=(12, 16, 20),
        max_num_seqs=(3, 4),
        budget=tuple(range(9, 17)),
        threshold=(0, 0, 6, 8, 10),
        num_requests=(5, 7),
        prompt_len=(4, 24),
        output_len=(3, 12),
        shared=0.3,
        arrival=(0, 0, 1, 1, 2),
    )


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    moment = Random(seed).choice(_mixed_steps(run))
    last = workload["requests"][-1]["id"]
    doubled = copy.deepcopy(workload)
    doubled["config"]["max_num_batched_tokens"] *= 2
    other = run_of(doubled)
    names = [request["id"] for request in workload["requests"]]
    slowest = max(names, key=lambda name: _end(run, name))
    got = dict(run[moment]["step"]["num_scheduled_tokens"])
    return min(moment, 2), [
        Question(
            "Q1",
            10,
            f"How many tokens does each request get in step {moment}? A list with one number for each of "
            f"{', '.join(names)}, 0 for who gets none.",
            [got.get(name, 0) for name in names],
            event(run, moment, "schedule", "First those that run, in order, then those that wait, while budget lasts."),
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"In which step does {last} get its first output token?",
            _first_token(run, last),
            event(run, _admitted(run, last), "schedule", f"{last} is admitted. A token comes when all is computed."),
        ),
        Question(
            "Q3",
            15,
            f"With a budget of {doubled['config']['max_num_batched_tokens']} in place of "
            f"{workload['config']['max_num_batched_tokens']}: in which step does {slowest} end?",
            _end(other, slowest),
            event(other, _admitted(other, slowest), "schedule", f"With that budget {slowest} is admitted here."),
        ),
    ]


def _mixed_steps(run: Run) -> list[int]:
    """Steps in which one request gets a single token, another one more than one, and a third something."""
    found = []
    for index, entry in enumerate(run):
        counts = [n for _, n in entry["step"]["num_scheduled_tokens"]]
        if len(counts) >= 3 and 1 in counts and max(counts) > 1 and index >= 2:
            found.append(index)
    return found


def _admitted(run: Run, req_id: str) -> int:
    return next(index for index, entry in enumerate(run) if any(new["id"] == req_id for new in entry["step"]["new"]))


def _first_token(run: Run, req_id: str) -> int:
    return next(i for i, entry in enumerate(run) if any(out["id"] == req_id for out in entry["step"]["outputs"]))


def _end(run: Run, req_id: str) -> int:
    return next(
        index
        for index, entry in enumerate(run)
        for out in entry["step"]["outputs"]
        if out["id"] == req_id and out["finish_reason"] is not None
    )
