"""Lab 07: what is asked about flat batches and rows, and what is expected."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from minivllm.labs import evidence, observe_batch
from minivllm.labs.catalog import find_root
from minivllm.labs.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.labs.ladder import parse_rung
from minivllm.labs.words import shorten, tell_list, tell_workload
from minivllm.lockstep.recording import Workload, load, without_results

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
)
BEHIND = 100  # recorded steps are shown after all that is made by hand


# ---------------------------------------------------------------------- batches


@cache
def handmade() -> tuple[dict[str, Any], ...]:
    """Small batches, the smallest first: `rows` and `block_size`.

    vLLM: none, vLLM has no labs
    """
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
    """The recorded scenarios of the whole engine, those with two holes first.

    vLLM: none, vLLM has no labs
    """
    return tuple(workload for path in (ROWS, ENGINE) for workload in load(find_root() / path).workloads)


@cache
def recorded() -> tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]:
    """Every recorded step: its name, the batch as it was before it was flattened, and the step.

    The tokens of a row are those of all its steps so far, put together, and of its prompt.

    vLLM: none, vLLM has no labs
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


def batch_check(name: str, arrays: tuple[str, ...], more: Callable[[dict[str, Any]], Any]) -> Callable[[Ask], Outcome]:
    """A check of one function on batches made by hand, which the engine answers, and on all recorded steps.

    more: a batch -> what is asked beside it (pad_to), or None.

    vLLM: none, vLLM has no labs
    """

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        cases = []
        for batch in handmade():
            asked = batch | (more(batch) or {})
            cases.append(("a batch made by hand", asked, ask.engine(name, asked), evidence.ENGINE, 0))
        if not more(handmade()[0]):
            for case, batch, step in recorded():
                cases.append((case, batch, {array: step[array] for array in arrays}, evidence.RECORDED, BEHIND))
        answers = ask.student_many(name, [asked for _, asked, *_ in cases])
        for (case, asked, expected, says, behind), answer in zip(cases, answers, strict=False):
            if evidence.ends_the_check(answer, outcome):
                return outcome
            failure = evidence.unit_failure(
                answer,
                expected,
                case=case,
                told=_tell_batch(asked),
                size=behind + len(asked["rows"]) + sum(row["scheduled"] for row in asked["rows"]),
                says=says,
            )
            if failure is not None and answer.error is None:
                failure.where, failure.expected, failure.got = _tell_arrays(asked, expected, answer.value)
            outcome.add(answer.mark, failure)
        return outcome

    return run


def _tell_batch(asked: dict[str, Any]) -> str:
    words = [
        f"row {index}: {row['computed']} computed, {row['scheduled']} of this step, blocks {tell_list(row['blocks'])}"
        for index, row in enumerate(asked["rows"])
    ]
    padding = f", pad_to {asked['pad_to']}" if asked.get("pad_to") else ""
    return f"block size {asked['block_size']}{padding}; {'; '.join(words)}"


def _tell_arrays(asked: dict[str, Any], expected: dict[str, Any], got: dict[str, Any]) -> tuple[str, str, str]:
    """The first array that differs: where, expected and got."""
    array = next(name for name in expected if expected[name] != got[name])
    wanted, found = expected[array], got[array]
    if not isinstance(found, list):
        return array, tell_list(wanted), str(found)
    where, why = array, ""
    if array in ("slot_mapping", "input_ids", "positions") and len(wanted) == len(found):
        place = next(index for index, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other)
        where, why = _place(asked, array, place, wanted[place])
    one, other = shorten(wanted, found)
    return where, f"{array} {tell_list(one)}{why}", f"{array} {tell_list(other)}"


def _place(asked: dict[str, Any], array: str, place: int, value: int) -> tuple[str, str]:
    """Whose token stands at a place of the flat batch; for a slot also how it comes about."""
    left, size = place, asked["block_size"]
    for index, row in enumerate(asked["rows"]):
        if left < row["scheduled"]:
            position = row["computed"] + left
            why = f": {value} = {value // size}·{size} + {value % size}" if array == "slot_mapping" else ""
            return f"{array}[{place}], position {position} of row {index}", why
        left -= row["scheduled"]
    return f"{array}[{place}], which is padding", ""


def _padding(batch: dict[str, Any]) -> dict[str, Any]:
    num_tokens = sum(row["scheduled"] for row in batch["rows"])
    return {"pad_to": None if num_tokens % 5 == 0 else num_tokens + num_tokens % 5 - 1}


# ---------------------------------------------------------------------- rows


