"""Questions of lab 05: who hits how much, which blocks, and what half the block size changes."""

import copy
from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question, event, run_of
from minivllm.course.grader.variants import draw, make_workload
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]

SIZE = 4  # tokens of a block


def variant(seed: int) -> Workload:
    """A workload in which two requests hit, of which one hits three blocks or more."""
    return draw("05", seed, _make, lambda workload, run: bool(_hitting(run)) and _halved_is_fair(workload))


def _make(random: Random) -> Workload:
    workload = make_workload(
        random,
        block_size=(SIZE,),
        spare_blocks=(1, 2, 3, 4),
        max_num_seqs=(2,),
        budget=(24, 32),
        num_requests=(6, 7),
        prompt_len=(14, 23),
        output_len=(2, 5),
        shared=0.0,
        arrival=(0, 1, 2),
    )
    stems = [[random.randint(10, 99) for _ in range(23)] for _ in range(2)]
    for request in workload["requests"][1:]:
        prompt = request["prompt_token_ids"]
        kept = random.randint(5, len(prompt))
        prompt[:kept] = random.choice(stems)[:kept]
    return workload


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    hits = _hits(run)
    req_id = Random(seed).choice(_hitting(run))
    step, other = _admitted(run, req_id), run_of(halved(workload))
    names = [request["id"] for request in workload["requests"]]
    return 0, [
        Question(
            "Q1",
            10,
            "How many tokens does each request find in the prefix cache when it is admitted? A list with one number "
            f"for each of {', '.join(names)}.",
            [len(hits[name]) * SIZE for name in names],
            event(run, step, "schedule", f"{req_id} is admitted. Only full blocks are hit, and never the last token."),
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"Which blocks does {req_id} hit? In the order of its block table.",
            hits[req_id],
            event(run, step, "schedule", f"{req_id} is admitted. It looks block after block up, to the first miss."),
        ),
        Question(
            "Q3",
            15,
            f"With blocks of {SIZE // 2} tokens in place of {SIZE}, and twice as many: how many tokens does each of "
            f"{', '.join(names)} find?",
            [len(blocks) * (SIZE // 2) for blocks in _hits(other, SIZE // 2).values()],
            event(other, _admitted(other, req_id), "schedule", f"With those blocks {req_id} is admitted here."),
            sized=True,
        ),
    ]


def halved(workload: Workload) -> Workload:
    """The same requests with blocks of half the size, and twice as many usable ones."""
    other = copy.deepcopy(workload)
    other["config"]["block_size"] //= 2
    other["config"]["num_blocks"] = 2 * (other["config"]["num_blocks"] - 1) + 1
    return other


def _hits(run: Run, size: int = SIZE) -> dict[str, list[int]]:
    """Request -> the blocks that it hit when it was admitted first, in the order of arrival."""
    found = {}
    for entry in run:
        for new in entry["step"]["new"]:
            found[new["id"]] = new["block_ids"][: new["num_computed_tokens"] // size]
    return dict(sorted(found.items()))


def _admitted(run: Run, req_id: str) -> int:
    return next(index for index, entry in enumerate(run) if any(new["id"] == req_id for new in entry["step"]["new"]))


def _hitting(run: Run) -> list[str]:
    """Requests that hit three blocks or more, if two requests hit at all and nobody was preempted."""
    hits = _hits(run)
    if any(entry["step"]["preempted"] for entry in run) or sum(bool(blocks) for blocks in hits.values()) < 2:
        return []
    return [req_id for req_id, blocks in hits.items() if len(blocks) >= 3]


def _halved_is_fair(workload: Workload) -> bool:
    return not any(entry["step"]["preempted"] for entry in run_of(halved(workload)))
