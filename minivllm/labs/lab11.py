"""Lab 11: what is asked about the sampler, and what is expected."""

import hashlib
import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from minivllm.labs import evidence
from minivllm.labs.catalog import find_root
from minivllm.labs.judge import Ask, Check, Failure, Outcome
from minivllm.labs.words import tell_list
from minivllm.lockstep.recording import load, without_results

Case = dict[str, Any]
Row = list[float | None]
HAND = Path("traces/labs/sampler-hand.json.gz")  # four tokens that matter, the rest at -9
RECORDED = Path("traces/vllm-0.22.0/vllm-0.22.0-sampler.json.gz")
TOLERANCE = 2e-3
NOTHING = -13.0  # a log-probability so low that sums of float32 may lose it: as good as masked
SHOWN = 4  # tokens of a hand row that are shown
PROBS = [0.5, 0.3, 0.15, 0.05, 0.0]
LIMIT = 21.1  # of chi-square with three degrees of freedom: once in 10,000 experiments
SIZE = 1000  # tokens of equal probability

# ---------------------------------------------------------------------- functions alone


@cache
def small_cases(name: str) -> tuple[Case, ...]:
    """Batches for one function, the smallest first.

    vLLM: none, vLLM has no labs
    """
    random = Random(f"lab 11 {name}")
    made = _by_hand(name)
    for _ in range(40):
        num_rows, size = random.randint(1, 3), random.randint(3, 6)
        logits = [[random.randint(-12, 12) / 4 for _ in range(size)] for _ in range(num_rows)]
        made.append({"name": name, "logits": logits, "arguments": _arguments(name, random, num_rows, size)})
    return tuple(made)