def check_small_rows(ask: Ask) -> Outcome:
    """Workloads of a few rows, and the ladder's, step by step: who stands in which row, and what the row holds.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    few = [parse_rung(f"L{61 + index} {line}") for index, line in enumerate(FEW_ROWS)]
    workloads = [*few, *evidence.ladder()]
    inputs = [{"workload": without_results("scheduler", workload)} for workload in workloads]
    answers = ask.student_many("observe_batch:rows", inputs)
    for index, (workload, asked, answer) in enumerate(zip(workloads, inputs, answers, strict=False)):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        expected = ask.engine("observe_batch:rows", asked)
        case = f"few rows, case {index + 1}" if index < len(few) else f"ladder {workload['name']}"
        failure = _rows_failure(answer, expected, workload, case, evidence.ENGINE)
        outcome.add(_rows_mark(answer), failure)
    return outcome


def check_recorded_rows(ask: Ask) -> Outcome:
    """All recorded scenarios, step by step, against what vLLM's worker had in its rows.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    for scenario in scenarios():
        workload = observe_batch.workload_of(scenario)
        answer = ask.student("observe_batch:rows", {"workload": workload})
        if evidence.ends_the_check(answer, outcome):
            return outcome
        expected = [_recorded_rows(step) for step in scenario["steps"]]
        failure = _rows_failure(answer, expected, workload, scenario["name"], evidence.RECORDED)
        outcome.add(_rows_mark(answer), failure)
    return outcome


def _recorded_rows(step: dict[str, Any]) -> dict[str, Any]:
    return {
        "rows": step["req_order"],
        "blocks": step["block_table"],
        "computed": [length - n for length, n in zip(step["seq_lens"], step["num_scheduled_tokens"], strict=True)],
        "tokens": [step["input_ids"][start:end] for start, end in pairwise(step["query_start_loc"])],
    }


def _rows_mark(answer: Observation) -> str:
    """What was seen, and whether it crashed then: how it crashed is left out."""
    seen = answer.seen if answer.error else answer.value
    return hashlib.sha256(json.dumps([seen, answer.error is not None]).encode()).hexdigest()[:8]


def _rows_failure(answer: Observation, expected: list[Any], workload: Workload, case: str, says: str) -> Failure | None:
    seen = answer.seen if answer.error else answer.value
    if answer.error is None and seen == expected:
        return None
    size, told = evidence.size_of(workload | {"steps": expected}), tell_workload(workload)
    for step, (wanted, found) in enumerate(zip(expected, seen, strict=False)):
        if wanted != found:
            failure = Failure("decision", case, size, told, "", "", where=f"step {step}", says=says)
            failure.before = "the first step" if step == 0 else f"rows {_tell_rows(expected[step - 1]['rows'])}"
            failure.expected, failure.got = _tell_difference(wanted, found)
            return failure
    failure = evidence.error_failure(answer.error, case, told, size)
    failure.where, failure.says = f"after step {len(seen) - 1}" if seen else "step 0", says
    failure.expected = f"rows {_tell_rows(expected[len(seen)]['rows'])}" if len(seen) < len(expected) else "the end"
    return failure


def _tell_difference(wanted: dict[str, Any], found: dict[str, Any]) -> tuple[str, str]:
    if wanted["rows"] != found["rows"]:
        return f"rows {_tell_rows(wanted['rows'])}", f"rows {_tell_rows(found['rows'])}"
    names = {"blocks": "block table", "computed": "computed tokens", "tokens": "token ids of this step"}
    for key, name in names.items():
        for row, (one, other) in enumerate(zip(wanted[key], found[key], strict=True)):
            if one != other:
                words = [tell_list(value) if isinstance(value, list) else str(value) for value in (one, other)]
                return tuple(f"row {row} ({wanted['rows'][row]}): {name} {word}" for word in words)
    raise AssertionError("the two do not differ")


def _tell_rows(rows: list[str | None]) -> str:
    return tell_list(["hole" if req_id is None else req_id for req_id in rows])


LOCATED = batch_check("observe_batch:located", observe_batch.LOCATED, lambda batch: None)
READ = batch_check("observe_batch:tables_read", observe_batch.READ, lambda batch: None)
PADDED = batch_check("observe_batch:padded", observe_batch.PADDED, _padding)

CHECKS = {
    "7.1": (Check("batches", "small batches, and steps recorded from vLLM", 15, LOCATED),),
    "7.2": (Check("batches", "small batches, and steps recorded from vLLM", 15, READ),),
    "7.3": (
        Check("small", "small workloads", 8, check_small_rows),
        Check("recorded", "scenarios recorded from vLLM", 12, check_recorded_rows),
    ),
    "7.4": (Check("padding", "padded batches", 10, PADDED),),
}
