"""How a failure of lab 10's kernels is told: the case, where its keys lie, and what the programs did instead.

Owns: the words for decode cases, and what is right for one.
Interface: tell_case, tell_programs, tell_spilled, tell_numbers; expected_decode, limit_of, segments_of.
Must not know: which cases are asked, or what they are worth.
"""

from typing import Any

import torch

from minivllm.config import cdiv
from minivllm.course.grader.judge import Ask, Failure
from minivllm.course.grader.words import count, tell_list
from minivllm.lessons.lab10.observe import make_decode

Case = dict[str, Any]

TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}  # absolute; outputs are near 1
MOST = 8  # runs of keys, or maxima, that are told
KINDS = {
    "random": "",
    "falling": ", scores that fall from 600 to -8",
    "rising": ", scores that rise from -8 to 600",
    "low": ", all scores near -200",
    "high": ", all scores near +200",
    "lead": ", all tensors with a dimension of 1 before the others",
}
LAYOUTS = {
    "apart": "",
    "side by side": ", K and V of a block side by side",
    "heads first": ", the keys of a head in a block side by side",
}


# ---------------------------------------------------------------------- what is right


def expected_decode(case: Case) -> torch.Tensor:
    """out float64[S, Hq, D] of a case, by the reference."""
    from minivllm_kernels.reference import paged_decode

    made = make_decode(case)
    k_cache, v_cache = made["kv_cache"].double().unbind(1)
    out = torch.empty(made["q"].shape, dtype=torch.float64)
    paged_decode(made["q"].double(), k_cache, v_cache, made["block_table"], made["seq_lens"], made["scale"], out)
    return out


def limit_of(case: Case) -> float:
    """How far a number of `out` may be off."""
    return TOLERANCE[case["dtype"]]


def segments_of(case: Case, seq_len: int) -> list[tuple[int, int]]:
    """First key of every segment, and one behind its last; a segment without a key begins at seq_len or later."""
    keys = cdiv(seq_len, case["segments"] * case["tile"]) * case["tile"]
    return [(i * keys if keys else seq_len, min((i + 1) * keys, seq_len)) for i in range(case["segments"])]


# ---------------------------------------------------------------------- words


def tell_case(case: Case, split: bool) -> str:
    """A decode case in one line."""
    query_heads, kv_heads = case["heads"]
    lens = case["lens"]
    rows = f"rows of {tell_list(lens)} keys" if len(lens) > 1 else f"one row of {count(lens[0], 'key')}"
    told = f"{rows}{KINDS[case['kind']]}; block size {case['block_size']}, TILE {case['tile']}"
    told += f", {case['segments']} segments" if split else ""
    told += f"; {count(query_heads, 'query head')} and {count(kv_heads, 'KV head')} of {case['head_size']} numbers"
    told += f", {case['dtype']}" if case["dtype"] != "float32" else ""
    told += ", q in wider rows than out" if case["wide"] else ""
    return told + LAYOUTS[case["layout"]]


def tell_spilled(outside: dict[str, list[int]]) -> str:
    """Names of tensors, and how many numbers were written before and behind them."""
    told = []
    for name, counts in outside.items():
        sides = [f"{count(n, 'number')} {side}" for n, side in zip(counts, ("before", "behind"), strict=True) if n]
        told.append(f"{' and '.join(sides)} {name}")
    return f"written: {', '.join(told)}"


def tell_numbers(values: torch.Tensor) -> str:
    """Numbers with four digits each."""
    return " ".join(f"{value:.4g}" for value in values.reshape(-1).tolist())


# ---------------------------------------------------------------------- what the programs did


