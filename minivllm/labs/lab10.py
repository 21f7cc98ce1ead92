"""Lab 10: what is asked about the decode kernels, and what is expected."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from minivllm.labs import evidence
from minivllm.labs.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.labs.observe_kernels import make_decode, make_scores
from minivllm.labs.words import tell_list

Case = dict[str, Any]

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}  # absolute; outputs are near 1
SAYS = "attention over all keys at once, in float64"
KINDS = {
    "random": "",
    "falling": ", scores that fall from 600 to -8",
    "rising": ", scores that rise from -8 to 600",
    "low": ", all scores near -200",
    "high": ", all scores near +200",
}


def decode_case(lens: list[int], **changed: Any) -> Case:
    """A case of one query head and one KV head; `changed` says what is otherwise.

    vLLM: none, vLLM has no labs
    """
    case = {"heads": [1, 1], "head_size": 8, "block_size": 4, "tile": 4, "dtype": "float32", "kind": "random"}
    return case | {"lens": lens, "interleaved": False, "segments": 4, "seed": sum(lens)} | changed


# ---------------------------------------------------------------------- 10.1: one step, in torch

SOFTMAX_CASES: tuple[Case, ...] = tuple(
    {"kind": kind, "n": n, "tile": tile, "hidden": hidden, "seed": n}
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
    )
)


def check_softmax(ask: Ask) -> Outcome:
    """m, l and acc after every tile, for scores that rise, fall, are far below or far above 0, or hidden.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    answers = ask.student_many("observe_kernels:softmax_tiles", SOFTMAX_CASES)
    for case, answer in zip(SOFTMAX_CASES, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        outcome.add(*_judge_softmax(case, answer))
    return outcome


def _judge_softmax(case: Case, answer: Observation) -> tuple[str, Failure | None]:
    scores, values = make_scores(case)
    told = f"{case['n']} scores{KINDS[case['kind']]}, in tiles of {case['tile']}; 2 query heads"
    if case["hidden"]:
        told += f"; scores {tell_list(case['hidden'])} are -inf"
    title = "online softmax"
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, title, told, case["n"])
        return answer.error["kind"] + answer.error["type"], failure
    for tile, got in enumerate(answer.value):
        seen = min((tile + 1) * case["tile"], case["n"])
        wanted = _softmax_state(scores[:, :seen], values[:seen])
        wrong = [name for name, a, b in zip(["m", "l", "acc"], wanted, got, strict=True) if not _near(a, b)]
        if wrong:
            index = ["m", "l", "acc"].index(wrong[0])
            failure = Failure(
                "decision",
                title,
                case["n"],
                told,
                expected=f"{wrong[0]} = {_numbers(wanted[index][0])} for head 0",
                got=f"{wrong[0]} = {_numbers(torch.tensor(got[index][0]))}",
                where=f"after tile {tile}, {seen} scores taken in",
                before=_told_state(answer.value[tile - 1]) if tile else "m = -inf, l = 0, acc = 0",
                says=SAYS,
            )
            return f"{tile} {' '.join(wrong)} {_pattern(wanted[index], got[index])}", failure
    return "ok", None


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


def _told_state(state: list[Any]) -> str:
    return ", ".join(
        f"{name} = {_numbers(torch.tensor(part[0]))}" for name, part in zip(["m", "l", "acc"], state, strict=True)
    )


def _numbers(values: torch.Tensor) -> str:
    return " ".join(f"{value:.4g}" for value in values.reshape(-1).tolist())


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
    decode_case([7, 2], heads=[4, 2], interleaved=True),
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
    decode_case([18], heads=[4, 2], head_size=20),
    decode_case([5, 0]),
)


