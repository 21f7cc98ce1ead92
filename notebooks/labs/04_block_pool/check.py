"""Lab 04: what is asked about the block pool and the free queue, and what is expected."""

from functools import cache
from random import Random
from typing import Any

from minivllm.course.grader import evidence, observe
from minivllm.course.grader.judge import Ask, Check, Failure, Outcome
from minivllm.course.grader.words import tell_list

Program = list[list[Any]]  # operations, [name, argument]

OPERATIONS: tuple[tuple[str, int], ...] = (
    ("get", 1),
    ("get", 2),
    ("get", 5),
    ("touch", 1),
    ("touch", 2),
    ("free", 1),
    ("free", 2),
    ("remove", 1),
    ("move", 1),
    ("move", 2),
    ("pop", 0),
)
MANY_BLOCKS = 10_000
MAX_COMPARISONS = 2
MAX_LINES = 40  # of the student's code, for one removal


# ---------------------------------------------------------------------- U3: programs


@cache
def programs() -> tuple[Program, ...]:
    """Programs on a pool of 5 blocks, the shortest first: all of up to two operations, then random ones.

    What no caller does is left out: freeing a block that nobody holds, removing a free block for good.
    """
    found = [[list(first)] for first in OPERATIONS]
    found += [[list(first), list(second)] for first in OPERATIONS for second in OPERATIONS]
    random = Random("lab 04")
    for length in (3, 4, 6, 9):
        found += [[list(random.choice(OPERATIONS)) for _ in range(length)] for _ in range(120)]
    return tuple(program for program in found if _is_legal(program))


def _is_legal(program: Program) -> bool:
    """Whether callers do such things, going by the engine's own reference counts."""
    seen = observe.pool_program({}, {"program": []}, [])
    for count, (name, argument) in enumerate(program):
        ref_cnts, free = seen[-1][2]["ref_cnts"], seen[-1][2]["free"]
        if name == "free" and ref_cnts[argument] == 0:
            return False
        if name == "remove" and argument in free:
            return False
        if name == "move" and argument not in free:
            return False
        seen = observe.pool_program({}, {"program": program[: count + 1]}, [])
    return True


@cache
def expected_of_programs() -> list[Any]:
    """What the engine's own pool does with the programs."""
    return [observe.pool_program({}, {"program": program}, []) for program in programs()]


def check_programs(ask: Ask) -> Outcome:
    """Every program leaves the same results and the same state after each operation."""
    outcome = Outcome()
    answers = ask.student_many("observe:pool_program", [{"program": program} for program in programs()])
    for program, expected, answer in zip(programs(), expected_of_programs(), answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        failure = evidence.unit_failure(
            answer,
            expected,
            case=f"U3, {len(program)} operation{'s' if len(program) > 1 else ''} on a pool of 5",
            told=" · ".join(_tell_operation(*operation) for operation in program),
            size=len(program),
            tell=_tell_difference,
        )
        if failure is not None and failure.kind in ("crash", "hang"):
            done = len(answer.seen)
            failure.where = f"operation {done}, {_tell_operation(*program[done - 1])}" if done else "at the start"
            failure.expected = _tell_entry(expected[done]) if done < len(expected) else "the end"
        outcome.add(answer.mark, failure)
    return outcome


def _tell_operation(name: str, argument: int) -> str:
    return {
        "get": f"get {argument}",
        "pop": "popleft, append it again",
        "move": f"remove block {argument}, append it again",
    }.get(name, f"{name} block {argument}")


def _tell_difference(expected: list[Any], got: list[Any]) -> tuple[str, str, str]:
    for index, (wanted, found) in enumerate(zip(expected, got, strict=False)):
        if wanted != found:
            where = "at the start" if index == 0 else f"operation {index}, {wanted[0]}"
            return where, *_tell_both(wanted, found)
    return f"operation {len(got)}", f"{len(expected) - 1} operations done", f"{len(got) - 1}"


def _tell_entry(entry: list[Any]) -> str:
    state = entry[2]
    return f"{_tell_result(entry[1])}; free queue {tell_list(state['free'])}, ref_cnt {tell_list(state['ref_cnts'])}"


def _tell_both(wanted: list[Any], found: list[Any]) -> tuple[str, str]:
    if wanted[1] != found[1]:
        return _tell_result(wanted[1]), _tell_result(found[1])
    names = {"free": "free queue", "num_free": "num_free_blocks", "ref_cnts": "ref_cnt of blocks 0 to 4"}
    keys = [key for key in names if wanted[2][key] != found[2][key]]
    return tuple(
        ", ".join(
            f"{names[key]} {tell_list(state[key]) if isinstance(state[key], list) else state[key]}" for key in keys
        )
        for state in (wanted[2], found[2])
    )


def _tell_result(result: Any) -> str:
    if isinstance(result, str):
        return f"{result}, and nothing changed"
    return f"blocks {tell_list(result)}" if isinstance(result, list) else "done"


# ---------------------------------------------------------------------- constant work


def check_constant_work(ask: Ask) -> Outcome:
    """Removing a block from the middle of 10,000 takes as long as of ten."""
    outcome = Outcome()
    observation = ask.student("observe:work_of_a_removal", {"num_blocks": MANY_BLOCKS})
    if evidence.ends_the_check(observation, outcome):
        return outcome
    told = f"a queue of {MANY_BLOCKS} blocks; remove the one in the middle"
    failure: Failure | None = None
    if observation.error is not None:
        failure = evidence.error_failure(observation.error, "constant work", told, MANY_BLOCKS)
    elif observation.value["comparisons"] > MAX_COMPARISONS or observation.value["lines"] > MAX_LINES:
        work = observation.value
        failure = Failure(
            "structure",
            "constant work",
            MANY_BLOCKS,
            told,
            expected=f"at most {MAX_COMPARISONS} comparisons of blocks and {MAX_LINES} lines of code",
            got=f"{work['comparisons']} comparisons and {work['lines']} lines",
            says="the docstring: a hit in the middle leaves in constant time",
            looks_like="the queue is searched for the block. A block that knows its neighbours needs no search.",
        )
    outcome.add("work", failure)
    return outcome


CHECKS = {
    "4.1": (
        Check("U3", "operations on a small pool", 10, check_programs),
        Check("ladder", "smallest workloads of vLLM", 5, evidence.ladder_check()),
        Check("work", "constant work", 5, check_constant_work),
    ),
    "4.2": (
        Check("U3", "operations on a small pool", 8, check_programs),
        Check("ladder", "smallest workloads of vLLM", 7, evidence.ladder_check()),
    ),
    "4.3": (
        Check("U3", "operations on a small pool", 5, check_programs),
        Check("ladder", "smallest workloads of vLLM", 5, evidence.ladder_check()),
    ),
    "4.4": (
        Check("ladder", "smallest workloads of vLLM", 2, evidence.ladder_check()),
        Check("families", "recorded decisions", 8, evidence.recorded_check("prefix", "preempt", "priority", "hard")),
        Check("invariants", "rules on every step", 5, evidence.invariant_check("hard")),
    ),
}
