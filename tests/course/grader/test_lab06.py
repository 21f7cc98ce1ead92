"""What is special about labs 05 and 06: a text that does not depend on the pool, and a stretch that counts nothing."""

from pathlib import Path

import pytest

from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.judge import Ask, LabResult, Subject, grade
from minivllm.course.grader.report import exit_status, format_result
from minivllm.course.grader.wrong import edited, read_wrong, solution
from minivllm.lessons.lab06.check import check_tokens

POINTS = 60
MENDED = "        self._forget_uncomputed_blocks(victim)\n"
AS_VLLM = "\n    def forget_uncomputed_blocks(self, request):\n        return []\n"
FIRST_BROKEN = {"bug-651": 6, "bug-1840": 7, "bug-5385": 13, "bug-12521": 11}  # K2 on vLLM 0.22.0 itself
CHANGES_THE_TEXT = ("outputs_dropped", "status_set_to_waiting")
CHANGES_DECISIONS_ALONE = ("victim_is_the_first", "preempted_to_the_back", "frees_in_table_order")


def graded(tmp_path: Path, number: str, text: str) -> LabResult:
    path = tmp_path / "starter.py"
    path.write_text(text)
    return grade(get_lab(number), path, fork=True)


@pytest.mark.parametrize("wrong_id", CHANGES_THE_TEXT + CHANGES_DECISIONS_ALONE)
def test_the_text_of_an_ample_pool_notices_what_is_read_and_not_what_is_decided(tmp_path: Path, wrong_id: str) -> None:
    lab, path = get_lab("06"), tmp_path / "starter.py"
    path.write_text(edited(lab, next(wrong for wrong in read_wrong(lab) if wrong.id == wrong_id)))
    with Subject(lab, path, fork=True) as subject:
        assert subject.load() is None
        outcome = check_tokens(Ask(subject, lab, "6.4"))
    assert bool(outcome.failures) == (wrong_id in CHANGES_THE_TEXT)
    assert all("output token" in failure.where for failure in outcome.failures)


def test_the_solution_of_lab_06_keeps_k2_where_vllm_breaks_it(tmp_path: Path) -> None:
    result = graded(tmp_path, "06", solution(get_lab("06")))
    (stretch,) = result.stretch
    assert stretch.outcome.passed == stretch.outcome.cases == len(FIRST_BROKEN)
    assert "known-bug 4/4" in format_result(result, [])


@pytest.mark.parametrize(
    ("number", "text"),
    [("06", solution(get_lab("06")).replace(MENDED, "")), ("05", solution(get_lab("05")) + AS_VLLM)],
)
def test_what_does_as_vllm_gets_all_points_and_is_told_of_k2(tmp_path: Path, number: str, text: str) -> None:
    assert text != solution(get_lab(number))
    result = graded(tmp_path, number, text)
    assert result.points == POINTS and exit_status(result) == 0 and result.worst() is None
    (stretch,) = result.stretch
    found = {f.case.removeprefix("workload "): (f.rule, f.step) for f in stretch.outcome.failures}
    assert found == {name: ("K2", step) for name, step in FIRST_BROKEN.items()}
    told = format_result(result, [])
    assert "known-bug 0/4" in told and "bug-651, step 6: breaks K2" in told


def test_the_stretch_waits_until_all_points_are_there(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text(solution(get_lab("06")))
    assert grade(get_lab("06"), path, ["6.1"], fork=True).stretch == []