def check_numbers(cases: Sequence[Case], observer: str, ask: Ask) -> Outcome:
    """Attention of every row and head, and nothing written outside of `out`.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    answers = ask.student_many(f"observe_kernels:{observer}", cases)
    for case, answer in zip(cases, answers, strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        outcome.add(*_judge_kernel(case, answer, split=observer == "decode_split"))
    return outcome


def _judge_kernel(case: Case, answer: Observation, split: bool) -> tuple[str, Failure | None]:
    told, size = _tell_case(case, split), sum(case["lens"]) + case["heads"][0] + case["head_size"]
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "numbers", told, size)
        failure.expected = "attention of every row"
        return answer.error["kind"] + answer.error["type"], failure
    make = partial(Failure, size=size, input=told, says=SAYS)
    outside = answer.value["outside"]
    wanted = expected_decode(case)
    off = (torch.tensor(answer.value["out"], dtype=torch.float64) - wanted).abs()  # [S, Hq, D]
    unwritten = torch.tensor(answer.value["unwritten"])  # [S, Hq]
    marks, worst = [], None
    for row, head in ((row, head) for row in range(off.shape[0]) for head in range(off.shape[1])):
        largest = off[row, head].max().item()
        mark = "u" if unwritten[row, head] else "n" if largest != largest else "x" if largest > _limit(case) else "."
        marks.append(mark + (f"{largest:.1f}" if mark == "x" else ""))
        if mark != "." and worst is None:
            worst = row, head, mark, largest
    mark = "".join(marks) + "".join(f" outside {name}" for name in outside)
    if outside:
        return mark, make(
            "crash",
            "margins",
            expected="every store inside of its tensor",
            got=f"something was written outside of {' and of '.join(outside)}",
        )
    if worst is None:
        return mark, None
    row, head, what, largest = worst
    numbers = _numbers(torch.tensor(answer.value["out"][row][head])[:4])
    got = {"u": "it was not written", "n": "NaN", "x": f"{numbers} …, {largest:.2g} off"}[what]
    return mark, make(
        "decision",
        "numbers",
        where=f"out of row {row} ({case['lens'][row]} keys), query head {head}",
        expected=f"{_numbers(wanted[row, head, :4])} …",
        got=got,
    )


def _limit(case: Case) -> float:
    return TOLERANCE[case["dtype"]]


def expected_decode(case: Case) -> torch.Tensor:
    """out float64[S, Hq, D] of a case, by the reference.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.reference import paged_decode

    made = make_decode(case)
    k_cache, v_cache = made["kv_cache"].double().unbind(1)
    out = torch.empty(made["q"].shape, dtype=torch.float64)
    paged_decode(made["q"].double(), k_cache, v_cache, made["block_table"], made["seq_lens"], made["scale"], out)
    return out


def _tell_case(case: Case, split: bool) -> str:
    query_heads, kv_heads = case["heads"]
    rows = f"rows of {tell_list(case['lens'])} keys" if len(case["lens"]) > 1 else f"one row of {case['lens'][0]} keys"
    told = f"{rows}{KINDS[case['kind']]}; block size {case['block_size']}, TILE {case['tile']}"
    told += f", {case['segments']} segments" if split else ""
    told += f"; {query_heads} query and {kv_heads} KV heads of {case['head_size']}"
    told += f", {case['dtype']}" if case["dtype"] != "float32" else ""
    return told + (", K and V of a block side by side" if case["interleaved"] else "")


def check_loads(ask: Ask) -> Outcome:
    """Every number of K and V is loaded once.

    vLLM: none, vLLM has no labs
    """
    outcome = Outcome()
    case = decode_case([6], heads=[4, 2])
    answer = ask.student("observe_kernels:loads", case)
    if evidence.ends_the_check(answer, outcome):
        return outcome
    told, size = _tell_case(case, split=False), 60
    wanted = 6 * 2 * case["head_size"]
    failure = None
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "loads", told, size)
    elif max(answer.value.values()) > wanted:
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


def _numbers_check(title: str, points: int, cases: Sequence[Case], observer: str) -> Check:
    run: Callable[[Ask], Outcome] = partial(check_numbers, cases, observer)
    return Check("numbers", title, points, run)


CHECKS = {
    "10.1": (Check("tiles", "m, l and acc after each tile", 15, check_softmax),),
    "10.2": (
        _numbers_check("attention of one token", 17, ONE_TOKEN, "decode"),
        Check("loads", "each K and V once", 3, check_loads),
    ),
    "10.3": (_numbers_check("heads, sizes, padding", 10, ODD_SIZES, "decode"),),
    "10.4": (_numbers_check("segments", 15, SPLIT, "decode_split"),),
}