def _by_hand(name: str) -> list[Case]:
    row, rows = [3.0, 2.0, 1.0, 0.0], [[3.0, 2.0, 1.0, 0.0]] * 2
    table: dict[str, list[tuple[list[list[float]], list[Any]]]] = {
        "apply_temperature": [([row], [[2.0]]), ([row], [[0.0]]), (rows, [[0.0, 0.5]]), ([row], [[0.005]])],
        "apply_min_p": [([row], [[0.3]]), ([row], [[0.0]]), ([row], [[1.0]]), ([[0.0] * 4], [[0.9]])],
        "apply_top_k_top_p": [
            ([row], [[2], None]),
            ([row], [None, [0.7]]),
            ([[1.0, 1.0, 1.0, 0.0]], [[2], None]),
            ([row], [[3], [0.9]]),
            ([[1.0, 2.0, 3.0, 0.0]], [None, [1e-8]]),
            (rows, [[1, 4], [1.0, 0.7]]),
            ([[0.0, 1.0, 2.0, 3.0]], [[4], [0.95]]),
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

    if name == "apply_temperature":
        return [column((0.0, 0.5, 1.0, 2.0))]
    if name == "apply_min_p":
        return [column((0.0, 0.1, 0.3, 0.7, 1.0))]
    if name == "apply_top_k_top_p":
        k, p = column((1, 2, 3, size)), column((0.05, 0.33, 0.77, 0.93, 1.0))
        return [[k, p], [k, None], [None, p]][random.randrange(3)]
    return [tokens(), tokens(), column((0.0, 0.5)), column((0.0, 0.25)), column((1.0, 1.5, 2.0))]


def small_check(*names: str) -> Any:
    """A check of functions alone, on small batches, against the engine's.

    vLLM: none, vLLM has no labs
    """

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        cases = [case for name in names for case in small_cases(name)]
        answers = ask.student_many("observe_sampler:step_alone", cases)
        for case, answer in zip(cases, answers, strict=False):
            if evidence.ends_the_check(answer, outcome):
                return outcome
            told = _tell_case(case)
            failure = None
            if answer.error is not None:
                failure = evidence.error_failure(answer.error, case["name"], told, len(told))
                failure.expected = "a new tensor"
            elif answer.value["changed"]:
                failure = _changed(case["name"], told, len(told))
            else:
                wanted = ask.engine("observe_sampler:step_alone", case)["rows"]
                row = _first_wrong(wanted, answer.value["rows"])
                if row is not None:
                    words = _tell_rows("logits", wanted[row], answer.value["rows"][row])
                    failure = Failure("decision", case["name"], len(told), told, *words, f"row {row}")
                    failure.says = evidence.ENGINE
            outcome.add(_mark(answer, failure, answer.value and answer.value["rows"]), failure)
        return outcome

    return run


def _tell_case(case: Case) -> str:
    names = {
        "apply_temperature": ("temperature",),
        "apply_min_p": ("min_p",),
        "apply_top_k_top_p": ("top_k", "top_p"),
        "apply_penalties": ("prompt", "output", "presence", "frequency", "repetition"),
    }[case["name"]]
    rows = "; ".join(_tell_numbers(row) for row in case["logits"])
    given = [f"{name} {_tell_argument(value)}" for name, value in zip(names, case["arguments"], strict=True)]
    return f"logits {rows}, {', '.join(given)}"


def _tell_argument(value: Any) -> str:
    if value is None:
        return "off"
    return " ".join(tell_list(item) if isinstance(item, list) else f"{item:g}" for item in value)


def _tell_numbers(row: Row) -> str:
    return " ".join("-inf" if value is None else f"{value:.3g}" for value in row)


def _changed(case: str, told: str, size: int) -> Failure:
    return Failure(
        "structure",
        case,
        size,
        told,
        "a new tensor, and the logits as they were",
        "the logits that were given have changed",
        says="the docstring",
        looks_like="you wrote into the tensor that you were given. Logprobs are made of the same logits afterwards.",
    )


# ---------------------------------------------------------------------- rows recorded from vLLM


@cache
def recorded_cases() -> tuple[tuple[str, Case, int], ...]:
    """(name, batch, size): the 21 rows made by hand first.

    vLLM: none, vLLM has no labs
    """
    hand = [(case["name"], case, 100 + len(case["rows"])) for case in load(find_root() / HAND).workloads]
    more = load(find_root() / RECORDED).workloads
    return tuple(hand + [(f"batch {number}", case, 1000 + number) for number, case in enumerate(more)])


def check_recorded(ask: Ask) -> Outcome:
    """Every recorded row has vLLM's distribution just before the draw, or vLLM's greedy token.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    inputs = [without_results("sampler", case) for _, case, _ in recorded_cases()]
    answers = ask.student_many("observe_sampler:rows_processed", inputs)
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
            row = _first_wrong(wanted, found)
            if row is not None:
                told = _tell_recorded(case["rows"][row])
                words = _tell_rows("log-probabilities", wanted[row], found[row])
                failure = Failure("decision", name, size, told, *words, f"row {row}", says=evidence.RECORDED)
        outcome.add(_mark(answer, failure, found), failure)
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
    return f"logits {_tell_numbers(shown)} …, {', '.join(settings + more)}"


def _first_wrong(wanted: list[Any], found: list[Any]) -> int | None:
    """The first row that is not what it should be. Of tokens with equal values only their number counts."""
    if len(wanted) != len(found):
        return 0
    for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(one, list) != isinstance(other, list):
            return index
        if not (one == other if not isinstance(one, list) else _same_row(one, other)):
            return index
    return None


def _same_row(wanted: Row, found: Row) -> bool:
    if len(wanted) != len(found) or any(value != value for value in found):
        return False
    pairs = zip(wanted, found, strict=True)
    if any(abs(one - other) > TOLERANCE for one, other in pairs if one is not None and other is not None):
        return False
    ranked = [sorted(value for value in row if value is not None) for row in (wanted, found)]
    if len(ranked[0]) != len(ranked[1]):
        return False
    return all(abs(one - other) <= TOLERANCE for one, other in zip(*ranked, strict=True))


def _tell_rows(what: str, wanted: Any, found: Any) -> tuple[str, str]:
    if not isinstance(wanted, list) or not isinstance(found, list):
        return f"token {wanted}", f"{'token' if isinstance(found, int) else 'a row'} {found}"
    kept = [[token for token, value in enumerate(row) if value is not None] for row in (wanted, found)]
    if kept[0] != kept[1]:
        return tuple(f"kept tokens {tell_list(tokens[:8])}{' …' * (len(tokens) > 8)}" for tokens in kept)
    pairs = enumerate(zip(wanted, found, strict=True))
    token = next(token for token, (one, other) in pairs if one is not None and abs(one - other) > TOLERANCE)
    return tuple(f"{what} {_tell_numbers(row[: max(SHOWN, token + 1)])}" for row in (wanted, found))


def _mark(answer: Any, failure: Failure | None, rows: Any) -> str:
    """ok, or what kind of wrong: which tokens are kept, not how large they are."""
    if failure is None:
        return "ok"
    if answer.error is not None:
        return answer.error["kind"]
    if failure.kind == "structure":
        return "changed"
    kept = [[t for t, v in enumerate(row) if v is not None] if isinstance(row, list) else row for row in rows]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]


# ---------------------------------------------------------------------- draws


def check_draws(ask: Ask) -> Outcome:
    """Draws follow the probabilities, and a seed fixes a row's tokens, whatever stands beside it.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    for own in (False, True):
        asked = {"probs": PROBS, "draws": 400 if own else 4000, "calls": 10 if own else 1, "own": own}
        answer = ask.student("observe_sampler:counted", asked)
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = f"4000 draws from the probabilities {_tell_numbers(PROBS)}" + (", each row with its own seed" * own)
        wanted = f"about {' '.join(str(round(4000 * p)) for p in PROBS)}, and nothing of probability 0"
        right = answer.error is None and _fits(answer.value)
        name = "frequencies" if not answer.value or not answer.value[-1] else "a token of probability 0"
        _note(
            outcome,
            answer,
            f"{name}{', own seeds' * own}",
            told,
            wanted,
            right,
            lambda counts: f"counts {tell_list(counts)}",
        )
    for name, rows, wanted, judge in EXPERIMENTS:
        answers = [ask.student("observe_sampler:sequences", _asked(*one)) for one in rows]
        for answer in answers:
            if evidence.ends_the_check(answer, outcome):
                return outcome
        broken = next((answer for answer in answers if answer.error is not None), None)
        right = broken is None and judge(*(answer.value for answer in answers))
        told = " · then ".join(_tell_seeds(*one) for one in rows)
        shown = broken or answers[-1]
        tokens = " · then ".join(_tell_drawn(answer.value) for answer in answers if answer.error is None)
        _note(outcome, shown, name, told, wanted, right, lambda _, tokens=tokens: f"tokens {tokens}")
    return outcome


def _asked(seeds: tuple[int | None, ...], default: int) -> Case:
    return {"seeds": list(seeds), "default": default, "calls": 6, "size": SIZE}


def _tell_seeds(seeds: tuple[int | None, ...], default: int) -> str:
    words = ["no seed" if seed is None else f"seed {seed}" for seed in seeds[:3]]
    return f"{len(seeds)} rows ({', '.join(words)}{' …' * (len(seeds) > 3)}), the default generator at {default}"


def _tell_drawn(drawn: list[list[int]]) -> str:
    return "; ".join(tell_list(row) for row in drawn[:3])


EXPERIMENTS = (
    (
        "same seed",
        (((7,), 1), ((7,), 2)),
        "the same tokens for the same seed, whatever the default generator is",
        lambda one, other: one == other,
    ),
    (
        "successive draws",
        (((7,), 1),),
        "other tokens from call to call: the generator goes on",
        lambda drawn: len(set(drawn[0])) > 1,
    ),
    (
        "other seeds",
        (((7, 8), 1),),
        "other tokens for another seed",
        lambda drawn: drawn[0] != drawn[1],
    ),
    (
        "rows differ",
        (((None,) * 8, 1),),
        "rows without a seed do not share their noise",
        lambda drawn: len({row[0] for row in drawn}) > 4,
    ),
    (
        "unseeded company",
        (((7,), 1), ((7, None), 1)),
        "the row with seed 7 draws the same, alone and beside a row without a seed",
        lambda alone, beside: alone[0] == beside[0],
    ),
    (
        "behind an unseeded row",
        (((7,), 1), ((None, 7), 1)),
        "the row with seed 7 draws the same, in whichever row it stands",
        lambda alone, behind: alone[0] == behind[1],
    ),
    (
        "seeded company",
        (((7,), 1), ((8, 7), 1)),
        "the row with seed 7 draws the same, alone and beside a row with seed 8",
        lambda alone, beside: alone[0] == beside[1],
    ),
    (
        "the neighbour's seed",
        (((7, None), 1), ((7, None), 2)),
        "a row without a seed does not follow the seed of its neighbour",
        lambda one, other: one[1] != other[1],
    ),
)


def _fits(counts: list[int]) -> bool:
    total = sum(counts)
    if any(count and not p for count, p in zip(counts, PROBS, strict=True)):
        return False
    means = [(count, p * total) for count, p in zip(counts, PROBS, strict=True) if p]
    return sum((count - mean) ** 2 / mean for count, mean in means) < LIMIT


def _note(outcome: Outcome, answer: Any, name: str, told: str, wanted: str, right: bool, tell: Any) -> None:
    failure = None
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, name, told, 2000)
        failure.expected = wanted
    elif not right:
        failure = Failure(
            "decision", name, 2000, told, wanted, tell(answer.value), says="probability, and the docstring"
        )
    outcome.add("ok" if failure is None else f"wrong: {name}", failure)


ROW = [1.0, 1.5, 2.0, 0.5, 1.9, 1.2]
FORWARDS = (  # name, sampling of each row, discarded rows of each call, what holds, whether it does
    (
        "greedy rows stay greedy",
        [{"temperature": 0}, {"temperature": 5.0}],
        [[]] * 8,
        "token 2 in every call for the row with temperature 0, the likeliest",
        lambda drawn: set(drawn[0]) == {2} and len(set(drawn[1])) > 1,
    ),
    (
        "processed, not raw",
        [{"temperature": 1.0, "top_k": 1}],
        [[]] * 8,
        "token 2 in every call: top_k 1 leaves nothing else",
        lambda drawn: set(drawn[0]) == {2},
    ),
    (
        "its own generator",
        [{"temperature": 5.0, "seed": 11}, {"temperature": 5.0, "seed": 11}],
        [[]] * 8,
        "the same tokens for two rows with the same seed",
        lambda drawn: drawn[0] == drawn[1],
    ),
    (
        "a discarded row draws nothing",
        [{"temperature": 5.0, "seed": 11}, {"temperature": 5.0, "seed": 11}],
        [[0], [0], *[[]] * 8],
        "row 0 begins with what row 1 began with: its generator has not moved while its tokens were thrown away",
        lambda drawn: drawn[0] == drawn[1][:8],
    ),
    (
        "rows without a seed",
        [{"temperature": 5.0}] * 6,
        [[]] * 4,
        "tokens that differ from row to row and from call to call",
        lambda drawn: len({tuple(row) for row in drawn}) > 1 and any(len(set(row)) > 1 for row in drawn),
    ),
)


def check_forward(ask: Ask) -> Outcome:
    """Sampler.forward: whose token counts, and whose generator moves.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    for name, sampling, discarded, wanted, judge in FORWARDS:
        asked = {"logits": ROW, "sampling": sampling, "discarded": discarded}
        answer = ask.student("observe_sampler:forwarded", asked)
        if evidence.ends_the_check(answer, outcome):
            return outcome
        rows = "; ".join(", ".join(f"{key} {value}" for key, value in one.items()) for one in sampling[:2])
        told = f"logits {_tell_numbers(ROW)}, {len(sampling)} rows ({rows}), {len(discarded)} calls"
        told += f", row 0 discarded in the first {sum(map(bool, discarded))}" if discarded[0] else ""
        right = answer.error is None and judge(answer.value)
        _note(outcome, answer, name, told, wanted, right, lambda drawn: f"tokens {_tell_drawn(drawn)}")
    return outcome


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
        Check("small", "small batches", 5, small_check("apply_penalties")),
        Check("recorded", "rows recorded from vLLM", 10, check_recorded),
    ),
    "11.4": (
        Check("draws", "draws", 10, check_draws),
        Check("forward", "whole steps", 5, check_forward),
    ),
}
