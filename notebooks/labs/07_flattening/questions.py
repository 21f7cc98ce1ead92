"""Questions of lab 07: a slot, the starts of a flat batch, and the rows after two requests have ended."""

from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question
from minivllm.course.grader.variants import draw, make_workload
from minivllm.course.grader.words import tell_list
from minivllm.lessons.lab07 import observe as observe_batch
from minivllm.proof.lockstep.recording import Workload

Run = list[dict[str, Any]]


def variant(seed: int) -> Workload:
    """A workload in which two requests end in the same step, and rows are left beside them."""
    return draw("07", seed, _make, lambda workload, run: bool(_moments(run)))


def _make(random: Random) -> Workload:
    return make_workload(
        random,
        spare_blocks=(8, 10, 12),
        max_num_seqs=(5, 6),
        budget=(16, 20, 24),
        num_requests=(6, 8),
        prompt_len=(4, 16),
        output_len=(2, 6),
        shared=0.3,
        arrival=(0, 0, 0, 1),
    )


def questions(run: Run, workload: Workload, seed: int) -> tuple[int, list[Question]]:
    """How many steps are shown, and the questions with their keys."""
    random = Random(seed)
    rows = observe_batch.rows({}, {"workload": workload}, [])
    moment = random.choice(_moments(run))
    before, after = rows[moment - 1], rows[moment]
    row = random.randrange(len(after["rows"]))
    req_id, blocks = after["rows"][row], after["blocks"][row]
    position = random.randrange(after["computed"][row] + len(after["tokens"][row]))
    size = workload["config"]["block_size"]
    mixed = max(range(1, moment), key=lambda step: len({len(tokens) for tokens in rows[step]["tokens"]}))
    key, ended = _starts_and_lengths(rows[mixed]), _tell_ids(run[moment]["step"]["finished"])
    return moment, [
        Question(
            "Q1",
            10,
            f"In step {moment} the block table of {req_id} is {tell_list(blocks)}. In which slot do K and V of its "
            f"position {position} lie?",
            blocks[position // size] * size + position % size,
            f"B15 prepare_inputs of step {moment}: position {position} lies in place {position // size} of the table, "
            f"at offset {position % size}; a slot is block times {size} plus offset.",
        ),
        Question(
            "Q2",
            15,
            f"The rows of step {mixed} are, from row 0 on, {tell_list(rows[mixed]['rows'])}. What is its "
            f"query_start_loc, and then its seq_lens? One list, of {len(key)} numbers: R + 1, and R.",
            key,
            f"B15 prepare_inputs of step {mixed}: computed before it {tell_list(rows[mixed]['computed'])}, tokens now "
            f"{tell_list([len(tokens) for tokens in rows[mixed]['tokens']])}.",
            sized=True,
        ),
        Question(
            "Q3",
            15,
            f"The rows of step {moment - 1} were {tell_list(before['rows'])}, from row 0 on. Step {moment} begins with "
            f"the end of {ended}, and schedules {_tell_plan(run[moment])}, in this order. Which request stands in "
            'which row then, from row 0 on? One list, like ["r1", "r0"].',
            after["rows"],
            f"B15 update_states of step {moment}: {ended} leave holes; who is new takes the lowest hole, "
            "then `condense` moves the last row into each hole that is left.",
        ),
    ]


def _starts_and_lengths(step: dict[str, Any]) -> list[int]:
    starts, lengths = [0], []
    for computed, tokens in zip(step["computed"], step["tokens"], strict=True):
        starts.append(starts[-1] + len(tokens))
        lengths.append(computed + len(tokens))
    return starts + lengths


def _tell_plan(entry: dict[str, Any]) -> str:
    return ", ".join(f"{req_id} {n}" for req_id, n in entry["step"]["num_scheduled_tokens"])


def _tell_ids(req_ids: list[str]) -> str:
    return " and ".join([", ".join(req_ids[:-1]), req_ids[-1]])


def _moments(run: Run) -> list[int]:
    """Steps that begin with two ended requests or more, when three rows or more are in them."""
    found = []
    for step in range(2, len(run) - 1):
        ended, tokens = run[step]["step"]["finished"], run[step]["step"]["num_scheduled_tokens"]
        if not all(entry["step"]["num_scheduled_tokens"] for entry in run[: step + 1]):
            break  # from here on a step's number is not its place among the flat batches
        if len(ended) >= 2 and len(tokens) >= 3 and not run[step]["step"]["preempted"]:
            found.append(step)
    return found
