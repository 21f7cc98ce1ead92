"""What is special about labs 08 to 10: kernels are interpreted, tensors have margins, keys are what kernels do."""

import re
from pathlib import Path

import pytest
import torch

from minivllm.course.grader import seeds
from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.judge import Limits, grade
from minivllm.course.grader.observe_kernels import Margins
from minivllm.course.grader.report import format_result
from minivllm.course.grader.wrong import edited, read_wrong, solution
from minivllm.lessons.lab09 import play as play_writes
from minivllm.lessons.lab10 import check as lab10
from minivllm.lessons.lab10 import observe as observe_decode
from minivllm.lessons.lab10 import play as play_decode
from minivllm.lessons.lab10 import tell as tell_decode
from minivllm_kernels.interpreter import is_interpreting

pytestmark = pytest.mark.skipif(not is_interpreting(), reason="kernels run on a GPU in this process")
SEEDS = range(12)


def test_a_fresh_interpreter_interprets_kernels(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    lab = get_lab("09")
    path.write_text(solution(lab).replace("    slot = tl.load", '    print("here")\n    slot = tl.load', 1))
    result = grade(lab, path, tasks=["9.1"], fork=False)
    assert result.points == 20 and "here" in result.output


def test_a_line_of_a_kernel_is_shown_when_it_crashes(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    lab = get_lab("09")
    path.write_text(solution(lab).replace("mask = numbers < HD", "mask = numbers < Hd"))
    text = format_result(grade(lab, path, tasks=["9.1"], fork=True), [])
    assert "NameError" in text and "mask = numbers < Hd" in text and "reshape_and_cache_kernel" in text


def test_a_kernel_that_never_ends_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    lab = get_lab("09")
    path.write_text(
        solution(lab).replace("    if slot < 0:", "    while slot > -2:\n        slot = slot + 0\n    if slot < 0:")
    )
    result = grade(lab, path, tasks=["9.1"], limits=Limits(call_s=0.3), fork=True)
    assert result.tasks[0].status == "timeout"


def test_margins_notice_a_store_beside_a_tensor_and_leave_it_as_it_is() -> None:
    margins = Margins()
    inner = margins.put("out", torch.arange(6.0).view(2, 3))
    slots = margins.put("slots", torch.tensor([1, 2]))
    inner[1, 2], slots[0] = 9.0, 8
    assert margins.damaged() == []
    inner.as_strided((7,), (1,))[6] = 1.0
    assert margins.damaged() == ["out"] and margins.spilled() == {"out": [0, 1]}


def told_of_lab_10(task: str, wrong_id: str, tmp_path: Path) -> str:
    lab = get_lab("10")
    path = tmp_path / "starter.py"
    path.write_text(edited(lab, next(wrong for wrong in read_wrong(lab) if wrong.id == wrong_id)))
    return format_result(grade(lab, path, tasks=[task], fork=True), [])


def test_a_failure_of_a_kernel_tells_the_maxima_and_the_keys_that_were_read(tmp_path: Path) -> None:
    text = told_of_lab_10("10.2", "kernel_max_of_the_tile", tmp_path)
    assert "(8 keys, in 1[0-3] 2[0-3])" in text and "these keys were read · m: 600.7 251.2" in text
    assert "m after each tile: 600.7 600.7" in text
    text = told_of_lab_10("10.2", "kernel_k_unmasked", tmp_path)
    assert "(1 key, in 1[0])" in text and "· keys read: 1[0-" in text and "· m: -inf" in text


def test_a_failure_of_two_kernels_tells_which_one_it_is(tmp_path: Path) -> None:
    place = "right with the engine's {} in place of yours"
    assert place.format("reduce_segments_kernel") in told_of_lab_10("10.4", "reduce_natural", tmp_path)
    assert place.format("paged_decode_segments_kernel") in told_of_lab_10("10.4", "segments_before_heads", tmp_path)


def test_a_store_beside_a_tensor_is_told_in_numbers(tmp_path: Path) -> None:
    assert "written: 8 numbers behind out" in told_of_lab_10("10.2", "head_mask_missing", tmp_path)


@pytest.mark.parametrize("case", [*lab10.ONE_TOKEN, *lab10.ODD_SIZES], ids=str)
def test_expected_numbers_of_lab_10_are_those_of_the_kernel(case: dict) -> None:
    got = torch.tensor(observe_decode.decode({}, case, [])["out"])
    limit = 2e-2 if case["dtype"] == "bfloat16" else 1e-5
    torch.testing.assert_close(got.double(), tell_decode.expected_decode(case), atol=limit, rtol=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_asked_for_are_those_of_the_kernel(seed: int) -> None:
    asked = seeds.ask(get_lab("10"), seed)
    length, tile = map(int, re.search(r"for Q3: (\d+) keys, TILE (\d+)", asked.told).groups())
    blocks = 1  # one key a block, so that a place in the sequence can be read off the table
    told = play_decode.reads([length], heads=(1, 1), block_size=blocks, tile=tile, segments=4)
    table = list(map(int, re.search(r"block tables: \[([^]]*)\]", told).group(1).split()))
    found = [-1] * 8
    for segment, reads in re.findall(r"\(0, 0, (\d)\)\s+reads ([^f]*) for", told):
        places = [table.index(int(block)) for block in re.findall(r"(\d+)\[0\]", reads)]
        found[2 * int(segment) : 2 * int(segment) + 2] = [min(places), max(places)]
    assert found == asked.questions[2].key


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_asked_for_are_those_of_the_kernel(seed: int) -> None:
    asked = seeds.ask(get_lab("09"), seed)
    heads, size, tile = map(int, re.search(r"(\d+) heads of (\d+) numbers, TILE (\d+)", asked.told).groups())
    slots = [int(slot) for slot in re.search(r"slot_mapping: `\[(.*)\]`", asked.told).group(1).split(", ")]
    rows = play_writes.written_numbers(slots, heads=heads, head_size=size, tile=tile)
    assert [len(rows), sum(row["numbers"] == 0 for row in rows)] == asked.questions[2].key
