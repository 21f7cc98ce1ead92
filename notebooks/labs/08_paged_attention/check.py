"""Lab 08: what is asked about attention in numpy and torch, and what is expected."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.course.grader.words import count
from minivllm.lessons.lab08.observe import make_batch

Case = dict[str, Any]
Wanted = list[tuple[str, np.ndarray]]  # (what it is, the numbers), in the order of what the observer gives

TOLERANCE = 1e-9  # float64
SAYS = "a loop over tokens, heads and keys, in float64"
FEW, MANY = 5, 33  # tokens
MAX_GROWTH = 1.5


def batch_case(name: str, rows: list[list[int]], **changed: Any) -> Case:
    """A case: rows of [new tokens, all tokens]; `changed` says what is otherwise."""
    case = {"name": name, "rows": rows, "heads": [1, 1], "head_size": 4, "block_size": 4, "factor": 1.0}
    return case | {"seed": sum(total for _, total in rows)} | changed


CASES = (
    batch_case("one decode, 1 key", [[1, 1]]),
    batch_case("one decode, B - 1 keys", [[1, 3]]),
    batch_case("one decode, B keys", [[1, 4]]),
    batch_case("one decode, B + 1 keys", [[1, 5]]),
    batch_case("whole prefill", [[6, 6]]),
    batch_case("second chunk", [[3, 7]]),
    batch_case("4 query and 2 KV heads", [[1, 5]], heads=[4, 2]),
    batch_case("8 query heads and 1 KV head", [[2, 6]], heads=[8, 1]),
    batch_case("9 query and 3 KV heads, mixed", [[1, 6], [4, 4], [2, 9]], heads=[9, 3]),
    batch_case("block size 1", [[1, 3], [2, 4]], heads=[2, 2], block_size=1),
    batch_case("block size 16", [[5, 18]], heads=[2, 1], block_size=16),
    batch_case("a row without new tokens", [[2, 5], [0, 3], [1, 2]], block_size=2),
    batch_case("a padding row", [[1, 3], [0, 2], [1, 0], [2, 2]]),
    batch_case("scores 1600 times as large", [[6, 6]], factor=1600.0),
)


# ---------------------------------------------------------------------- what is expected


@cache
def _batch(index: int) -> dict[str, Any]:
    return make_batch(CASES[index])


def wanted_keys(index: int) -> Wanted:
    """K of every row that has keys."""
    return [(f"row {row}", keys) for row, keys in enumerate(_batch(index)["keys"]) if len(keys)]


def wanted_rows(index: int) -> Wanted:
    """Attention of every row that has new tokens and keys."""
    return [
        (f"row {row}", _attend(index, row)) for row, (new, total) in enumerate(CASES[index]["rows"]) if new and total
    ]


def wanted_batch(index: int) -> Wanted:
    """Attention of the flat batch."""
    batch = _batch(index)
    out = np.zeros_like(batch["q"])
    starts = batch["query_start_loc"]
    for row, (new, total) in enumerate(CASES[index]["rows"]):
        if new and total:
            out[starts[row] : starts[row + 1]] = _attend(index, row)
    return [("the batch", out)]


def _attend(index: int, row: int) -> np.ndarray:
    batch, (new, total) = _batch(index), CASES[index]["rows"][row]
    keys, values, start = batch["keys"][row], batch["values"][row], batch["query_start_loc"][row]
    group = batch["q"].shape[1] // keys.shape[1]
    out = np.zeros((new, *batch["q"].shape[1:]))
    for token in range(new):
        place = total - new + token
        for head in range(out.shape[1]):
            scores = [float(batch["q"][start + token, head] @ keys[p, head // group]) for p in range(place + 1)]
            weights = [np.exp((score - max(scores)) * batch["scale"]) for score in scores]
            for p, weight in enumerate(weights):
                out[token, head] += weight / sum(weights) * values[p, head // group]
    return out


# ---------------------------------------------------------------------- checks


def check_numbers(observer: str, wanted: Callable[[int], Wanted], what: str, ask: Ask) -> Outcome:
    """All 14 cases, to 1e-9."""
    outcome = Outcome()
    answers = ask.student_many(f"lab08.observe:{observer}", CASES)
    for index, answer in enumerate(answers):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        outcome.add(*_judge(CASES[index], answer, wanted(index), what))
    return outcome


def _judge(case: Case, answer: Observation, wanted: Wanted, what: str) -> tuple[str, Failure | None]:
    size = sum(new + total for new, total in case["rows"]) * case["heads"][0] + (0 if case["factor"] == 1.0 else 50)
    told = _tell_case(case)
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, case["name"], told, size)
        failure.expected = f"{what} of every row"
        return answer.error["kind"] + answer.error["type"], failure
    arrays = answer.value if what == "K" or len(wanted) != 1 or wanted[0][0] != "the batch" else [answer.value]
    marks, worst = [], None
    for (where, numbers), got in zip(wanted, arrays, strict=True):
        mark, failure = _compare(where, numbers, got, case, what)
        marks.append(mark)
        if worst is None and failure is not None:
            worst = Failure(size=size, case=case["name"], input=told, says=SAYS, **failure)
    return " ".join(marks), worst


def _compare(where: str, wanted: np.ndarray, got: Any, case: Case, what: str) -> tuple[str, dict[str, Any] | None]:
    try:
        found = np.array(got, dtype=np.float64)
    except (ValueError, TypeError):
        found = np.zeros(0)
    if found.shape != wanted.shape:
        words = {"expected": f"shape {list(wanted.shape)}", "got": f"shape {list(found.shape)}"}
        return f"shape {list(found.shape)}", {"kind": "structure", "where": where, **words}
    off = np.abs(found - wanted)
    bad = ~(off <= TOLERANCE * np.maximum(1.0, np.abs(wanted)))
    if not bad.any():
        return "ok", None
    pattern = "".join(
        "." if not bad[i].any() else "n" if np.isnan(found[i]).any() else f"x{off[i].max():.1f}"
        for i in range(len(bad))
    )
    token, head = (int(i) for i in np.argwhere(bad.any(axis=-1))[0])
    numbers = found[token, head]
    return pattern, {
        "kind": "decision",
        "where": f"{where}, {_tell_place(where, token, head, case, what)}",
        "expected": _numbers(wanted[token, head]),
        "got": "NaN" if np.isnan(numbers).any() else f"{_numbers(numbers)}, {off[token, head].max():.2g} off",
    }


def _tell_place(where: str, token: int, head: int, case: Case, what: str) -> str:
    if what == "K":
        block_size = case["block_size"]
        return f"key {token} (number {token // block_size} of its table, offset {token % block_size}), KV head {head}"
    row, first = (int(where.split()[1]), 0) if where != "the batch" else _row_of(token, case)
    new, total = case["rows"][row]
    if total == 0:
        return f"token {token}, which belongs to the padding row {row}, query head {head}"
    place = total - new + token - first
    sees = "key 0 alone" if place == 0 else f"keys 0 to {place}"
    whose = f"token {token}, of row {row}," if where == "the batch" else f"query {token}"
    return f"{whose} at place {place} of {total}, which sees {sees}; query head {head}"


def _row_of(token: int, case: Case) -> tuple[int, int]:
    """The row that owns a token of the flat batch, and the row's first token."""
    first = 0
    for row, (new, _) in enumerate(case["rows"]):
        if token < first + new:
            return row, first
        first += new
    raise IndexError(token)


