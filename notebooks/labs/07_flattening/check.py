"""Lab 07: what is asked about flat batches and rows, and what is expected."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.course.grader.ladder import parse_rung
from minivllm.course.grader.words import tell_workload
from minivllm.course.places import repo_path
from minivllm.lessons.lab07 import observe as observe_batch
from minivllm.lessons.lab07 import tell as tell_batch
from minivllm.proof.lockstep.recording import Workload, load, without_results

ENGINE = Path("traces/vllm-0.22.0/vllm-0.22.0-engine.json")
ROWS = Path("traces/labs/rows.json.gz")  # two scenarios with two holes at once
HANDMADE = (  # computed, scheduled, a row each
    [(0, 3)],
    [(3, 1)],
    [(3, 2)],
    [(0, 2), (0, 3)],
    [(4, 1), (2, 1)],
    [(5, 1), (0, 4)],
    [(0, 4), (7, 1), (3, 5)],
    [(8, 1), (3, 4), (0, 2), (15, 1)],
)
BLOCK_SIZES = (4, 2, 1, 3)
NUM_RANDOM = 24
FEW_ROWS = (  # in the notation of the ladder
    "B4 N9 S4 T8 M8: a>1, a>1, a>3, a>3",
    "B4 N9 S3 T8 M8: a>1, a>3, a>1, a>2",
    "B4 N9 S4 T8 M8: a>2, a>1, a>3, a>1, a>2, a>2",
    "B4 N9 S4 T8 M8: a>1, a>3, a>1, a>3",
)
NO_ROWS = {"req_order": [], "block_table": [], "seq_lens": [], "num_scheduled_tokens": [], "query_start_loc": []}
BEHIND = 100  # recorded steps are shown after all that is made by hand


# ---------------------------------------------------------------------- batches


@cache
def handmade() -> tuple[dict[str, Any], ...]:
    """Small batches, the smallest first: `rows` and `block_size`."""
    random = Random("lab 07")
    shapes = [list(shape) for shape in HANDMADE]
    for _ in range(NUM_RANDOM):
        shapes.append([(random.randint(0, 9), random.randint(1, 5)) for _ in range(random.randint(1, 4))])
    return tuple(_batch(shape, BLOCK_SIZES[index % len(BLOCK_SIZES)], random) for index, shape in enumerate(shapes))


def _batch(shape: list[tuple[int, int]], block_size: int, random: Random) -> dict[str, Any]:
    blocks = random.sample(range(1, 60), 60 - 1)
    rows = []
    for computed, scheduled in shape:
        length = computed + scheduled
        needed = -(-length // block_size)
        tokens = [random.randint(100, 999) for _ in range(length)]
        rows.append({"computed": computed, "scheduled": scheduled, "tokens": tokens, "blocks": blocks[:needed]})
        blocks = blocks[needed:]
    return {"rows": rows, "block_size": block_size}


@cache
def scenarios() -> tuple[Workload, ...]:
    """The recorded scenarios of the whole engine, those with two holes first."""
    return tuple(workload for path in (ROWS, ENGINE) for workload in load(repo_path(path)).workloads)


@cache
def recorded() -> tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]:
    """Every recorded step: its name, the batch as it was before it was flattened, and the step.

    The tokens of a row are those of all its steps so far, put together, and of its prompt.
    """
    found = []
    for scenario in scenarios():
        known = {str(index): list(request["prompt_token_ids"]) for index, request in enumerate(scenario["requests"])}
        for number, step in enumerate(scenario["steps"]):
            rows = []
            for row, (req_id, scheduled) in enumerate(
                zip(step["req_order"], step["num_scheduled_tokens"], strict=True)
            ):
                start, length = step["query_start_loc"][row], step["seq_lens"][row]
                computed = length - scheduled
                tokens = known[req_id]
                tokens[computed:length] = step["input_ids"][start : start + scheduled]
                rows.append(
                    {
                        "computed": computed,
                        "scheduled": scheduled,
                        "tokens": tokens[:length],
                        "blocks": step["block_table"][row],
                    }
                )
            batch = {"rows": rows, "block_size": scenario["engine_args"]["block_size"]}
            found.append((f"{scenario['name']} step {number}", batch, step))
    return tuple(found)


def batch_check(
    name: str, arrays: tuple[str, ...], told: Callable[[dict[str, Any]], str], pads: bool = False
) -> Callable[[Ask], Outcome]:
    """A check of one function on batches made by hand, which the engine answers, and on all recorded steps.

    arrays: what it returns, in the order of comparing. told: a batch as the function's arguments, in words.
    pads: pad_to is asked for; no recorded step has any padding.
    """

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        cases = []
        for batch in handmade():
            asked = batch | (_padding(batch) if pads else {})
            cases.append(("a batch made by hand", asked, ask.engine(name, asked), evidence.ENGINE, 0))
        if not pads:
            for case, batch, step in recorded():
                expected = {array: step[array] for array in arrays} | {"changed": {}}
                cases.append((case, batch, expected, evidence.RECORDED, BEHIND))
        answers = ask.student_many(name, [asked for _, asked, *_ in cases])
        for (case, asked, expected, says, behind), answer in zip(cases, answers, strict=False):
            if evidence.ends_the_check(answer, outcome):
                return outcome
            failure = evidence.unit_failure(
                answer,
                expected,
                case=case,
                told=told(asked),
                size=behind + len(asked["rows"]) + sum(row["scheduled"] for row in asked["rows"]),
                says=says,
            )
            if failure is not None and answer.error is not None:
                failure.expected = " · ".join(f"{array} {tell_batch.brief(expected[array])}" for array in arrays)
            elif failure is not None:
                failure.where, failure.expected, failure.got = tell_batch.tell_arrays(
                    asked, arrays, expected, answer.value
                )
            outcome.add(_batch_mark(expected, answer), failure)
        return outcome

    return run


def _batch_mark(expected: dict[str, Any], answer: Observation) -> str:
    """The first array that differs, and what is in it: what comes after it may follow from it."""
    if answer.error is not None:
        return answer.mark
    got = answer.value
    differs = [[name, got.get(name, got)] for name in expected if got.get(name) != expected[name]]
    return hashlib.sha256(json.dumps(differs[:1]).encode()).hexdigest()[:8]


def _padding(batch: dict[str, Any]) -> dict[str, Any]:
    num_tokens = sum(row["scheduled"] for row in batch["rows"])
    return {"pad_to": None if num_tokens % 5 == 0 else num_tokens + num_tokens % 5 - 1}


# ---------------------------------------------------------------------- rows


def check_small_rows(ask: Ask) -> Outcome:
    """Workloads of a few rows, and the ladder's, step by step: who stands in which row, what the row holds, and who is
    remembered.
    """
    outcome = Outcome()
    few = [parse_rung(f"L{61 + index} {line}") for index, line in enumerate(FEW_ROWS)]
    workloads = [*few, *evidence.ladder()]
    inputs = [{"workload": without_results("scheduler", workload)} for workload in workloads]
    answers = ask.student_many("lab07.observe:watched", inputs)
    for index, (workload, asked, answer) in enumerate(zip(workloads, inputs, answers, strict=False)):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        expected = ask.engine("lab07.observe:watched", asked)
        case = f"few rows, case {index + 1}" if index < len(few) else f"ladder {workload['name']}"
        failure = _rows_failure(answer, expected, workload, case, evidence.ENGINE)
        outcome.add(_rows_mark(answer), failure)
    return outcome


def check_recorded_rows(ask: Ask) -> Outcome:
    """All recorded scenarios, step by step, against what vLLM's worker had in its rows."""
    outcome = Outcome()
    for scenario in scenarios():
        workload = observe_batch.workload_of(scenario)
        answer = ask.student("lab07.observe:watched", {"workload": workload})
        if evidence.ends_the_check(answer, outcome):
            return outcome
        failure = _rows_failure(answer, _recorded_rows(scenario, answer), workload, scenario["name"], evidence.RECORDED)
        outcome.add(_rows_mark(answer), failure)
    return outcome