def tell_programs(failure: Failure, case: Case, row: int, head: int, split: bool, ask: Ask) -> str:
    """Add to a failure where the keys of its row lie, and which of them its programs read. Gives a mark for that.

    In one pass also m after each tile, where the student's softmax_step was called; with segments, which kernel it is.
    """
    answer = ask.student("lab10.observe:programs", case | {"split": split})
    if answer.error is not None:
        return answer.error["kind"]
    made, length, group = make_decode(case), case["lens"][row], case["heads"][0] // case["heads"][1]
    spans = segments_of(case, length) if split else [(0, length)]
    table = made["block_table"][row].tolist()
    wanted = " | ".join(_keys_of(table, case["block_size"], first, last) for first, last in spans)
    mine = [program for program in answer.value if program["index"][:2] == [row, head // group]]
    found = " | ".join(_tell_keys(program["keys"], program["outside"]) for program in mine)
    by_segment = ", by segments" if split else ""
    if length:
        failure.where = f"out of row {row} ({count(length, 'key')}, in {wanted}{by_segment}), query head {head}"
        failure.got += " · these keys were read" if wanted == found else f" · keys read: {found}"
    if split and ask.thorough:
        _tell_which_kernel(failure, case, ask)
    elif not split and length and mine and mine[0]["steps"]:
        maxima = [top[head % group % len(top)] for top in mine[0]["steps"]]
        failure.expected += f" · m after each tile: {_cut(_maxima(made, case, row, head))}"
        failure.got += f" · m: {_cut(maxima)}"
    return "these keys" if wanted == found else "other keys"


def _tell_which_kernel(failure: Failure, case: Case, ask: Ask) -> None:
    """Run each of the two kernels with the engine's other one; one of them alone may be at fault."""
    names = ("paged_decode_segments_kernel", "reduce_segments_kernel")
    at_fault = []
    for mine, engines in zip(names, reversed(names), strict=True):
        answer = ask.student("lab10.observe:decode_split", case | {"only": mine})
        if answer.error is None and not answer.value["outside"]:
            off = (torch.tensor(answer.value["out"], dtype=torch.float64) - expected_decode(case)).abs()
            at_fault += [engines] if bool((off <= limit_of(case)).all()) else []
    if len(at_fault) == 1:
        failure.got += f" · right with the engine's {at_fault[0]} in place of yours"


def _keys_of(table: list[int], block_size: int, first: int, last: int) -> str:
    """Where the keys first..last - 1 of a row lie, as `_tell_keys` tells it."""
    places = range(first, last)
    return _tell_keys([[table[place // block_size], place % block_size, place % block_size, 0] for place in places])


def _tell_keys(runs: list[list[int]], outside: bool = False) -> str:
    """Runs [block, first offset, last offset, head] of the K cache in the order of reading: 5[0-3] 2[0-1]."""
    merged: list[list[int]] = []
    for block, first, last, _ in runs:
        if merged and merged[-1][0] == block and merged[-1][2] + 1 == first:
            merged[-1][2] = last
        else:
            merged.append([block, first, last])
    told = [f"{block}[{first}]" if first == last else f"{block}[{first}-{last}]" for block, first, last in merged]
    shown = " ".join(told[:MOST] + ["…"] * (len(told) > MOST))
    return " and ".join(part for part in (shown, "what is no key" * outside) if part) or "none"


def _maxima(made: dict[str, torch.Tensor], case: Case, row: int, head: int) -> list[float]:
    """The largest scaled score of a row's query head after each tile."""
    kv_head, length = head // (case["heads"][0] // case["heads"][1]), case["lens"][row]
    blocks = made["block_table"][row].tolist()
    places = [(blocks[place // case["block_size"]], place % case["block_size"]) for place in range(length)]
    keys = torch.stack([made["kv_cache"][block, 0, offset, kv_head] for block, offset in places]).double()
    scores = keys @ made["q"][row, head].double() * made["scale"]
    return [scores[: first + case["tile"]].max().item() for first in range(0, length, case["tile"])]


def _cut(values: list[float]) -> str:
    return tell_numbers(torch.tensor(values[:MOST])) + (" …" if len(values) > MOST else "")
