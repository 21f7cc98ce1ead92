"""Lab 09: what is asked about writing K and V to their slots, and what is expected."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.course.grader.observe_kernels import far_tokens, make_write, tokens_of
from minivllm.course.grader.words import count, tell_list

Case = dict[str, Any]

FAR_SIZE = 100  # the last to be shown
SAYS = "slot s is place s % block_size of block s // block_size"


def write_case(slots: list[int], **changed: Any) -> Case:
    """A case with one head of 8 numbers; `changed` says what is otherwise."""
    case = {"rows": len(slots), "heads": 1, "head_size": 8, "block_size": 4, "blocks": 5, "dtype": "float32"}
    return case | {"slots": slots, "from": "apart", "interleaved": False, "tile": 64, "seed": len(slots)} | changed


ONE_TILE = (
    write_case([4]),
    write_case([6]),
    write_case([11, 12]),
    write_case([13, 5, 18, 7]),
    write_case([9, 10], heads=2),
    write_case([6, 8], heads=2, tile=0),
)
ODD_SIZES = (
    write_case([5, 8], heads=3, head_size=20),
    write_case([5, 8], heads=2, head_size=80),
    write_case([6, 13, 7], heads=2, **{"from": "qkv"}),
    write_case([6, 13, 7], heads=2, **{"from": "own"}),
    write_case([4, 9], heads=2, interleaved=True),
    write_case([5, 10], heads=2, dtype="bfloat16"),
)
NO_TOKENS = (
    write_case([5, -1, 9]),
    write_case([-1]),
    write_case([6, 7], rows=5),
    write_case([], rows=2),
)


# the last block begins at number 2^31 of the cache, which has K and V of a block side by side
FAR = {"block_size": 4, "head_size": 8, "blocks": 2**31 // 64 + 1, "slot": 2**31 // 64 * 4 + 1}


def check_far(ask: Ask) -> Outcome:
    """A slot whose address takes more than 32 bits."""
    outcome = Outcome()
    answer = ask.student("observe_kernels:write_far", FAR)
    if evidence.ends_the_check(answer, outcome):
        return outcome
    told = f"slots [{FAR['slot']}]; 1 head of 8, block size 4; cache of 2^31 numbers and more; bfloat16"
    block, offset = divmod(FAR["slot"], FAR["block_size"])
    wanted = [half.flatten().tolist() for half in far_tokens(FAR)]
    expected, failure = f"K and V of token 0 in block {block}, offset {offset}", None
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "far out", told, FAR_SIZE)
        failure.expected, failure.says = expected, SAYS
    elif answer.value not in (wanted, None):
        failure = Failure("decision", "far out", FAR_SIZE, told, expected, "other numbers there", says=SAYS)
    outcome.add("ok" if failure is None else "far", failure)
    return outcome


def check_writes(cases: Sequence[Case], ask: Ask) -> Outcome:
    """Both caches, element by element, exactly; nothing else is written."""
    outcome = Outcome()
    for case, answer in zip(cases, ask.student_many("observe_kernels:write", cases), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        outcome.add(*_judge(case, answer))
    return outcome


def _judge(case: Case, answer: Observation) -> tuple[str, Failure | None]:
    told, size = _tell_case(case), len(case["slots"]) + case["rows"] + case["heads"] * case["head_size"] // 8
    size += 12 * (case["rows"] != len(case["slots"]) or -1 in case["slots"])  # the plain cases are shown first
    size += 0 if case["slots"] else 20
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, "writes", told, size)
        failure.expected = "every token in its slot"
        return answer.error["kind"] + answer.error["type"], failure
    make = partial(Failure, size=size, input=told, says=SAYS)
    key, value = tokens_of(case, *(make_write(case)[name] for name in ("keys", "values")))
    tokens = {"K": (key, answer.value["k_cache"]), "V": (value, answer.value["v_cache"])}
    marks, worst = [f"outside {name}" for name in answer.value["outside"]], None
    for name, (source, found) in tokens.items():
        got = torch.tensor(found)
        wanted = torch.full(got.shape, torch.nan)
        for token, slot in enumerate(case["slots"]):
            if slot >= 0:
                wanted[slot // case["block_size"], slot % case["block_size"]] = source[token].float()
        bad = ~((got == wanted) | (got.isnan() & wanted.isnan()))
        marks.append(f"{name} {int(bad.sum())} {int(got.isnan().sum())}")
        if bad.any() and worst is None:
            worst = _told(name, {"K": key, "V": value}, got, wanted, bad, case)
    if not case["slots"] and answer.value["launches"]:
        marks.append("launched")
        worst = ("", "no launch: there is no token", f"a launch of {answer.value['launches'][0]} programs")
    if worst is not None and case["slots"] and not any(map(math.prod, answer.value["launches"])):
        worst = (worst[0], worst[1], _no_programs(answer.value["launches"]))
    if answer.value["outside"]:
        inside = "every store inside of its tensor" + ", and none for slot -1" * (-1 in case["slots"])
        where, expected, got = worst or ("", inside, "")
        outside = f"something was written outside of {' and of '.join(answer.value['outside'])}"
        return " ".join(marks), make("crash", "margins", expected=expected, got=outside, where=where)
    if worst is None:
        return " ".join(marks), None
    where, expected, got = worst
    return " ".join(marks), make("decision", "writes", expected=expected, got=got, where=where)


def _no_programs(launches: list[list[int]]) -> str:
    return f"no program ran: the grid was ({', '.join(map(str, launches[0]))})" if launches else "nothing was launched"


def _told(
    name: str, sources: dict[str, torch.Tensor], got: torch.Tensor, wanted: torch.Tensor, bad: torch.Tensor, case: Case
) -> tuple[str, str, str]:
    """Where the first wrong element is, what it should be, and where that number went."""
    block, offset, head, dim = (int(i) for i in bad.nonzero()[0])
    slot = block * case["block_size"] + offset
    place = f"{name} of slot {slot} = block {block}, offset {offset}; head {head}, number {dim}"
    place += f": element {_element(case, block, offset, head, dim)} from the cache's first"
    number = wanted[block, offset, head, dim]
    if number.isnan():
        return (
            place,
            "it stays as it was: no token has this slot",
            _origin(got[block, offset, head, dim], sources, case),
        )
    token = case["slots"].index(slot)
    if not got[block, offset, head, dim].isnan():
        words = _origin(got[block, offset, head, dim], sources, case)
        return place, f"number {dim} of head {head} of {name} of token {token}", words
    found = (got == number).nonzero().tolist()
    words = f"nothing was written there; the number stands nowhere in the {name} cache"
    if found:
        to_block, to_offset, to_head, to_dim = found[0]
        words = f"nothing was written there; the number stands in block {to_block}, offset {to_offset}"
        words += f", head {to_head}, number {to_dim}" if (to_head, to_dim) != (head, dim) else ""
        words += f": element {_element(case, *found[0])}"
    return place, f"number {dim} of head {head} of {name} of token {token}", words


def _element(case: Case, block: int, offset: int, head: int, dim: int) -> int:
    """How far a number is from the first one of its cache."""
    token = case["heads"] * case["head_size"]
    page = block * (2 if case["interleaved"] else 1) * case["block_size"] + offset
    return page * token + head * case["head_size"] + dim


def _origin(number: torch.Tensor, sources: dict[str, torch.Tensor], case: Case) -> str:
    """Which number of which token it is."""
    for name, source in sources.items():
        for token, head, dim in (source.float() == number).nonzero().tolist():
            more = "" if token < len(case["slots"]) else ", which has no slot"
            return f"number {dim} of head {head} of {name} of token {token}{more}"
    return f"{number.item():.4g}, which is in no token"


def _tell_case(case: Case) -> str:
    heads = f"{count(case['heads'], 'head')} of {case['head_size']}"
    told = f"slots {tell_list(case['slots'])}; {heads}, block size {case['block_size']}"
    told += f"; key and value have {case['rows']} rows" if case["rows"] != len(case["slots"]) else ""
    told += {"qkv": "; key and value are slices of wider rows", "own": "; value has a stride of its own"}.get(
        case["from"], ""
    )
    told += "; cache (blocks, 2, block size, heads, head size)" if case["interleaved"] else ""
    told += "" if case["tile"] else "; tuning None, as the engine calls it"
    return told + (f"; {case['dtype']}" if case["dtype"] != "float32" else "")


def _check(title: str, points: int, cases: Sequence[Case]) -> Check:
    return Check("writes", title, points, partial(check_writes, cases))


CHECKS = {
    "9.1": (_check("one tile", 20, ONE_TILE),),
    "9.2": (_check("sizes and strides", 22, ODD_SIZES), Check("far", "a large cache", 3, check_far)),
    "9.3": (_check("padding", 15, NO_TOKENS),),
}
