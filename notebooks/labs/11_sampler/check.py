"""Lab 11: what is asked about the sampler, and what is expected."""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Outcome
from minivllm.course.grader.words import tell_list
from minivllm.course.places import repo_path
from minivllm.lessons.lab11.draws import check_draws, check_forward
from minivllm.lessons.lab11.rows import SHOWN, Row, first_wrong_row, mark_of, tell_numbers, tell_rows
from minivllm.proof.lockstep.recording import load, without_results

Case = dict[str, Any]
HAND = Path("traces/labs/sampler-hand.json.gz")  # four tokens that matter, the rest at -9
RECORDED = Path("traces/vllm-0.22.0/vllm-0.22.0-sampler.json.gz")
NOTHING = -13.0  # a log-probability so low that sums of float32 may lose it: as good as masked

# ---------------------------------------------------------------------- functions alone


@cache
def small_cases(name: str) -> tuple[Case, ...]:
    """Batches for one function: those made by hand, the plainest first; then random ones, the smallest first."""
    random = Random(f"lab 11 {name}")
    made: list[Case] = []
    for _ in range(40):
        num_rows, size = random.randint(1, 3), random.randint(3, 6)
        logits = [[random.randint(-12, 12) / 4 for _ in range(size)] for _ in range(num_rows)]
        made.append({"name": name, "logits": logits, "arguments": _arguments(name, random, num_rows, size)})
    return (*_by_hand(name), *sorted(made, key=lambda case: len(_tell_case(case))))


def _by_hand(name: str) -> list[Case]:
    row, rows = [3.0, 2.0, 1.0, 0.0], [[3.0, 2.0, 1.0, 0.0]] * 2
    table: dict[str, list[tuple[list[list[float]], list[Any]]]] = {
        "apply_temperature": [([row], [[2.0]]), ([row], [[0.0]]), (rows, [[0.0, 0.5]]), ([row], [[0.005]])],
        "apply_min_p": [([row], [[0.3]]), ([row], [[0.0]]), ([row], [[1.0]]), ([[0.0] * 4], [[0.9]])],
        "apply_top_k_top_p": [
            ([row], [[2], None]),
            ([row], [None, [0.7]]),
            ([[0.0, 2.0, 1.0, 3.0]], [[4], [0.95]]),
            (rows, [[1, 4], [1.0, 0.7]]),
            ([row], [[3], [0.9]]),
            ([[1.0, 1.0, 1.0, 0.0]], [[2], None]),
            ([[1.0, 2.0, 3.0, 0.0]], [None, [1e-8]]),
        ],
        "apply_bad_words": [
            ([row], [[[0, [[1]]]], [[]]]),
            ([row], [[[0, [[3, 1]]]], [[3]]]),
            ([row], [[[0, [[3, 1]]]], [[3, 2]]]),
            ([row], [[[0, [[2, 3, 1]]]], [[3]]]),
            (rows, [[[1, [[2, 0], [3, 1]]]], [[2], [3]]]),
        ],
        "apply_min_tokens": [
            ([row], [[[0, [1, [2]]]], [[]]]),
            ([row], [[[0, [1, [2]]]], [[0]]]),
            ([row], [[[0, [2, [1, 3]]]], [[0]]]),
            (rows, [[[1, [2, [1]]]], [[], [0]]]),
        ],
        "apply_penalties": [
            ([[2.0, 1.0, -2.0]], [[[2]], [[0]], [0.0], [0.0], [2.0]]),
            ([[3.0, 2.0, 1.0]], [[[1]], [[0, 0, 0]], [0.0], [0.5], [1.0]]),
            ([[3.0, 2.0, 1.0]], [[[1]], [[0, 0, 0]], [0.5], [0.0], [1.0]]),
            ([[2.0, 1.0, 0.0]], [[[]], [[0]], [0.0], [0.5], [2.0]]),
            ([[2.0, 1.0, 0.0]], [[[0]], [[]], [1.0], [1.0], [1.0]]),
        ],
    }
    return [{"name": name, "logits": logits, "arguments": arguments} for logits, arguments in table[name]]


def _arguments(name: str, random: Random, num_rows: int, size: int) -> list[Any]:
    def column(choices: tuple[Any, ...]) -> list[Any]:
        return [random.choice(choices) for _ in range(num_rows)]

    def tokens() -> list[list[int]]:
        return [[random.randrange(size) for _ in range(random.randint(0, 4))] for _ in range(num_rows)]

    if name == "apply_bad_words":
        words = [[random.randrange(3) for _ in range(random.randint(1, 3))] for _ in range(2)]
        return [[[random.randrange(num_rows), words]], [[token % 3 for token in row] for row in tokens()]]
    if name == "apply_min_tokens":
        return [[[random.randrange(num_rows), [random.randint(0, 4), random.sample(range(size), 2)]]], tokens()]
    if name == "apply_temperature":
        return [column((0.0, 0.5, 1.0, 2.0))]
    if name == "apply_min_p":
        return [column((0.0, 0.1, 0.3, 0.7, 1.0))]
    if name == "apply_top_k_top_p":
        k, p = column((1, 2, 3, size)), column((0.05, 0.33, 0.77, 0.93, 1.0))
        return [[k, p], [k, None], [None, p]][random.randrange(3)]
    return [tokens(), tokens(), column((0.0, 0.5)), column((0.0, 0.25)), column((1.0, 1.5, 2.0))]


