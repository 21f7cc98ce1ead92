"""Questions of lab 02: when a request ends and why, when the worker hears of it, and what min_tokens changes."""

import copy
from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question, event, run_of
from minivllm.course.grader.variants import EOS_TOKEN_ID, draw, make_workload
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]
MORE = 3  # added to min_tokens


def variant(seed: int) -> Workload:
    """A workload in which a request ends by a token, and would end later with more min_tokens."""
    return draw("02", seed, _make, lambda workload, run: bool(_candidates(workload, run)))


def _make(random: Random) -> Workload:
    workload = make_workload(
        random,
        spare_blocks=(12, 16, 20),
        max_num_seqs=(2, 3),
        budget=(8, 10, 12, 16),
        num_requests=(4, 6),
        prompt_len=(3, 16),
        output_len=(3, 12),
        shared=0.2,
    )
    for request in workload["requests"]:
        output = request["output"]
        request["stop_token_ids"] = sorted(random.sample(range(100, 104), random.randint(0, 2)))
        for _ in range(random.randint(1, 4)):
            output[random.randrange(len(output))] = random.choice((EOS_TOKEN_ID, 100, 101, 102, 103))
        request["min_tokens"] = random.choice((0, 0, 1, 2, 3))
        request["ignore_eos"] = random.random() < 0.3
        request["min_tokens"] = min(request["min_tokens"], request["max_tokens"])
    return workload


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    req_id = Random(seed).choice(_candidates(workload, run))
    step, reason, stop_reason = _end(run, req_id)
    changed = with_more_min_tokens(workload, req_id)
    lengths = [_num_outputs(run, req_id), _num_outputs(run_of(changed), req_id)]
    told = next(index for index, entry in enumerate(run) if req_id in entry["step"]["finished"])
    return 1, [
        Question(
            "Q1",
            10,
            f"In which step does {req_id} end, with which finish reason (stop or length) and which stop_reason (a "
            "token, or None)? A list of the three.",
            [step, reason, stop_reason],
            event(run, step, "update_from_output", f"`check_stop` looks at the token that {req_id} has got."),
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"With the plan of which step is the worker told that {req_id} has ended?",
            told,
            event(run, step, "update_from_output", "The ids that end here are told with the next plan."),
        ),
        Question(
            "Q3",
            15,
            f"How many output tokens does {req_id} have at its end: as it is, and with min_tokens "
            f"{_request(changed, req_id)['min_tokens']}? A list of the two.",
            lengths,
            event(run, step, "update_from_output", "Below min_tokens `check_stop` looks at no token, only at lengths."),
            sized=True,
        ),
    ]


def with_more_min_tokens(workload: Workload, req_id: str) -> Workload:
    """The same workload; one request may end later."""
    changed = copy.deepcopy(workload)
    _request(changed, req_id)["min_tokens"] += MORE
    return changed


def _request(workload: Workload, req_id: str) -> dict[str, Any]:
    return next(request for request in workload["requests"] if request["id"] == req_id)


def _end(run: Run, req_id: str) -> tuple[int, str, int | None]:
    return next(
        (index, out["finish_reason"], out["stop_reason"])
        for index, entry in enumerate(run)
        for out in entry["step"]["outputs"]
        if out["id"] == req_id and out["finish_reason"] is not None
    )


def _num_outputs(run: Run, req_id: str) -> int:
    return sum(len(out["new_token_ids"]) for entry in run for out in entry["step"]["outputs"] if out["id"] == req_id)


def _candidates(workload: Workload, run: Run) -> list[str]:
    """Requests that end by a token, and that more min_tokens would let go on."""
    found = []
    for request in workload["requests"]:
        if request["min_tokens"] + MORE > request["max_tokens"]:
            continue
        before = _num_outputs(run, request["id"])
        if _end(run, request["id"])[1] == "stop" and before < request["min_tokens"] + MORE:
            found.append(request["id"])
    return found
