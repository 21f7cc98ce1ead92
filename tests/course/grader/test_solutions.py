"""Every lab's reference, starter, single tasks, wrong solutions and right solutions, graded."""

import json
from pathlib import Path

import pytest

from minivllm.course.grader.catalog import Lab, all_labs
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.judge import CheckResult, LabResult, TaskResult, fingerprint, grade
from minivllm.course.grader.report import exit_status, format_result
from minivllm.course.grader.right import right_solutions
from minivllm.course.grader.wrong import fingerprint_path, grade_wrong, looks_like, read_wrong, solution

LABS = all_labs()
CODE_POINTS = 60
EACH_LAB = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
MIN_WRONG = 8
MIN_RIGHT = 3


def graded(lab: Lab, text: str, tmp_path: Path, **how) -> LabResult:
    path = tmp_path / "starter.py"
    path.write_text(text)
    return grade(lab, path, fork=True, **how)


@EACH_LAB
def test_the_reference_gets_all_points(lab: Lab, tmp_path: Path) -> None:
    result = graded(lab, solution(lab), tmp_path)
    assert [(task.id, task.points) for task in result.tasks] == [(task.id, task.points) for task in lab.tasks]
    assert exit_status(result) == 0 and result.worst() is None


@EACH_LAB
def test_points_are_as_promised(lab: Lab) -> None:
    from minivllm.course.grader.judge import checks_of

    assert sum(task.points for task in lab.tasks) == CODE_POINTS
    assert {task.id: sum(check.points for check in checks_of(lab)[task.id]) for task in lab.tasks} == {
        task.id: task.points for task in lab.tasks
    }


@EACH_LAB
def test_the_untouched_starter_is_not_written_and_nothing_else(lab: Lab, tmp_path: Path) -> None:
    result = graded(lab, build_starter(lab), tmp_path)
    assert {task.status for task in result.tasks} == {"not_written"}
    assert result.points == 0 and result.worst() is None and exit_status(result) == 1
    assert "not written" in format_result(result, [])


@EACH_LAB
def test_a_task_counts_without_the_others(lab: Lab, tmp_path: Path) -> None:
    engine_tasks = [task for task in lab.tasks if f"Lab {task.id}:" in build_starter(lab)]
    for done in engine_tasks:
        result = graded(lab, solution(lab, (done.id,)), tmp_path, tasks=[task.id for task in engine_tasks])
        points = {task.id: task.points for task in result.tasks}
        assert points == {task.id: task.points if task is done else 0 for task in engine_tasks}, done.id


@EACH_LAB
def test_every_wrong_solution_is_caught_and_named(lab: Lab) -> None:
    entries = read_wrong(lab)
    assert len(entries) >= MIN_WRONG
    assert len({wrong.id for wrong in entries}) == len(entries)
    known = json.loads(fingerprint_path(lab).read_text())
    found: dict[str, dict[str, list[str]]] = {}
    for wrong, task in grade_wrong(lab):
        assert task.points < task.max, f"{wrong.id} is not caught"
        assert task.failures, wrong.id
        mark = fingerprint(task)
        if mark is not None:
            found.setdefault(wrong.task, {}).setdefault(mark, []).append(wrong.id)
        looks_like(lab, [task])
        shown = min(task.failures, key=lambda failure: failure.size)
        assert wrong.message in shown.looks_like, f"{wrong.id} looks like {shown.looks_like!r}"
        assert shown.input and shown.expected and shown.got, wrong.id
    assert found == known, f"run: minivllm lab build {lab.number}"


@EACH_LAB
def test_every_right_solution_is_accepted(lab: Lab, tmp_path: Path) -> None:
    found = right_solutions(lab)
    assert len(found) >= MIN_RIGHT
    for name, text in found.items():
        result = graded(lab, text, tmp_path)
        assert result.points == CODE_POINTS, f"{name}: {format_result(result, [])}"


# ---------------------------------------------------------------------- the tests of these tests


@EACH_LAB
def test_a_checker_that_lets_all_pass_would_be_noticed(lab: Lab, monkeypatch) -> None:
    from minivllm.course.grader import judge

    def all_pass(task, outcomes, refused):
        return TaskResult(
            task.id, task.title, task.points, task.points, "pass", [CheckResult(c, o, c.points) for c, o in outcomes]
        )

    monkeypatch.setattr(judge, "_task_result", all_pass)
    with pytest.raises(AssertionError, match="not caught"):
        test_every_wrong_solution_is_caught_and_named(lab)


def test_a_number_changed_in_a_recording_would_be_noticed(tmp_path: Path, monkeypatch) -> None:
    from minivllm.course.grader import evidence

    changed = json.loads(json.dumps(evidence.ladder()))
    changed[7]["steps"][0]["free_blocks_after_update"].reverse()
    monkeypatch.setattr(evidence, "ladder", lambda: tuple(changed))
    lab = next(lab for lab in LABS if lab.number == "04")
    result = graded(lab, solution(lab), tmp_path)
    assert result.points < CODE_POINTS
