"""Lab 10: what is asked about the decode kernels, and what is expected."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.course.grader.words import count, tell_list
from minivllm.lessons.lab10.observe import make_scores
from minivllm.lessons.lab10.tell import (
    KINDS,
    Case,
    expected_decode,
    limit_of,
    segments_of,
    tell_case,
    tell_numbers,
    tell_programs,
    tell_spilled,
)

SAYS = "attention over all keys at once, in float64"
LATER = 100  # added to the size of a case for each task after 10.2: what 10.2 shows too is shown there
WORDS = 48  # characters of an error that tell it from others


def decode_case(lens: list[int], **changed: Any) -> Case:
    """A case of one query head and one KV head; `changed` says what is otherwise."""
    case = {"heads": [1, 1], "head_size": 8, "block_size": 4, "tile": 4, "dtype": "float32", "kind": "random"}
    return case | {"lens": lens, "layout": "apart", "wide": False, "segments": 4, "seed": sum(lens)} | changed


# ---------------------------------------------------------------------- 10.1: one step, in torch

SOFTMAX_CASES: tuple[Case, ...] = tuple(
    {"kind": kind, "n": n, "tile": tile, "hidden": hidden, "lead": kind == "lead", "seed": n}
    for kind, n, tile, hidden in (
        ("random", 1, 1, []),
        ("random", 4, 4, []),
        ("random", 4, 4, [1, 3]),
        ("rising", 4, 2, []),
        ("falling", 4, 2, []),
        ("random", 6, 3, [3, 4, 5]),
        ("random", 6, 3, [0, 1, 2]),
        ("low", 12, 4, []),
        ("high", 12, 4, []),
        ("random", 12, 4, [11]),
        ("lead", 12, 4, []),
    )
)


def check_softmax(ask: Ask) -> Outcome:
    """m, l and acc after every tile, for scores that rise, fall, are far below or far above 0, or hidden."""
    outcome = Outcome()
    answers = ask.student_many("lab10.observe:softmax_tiles", SOFTMAX_CASES)
    for case, answer in zip(SOFTMAX_CASES, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        outcome.add(*_judge_softmax(case, answer))
    return outcome


def _judge_softmax(case: Case, answer: Observation) -> tuple[str, Failure | None]:
    scores, values = make_scores(case)
    told = f"{count(case['n'], 'score')}{KINDS[case['kind']]}, in tiles of {case['tile']}; 2 query heads"
    if case["hidden"]:
        told += f"; {'score' if len(case['hidden']) == 1 else 'scores'} {tell_list(case['hidden'])} -inf"
    title = "online softmax"
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, title, told, case["n"])
        return answer.error["kind"] + answer.error["type"], failure
    for tile, got in enumerate(answer.value):
        seen = min((tile + 1) * case["tile"], case["n"])
        wanted = _softmax_state(scores[:, :seen], values[:seen])
        if case["lead"]:
            wanted = tuple(part[None] for part in wanted)
        wrong = [name for name, a, b in zip(["m", "l", "acc"], wanted, got, strict=True) if not _near(a, b)]
        if wrong:
            index = ["m", "l", "acc"].index(wrong[0])
            head, expected, found = _first_wrong(wanted[index], got[index])
            failure = Failure(
                "decision",
                title,
                case["n"],
                told,
                expected=f"{wrong[0]} {expected}{head}",
                got=f"{wrong[0]} {found}",
                where=f"after tile {tile}, {count(seen, 'score')} taken in",
                before=_told_state(answer.value[tile - 1], head) if tile else "m = -inf, l = 0, acc = 0",
                says=SAYS,
            )
            return f"{tile} {' '.join(wrong)} {_pattern(wanted[index], got[index])}", failure
    return "ok", None


def _first_wrong(wanted: torch.Tensor, got: Any) -> tuple[str, str, str]:
    """The first head in which a part of the state is wrong, in words; what it is there, and what it should be."""
    found = torch.tensor(got, dtype=torch.float64)
    if found.shape != wanted.shape:
        return "", f"of shape {tell_list(list(wanted.shape))}", f"of shape {tell_list(list(found.shape))}"
    if wanted.shape[0] == 1:
        wanted, found = wanted[0], found[0]
    head = next(i for i in range(len(wanted)) if not _near(wanted[i], found[i].tolist()))
    return f" for head {head}", f"= {tell_numbers(wanted[head])}", f"= {tell_numbers(found[head])}"


def _softmax_state(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, values = scores.double(), values.double()
    m = scores.amax(dim=-1)
    weights = torch.exp(scores - m.masked_fill(m == -torch.inf, 0.0)[:, None])
    return m, weights.sum(dim=-1), weights @ values


def _near(wanted: torch.Tensor, got: Any) -> bool:
    found = torch.tensor(got, dtype=torch.float64)
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)


def _pattern(wanted: torch.Tensor, got: Any) -> str:
    found = torch.tensor(got, dtype=torch.float64)
    if found.shape != wanted.shape:
        return f"shape {list(found.shape)}"
    off = (found - wanted).abs().max().item()
    return "nan" if off != off else f"{off:.0e}"


def _told_state(state: list[Any], head: str) -> str:
    """m, l and acc of the head that `head` ends with; of the first when it is empty."""
    parts = [torch.tensor(part) for part in state]
    if parts[0].dim() > 1:
        parts = [part[0] for part in parts]
    place = int(head.split()[-1]) if head else 0
    return ", ".join(
        f"{name} = {tell_numbers(part[place])}" for name, part in zip(("m", "l", "acc"), parts, strict=True)
    )


# ---------------------------------------------------------------------- kernels

# Seeds with the largest score in the last tile: then what was summed before must shrink.
ONE_TOKEN = (
    decode_case([1]),
    decode_case([3, 4, 5], seed=2),
    decode_case([8], tile=8),
    decode_case([9, 14], tile=8, seed=39),
    decode_case([5], block_size=1, seed=3),
    decode_case([14], block_size=16, seed=5),
    decode_case([8], kind="falling"),
    decode_case([8], kind="rising"),
    decode_case([6], kind="low"),
    decode_case([6], kind="high"),
)
ODD_SIZES = (
    decode_case([5, 9], heads=[2, 2]),
    decode_case([5], heads=[4, 1], seed=11),
    decode_case([6], heads=[9, 3], head_size=20),
    decode_case([7, 2], heads=[4, 2], layout="side by side"),
    decode_case([6, 5], heads=[2, 2], layout="heads first"),
    decode_case([5, 3], heads=[2, 1], wide=True),
    decode_case([3, 0, 6]),
    decode_case([6], heads=[2, 1], dtype="bfloat16"),
)
SPLIT = (
    decode_case([1]),
    decode_case([4, 5]),
    decode_case([15, 16, 17]),
    decode_case([31, 37]),
    decode_case([16], kind="falling"),
    decode_case([16], kind="rising"),
    decode_case([17], kind="low"),
    decode_case([18, 7], heads=[4, 2], head_size=20, wide=True),
    decode_case([5, 0]),
)


def check_numbers(cases: Sequence[Case], observer: str, later: int, ask: Ask) -> Outcome:
    """Attention of every row and head, and nothing written outside of `out`."""
    outcome = Outcome()
    answers = ask.student_many(f"lab10.observe:{observer}", cases)
    split = observer == "decode_split"
    places: dict[int, tuple[Failure, Case, int, int]] = {}
    for case, answer in zip(cases, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        mark, failure, place = _judge_kernel(case, answer, split)
        if failure is not None:
            failure.size += later
        if place is not None:
            places[failure.size] = failure, case, *place
        outcome.add(mark, failure)
    if places:
        outcome.marks.append(tell_programs(*places[min(places)], split, ask))
    return outcome


Judged = tuple[str, Failure | None, tuple[int, int] | None]  # mark, failure, row and query head with wrong numbers


def _judge_kernel(case: Case, answer: Observation, split: bool) -> Judged:
    told, size = tell_case(case, split), sum(case["lens"]) + case["heads"][0] + case["head_size"]
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "numbers", told, size)
        failure.expected = "attention of every row"
        return " ".join((answer.error["kind"], answer.error["type"], answer.error["message"][:WORDS])), failure, None
    make = partial(Failure, size=size, input=told, says=SAYS)
    outside = answer.value["outside"]
    wanted = expected_decode(case)
    off = (torch.tensor(answer.value["out"], dtype=torch.float64) - wanted).abs()  # [S, Hq, D]
    unwritten = torch.tensor(answer.value["unwritten"])  # [S, Hq]
    marks, worst = [], None
    for row, head in ((row, head) for row in range(off.shape[0]) for head in range(off.shape[1])):
        largest = off[row, head].max().item()
        mark = "u" if unwritten[row, head] else "n" if largest != largest else "x" if largest > limit_of(case) else "."
        marks.append(mark + (f"{largest:.1f}" if mark == "x" else ""))
        if mark != "." and worst is None:
            worst = row, head, mark, largest
    mark = "".join(marks) + "".join(f" outside {name} {counts}" for name, counts in outside.items())
    if outside:
        expected, says = "every store inside of its tensor", "what lies beside the tensors, before and after"
        failure = make("crash", "margins", expected=expected, got=tell_spilled(outside), says=says)
        return mark, failure, None
    if worst is None:
        return _judge_segments(case, answer, make) if split else (mark, None, None)
    row, head, what, largest = worst
    numbers = tell_numbers(torch.tensor(answer.value["out"][row][head])[:4])
    got = {"u": "it was not written", "n": "NaN", "x": f"{numbers} …, {largest:.2g} off"}[what]
    failure = make(
        "decision",
        "numbers",
        where=f"out of row {row} ({count(case['lens'][row], 'key')}), query head {head}",
        expected=f"{tell_numbers(wanted[row, head, :4])} …",
        got=got,
    )
    return mark, failure, (row, head)


def _judge_segments(case: Case, answer: Observation, make: Callable[..., Failure]) -> Judged:
    """Whether the segments that have keys were written, and no others. The numbers are right."""
    for row, length in enumerate(case["lens"]):
        wanted = [first < length for first, _ in segments_of(case, length)]
        for head, got in enumerate(answer.value["segments"][row]):
            if got != wanted:
                failure = make(
                    "structure",
                    "segments",
                    where=f"row {row} ({count(length, 'key')}), query head {head}",
                    expected=f"segments {_places(wanted)} are written",
                    got=f"segments {_places(got)} are written",
                    says=evidence.ENGINE,
                )
                return f"segments {row} {head} {_places(got)}", failure, None
    return "." * len(case["lens"]), None, None


def _places(written: list[bool]) -> str:
    return tell_list([place for place, is_written in enumerate(written) if is_written])


def check_loads(ask: Ask) -> Outcome:
    """Every number of K and V is loaded once."""
    outcome = Outcome()
    case = decode_case([6], heads=[4, 2])
    answer = ask.student("lab10.observe:loads", case)
    if evidence.ends_the_check(answer, outcome):
        return outcome
    told, size = tell_case(case, split=False), 60
    wanted = 6 * 2 * case["head_size"]
    failure = None
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "loads", told, size)
    elif set(answer.value.values()) != {wanted}:
        failure = Failure(
            "structure",
            "loads",
            size,
            told,
            expected=f"{wanted} numbers of K and {wanted} of V are loaded",
            got=f"{answer.value['k_cache']} of K and {answer.value['v_cache']} of V",
            says="the addresses that the programs really touched",
        )
    outcome.add("loads" if failure is None else f"{answer.value or answer.error['type']}", failure)
    return outcome


def _numbers_check(title: str, points: int, cases: Sequence[Case], observer: str, later: int = 0) -> Check:
    run: Callable[[Ask], Outcome] = partial(check_numbers, cases, observer, later)
    return Check("numbers", title, points, run)


CHECKS = {
    "10.1": (Check("tiles", "m, l and acc after each tile", 15, check_softmax),),
    "10.2": (
        _numbers_check("attention of one token", 17, ONE_TOKEN, "decode"),
        Check("loads", "each K and V once", 3, check_loads),
    ),
    "10.3": (_numbers_check("heads, sizes, padding", 10, ODD_SIZES, "decode", LATER),),
    "10.4": (_numbers_check("segments", 15, SPLIT, "decode_split", 2 * LATER),),
}