def _tell_case(case: Case) -> str:
    rows = ", ".join(f"{count(new, 'new token')} of {total}" for new, total in case["rows"])
    heads = f"{case['heads'][0]} query and {case['heads'][1]} KV heads of {case['head_size']}"
    factor = "" if case["factor"] == 1.0 else f"; K times {case['factor']:g}"
    return f"rows: {rows}; block size {case['block_size']}; {heads}{factor}"


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:.4g}" for value in values.tolist())


def check_operations(ask: Ask) -> Outcome:
    """The number of operations of torch does not grow with the tokens."""
    outcome = Outcome()
    cases = [batch_case(f"{tokens} tokens", [[tokens, tokens]], heads=[2, 1]) for tokens in (FEW, MANY)]
    answers = list(ask.student_many("lab08.observe:operations", cases))
    if evidence.ends_the_check(answers[0], outcome):
        return outcome
    told = f"a prompt of {FEW} tokens, then one of {MANY}"
    errors = [answer.error for answer in answers if answer.error is not None]
    failure = None
    if errors:
        failure = evidence.error_failure(errors[0], "operations", told, MANY)
    elif answers[1].value > MAX_GROWTH * answers[0].value:
        failure = Failure(
            "structure",
            "operations",
            MANY,
            told,
            expected=f"about as many operations of torch for {MANY} tokens as for {FEW}, which took {answers[0].value}",
            got=f"{answers[1].value}",
            says="operations counted as they ran",
            looks_like="there is a Python loop over tokens or keys. Each operation of torch costs some microseconds: "
            "let one take all tokens of a sequence.",
        )
    outcome.add("ok" if failure is None else "grows", failure)
    return outcome


def _check(title: str, points: int, observer: str, wanted: Callable[[int], Wanted], what: str) -> Check:
    return Check("numbers", title, points, partial(check_numbers, observer, wanted, what))


CHECKS: dict[str, Sequence[Check]] = {
    "8.1": (_check("K in the order of the tokens", 10, "gathered", wanted_keys, "K"),),
    "8.2": (_check("attention of one sequence", 15, "attended", wanted_rows, "attention"),),
    "8.3": (_check("attention of a batch", 15, "attention", wanted_batch, "attention"),),
    "8.4": (
        _check("the same in torch", 14, "attention_torch", wanted_batch, "attention"),
        Check("operations", "as many for 33 tokens as for 5", 6, check_operations),
    ),
}