def _recorded_rows(scenario: Workload, answer: Observation) -> list[dict[str, Any]]:
    """What was recorded of each plan. A plan without tokens, after the last end, was not: it has no rows."""
    steps, expected = iter(scenario["steps"]), []
    for entry in _seen(answer):
        step = next(steps, None) if entry["plan"]["tokens"] else NO_ROWS
        if step is None:
            return expected
        expected.append(_rows_of(step))
    return expected + [_rows_of(step) for step in steps]


def _rows_of(step: dict[str, Any]) -> dict[str, Any]:
    return {
        "rows": step["req_order"],
        "blocks": step["block_table"],
        "computed": [length - n for length, n in zip(step["seq_lens"], step["num_scheduled_tokens"], strict=True)],
        "tokens": [step["input_ids"][start:end] for start, end in pairwise(step["query_start_loc"])],
    }


def _seen(answer: Observation) -> list[dict[str, Any]]:
    return answer.seen if answer.error else answer.value


def _rows_mark(answer: Observation) -> str:
    """What was seen, and whether it crashed then: how it crashed is left out."""
    return hashlib.sha256(json.dumps([_seen(answer), answer.error is not None]).encode()).hexdigest()[:8]


def _rows_failure(answer: Observation, expected: list[Any], workload: Workload, case: str, says: str) -> Failure | None:
    """The first plan after which something differs, or which the code did not survive."""
    seen, size, told = _seen(answer), evidence.size_of(workload | {"steps": expected}), tell_workload(workload)
    for step, (wanted, found) in enumerate(zip(expected, seen, strict=False)):
        crashed = "rows" not in found
        if not crashed and not _differs(wanted, found):
            continue
        if crashed:
            failure = evidence.error_failure(answer.error, case, told, size)
            failure.expected, failure.says = f"rows {tell_batch.tell_rows(wanted['rows'])}", says
        else:
            failure = Failure("decision", case, size, told, *tell_batch.tell_difference(wanted, found), says=says)
        rows = tell_batch.tell_rows(expected[step - 1]["rows"]) if step else "[]"
        failure.where, failure.before = f"step {step}", f"rows {rows} · the plan: {tell_batch.tell_plan(found['plan'])}"
        return failure
    if answer.error is None and len(seen) == len(expected):
        return None
    if answer.error is None:
        return Failure("decision", case, size, told, f"{len(expected)} plans", f"the end after {len(seen)}", says=says)
    failure = evidence.error_failure(answer.error, case, told, size)
    failure.where, failure.expected, failure.says = f"after step {len(seen) - 1}", "the next step", says
    return failure


def _differs(wanted: dict[str, Any], found: dict[str, Any]) -> bool:
    return any(found[key] != value for key, value in wanted.items() if key != "plan")


LOCATED = batch_check("lab07.observe:located", observe_batch.LOCATED, tell_batch.tell_located)
READ = batch_check("lab07.observe:tables_read", observe_batch.READ, tell_batch.tell_read)
PADDED = batch_check("lab07.observe:padded", observe_batch.PADDED, tell_batch.tell_flattened, pads=True)

CHECKS = {
    "7.1": (Check("batches", "small batches, and steps recorded from vLLM", 15, LOCATED),),
    "7.2": (Check("batches", "small batches, and steps recorded from vLLM", 15, READ),),
    "7.3": (
        Check("small", "small workloads", 8, check_small_rows),
        Check("recorded", "scenarios recorded from vLLM", 12, check_recorded_rows),
    ),
    "7.4": (Check("padding", "padded batches", 10, PADDED),),
}