def small_check(*names: str) -> Any:
    """A check of functions alone, on small batches, against the engine's."""

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        cases = [case for name in names for case in small_cases(name)]
        answers = ask.student_many("lab11.observe:step_alone", cases)
        for place, (case, answer) in enumerate(zip(cases, answers, strict=False)):
            if evidence.ends_the_check(answer, outcome):
                return outcome
            told = _tell_case(case)
            failure = None
            if answer.error is not None:
                failure = evidence.error_failure(answer.error, case["name"], told, place)
                failure.expected = "a new tensor"
            elif answer.value["changed"]:
                failure = _changed(case["name"], told, place)
            else:
                wanted = ask.engine("lab11.observe:step_alone", case)["rows"]
                row = first_wrong_row(wanted, answer.value["rows"])
                if row is not None:
                    words = tell_rows("logits", wanted[row], (answer.value["rows"] or [None])[row])
                    failure = Failure("decision", case["name"], place, told, *words, f"row {row}")
                    failure.says = evidence.ENGINE
            outcome.add(mark_of(answer, failure, answer.value and answer.value["rows"], case["logits"]), failure)
        return outcome

    return run


def _tell_case(case: Case) -> str:
    names = {
        "apply_temperature": ("temperature",),
        "apply_min_p": ("min_p",),
        "apply_top_k_top_p": ("top_k", "top_p"),
        "apply_bad_words": ("bad words", "output"),
        "apply_min_tokens": ("min_tokens", "output"),
        "apply_penalties": ("prompt", "output", "presence", "frequency", "repetition"),
    }[case["name"]]
    rows = "; ".join(tell_numbers(row) for row in case["logits"])
    given = [f"{name} {_tell_argument(name, value)}" for name, value in zip(names, case["arguments"], strict=True)]
    return f"logits {rows}, {', '.join(given)}"


def _tell_argument(name: str, value: Any) -> str:
    if value is None:
        return "off"
    if name == "bad words":
        return "; ".join(f"of row {row}: {' and '.join(map(tell_list, words))}" for row, words in value)
    if name == "min_tokens":
        return "; ".join(f"of row {row}: {least}, stop tokens {tell_list(ids)}" for row, (least, ids) in value)
    return " ".join(tell_list(item) if isinstance(item, list) else f"{item:g}" for item in value)


def _changed(case: str, told: str, size: int) -> Failure:
    return Failure(
        "structure",
        case,
        size,
        told,
        "a new tensor, and what was given as it was",
        "a tensor that was given has changed",
        says="the docstring",
        looks_like="you wrote into a tensor that you were given. Others read it afterwards: logprobs are made of the "
        "logits, and the next step reads the parameters again.",
    )


# ---------------------------------------------------------------------- rows recorded from vLLM


@cache
def recorded_cases() -> tuple[tuple[str, Case, int], ...]:
    """(name, batch, size): the 21 rows made by hand first."""
    hand = [(case["name"], case, 200 + len(case["rows"])) for case in load(repo_path(HAND)).workloads]
    more = load(repo_path(RECORDED)).workloads
    return tuple(hand + [(f"batch {number}", case, 1000 + number) for number, case in enumerate(more)])


def check_recorded(ask: Ask) -> Outcome:
    """Every recorded row has vLLM's distribution just before the draw, or vLLM's greedy token."""
    outcome = Outcome()
    inputs = [without_results("sampler", case) for _, case, _ in recorded_cases()]
    answers = ask.student_many("lab11.observe:rows_processed", inputs)
    for (name, case, size), answer in zip(recorded_cases(), answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = "; ".join(_tell_recorded(row) for row in case["rows"][:2])
        wanted = [
            row["greedy_token"] if row["processed_logprobs"] is None else _possible(row["processed_logprobs"])
            for row in case["rows"]
        ]
        found = (
            [_possible(row) if isinstance(row, list) else row for row in answer.value["rows"]] if answer.value else []
        )
        failure = None
        if answer.error is not None:
            failure = evidence.error_failure(answer.error, name, told, size)
            failure.expected, failure.says = "a distribution for each row", evidence.RECORDED
        elif answer.value["changed"]:
            failure = _changed(name, told, size)
        else:
            row = first_wrong_row(wanted, found)
            if row is not None:
                told = _tell_recorded(case["rows"][row])
                words = tell_rows("log-probabilities", wanted[row], found[row])
                failure = Failure("decision", name, size, told, *words, f"row {row}", says=evidence.RECORDED)
        outcome.add(mark_of(answer, failure, found, [row["logits"] for row in case["rows"]]), failure)
    return outcome


def _possible(row: Row) -> Row:
    return [None if value is None or value < NOTHING else value for value in row]


def _tell_recorded(row: Case) -> str:
    shown = [value for value in row["logits"] if value != -9.0][:SHOWN]
    settings = [f"{name} {value}" for name, value in row["sampling"].items()]
    more = [
        f"{name} {row[key]}"
        for name, key in (("prompt", "prompt_token_ids"), ("output", "output_token_ids"))
        if len(row[key]) <= SHOWN
    ]
    return f"logits {tell_numbers(shown)} …, {', '.join(settings + more)}"


CHECKS = {
    "11.1": (
        Check("small", "small batches", 5, small_check("apply_temperature")),
        Check("recorded", "rows recorded from vLLM", 5, check_recorded),
    ),
    "11.2": (
        Check("small", "small batches", 10, small_check("apply_min_p", "apply_top_k_top_p")),
        Check("recorded", "rows recorded from vLLM", 10, check_recorded),
    ),
    "11.3": (
        Check("small", "small batches", 5, small_check("apply_bad_words", "apply_min_tokens", "apply_penalties")),
        Check("recorded", "rows recorded from vLLM", 10, check_recorded),
    ),
    "11.4": (
        Check("draws", "draws", 10, check_draws),
        Check("forward", "whole steps", 5, check_forward),
    ),
}
