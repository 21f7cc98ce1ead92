"""`check --search`: it finds what is wrong, makes it small, and finds nothing in the engine's own code.

And more random cases than a check takes: they refuse nothing that is right.
"""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from minivllm.course.grader.catalog import Lab, all_labs, get_lab
from minivllm.course.grader.child import StudentFile
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.judge import Limits, Subject, grade
from minivllm.course.grader.ladder import parse_rung
from minivllm.course.grader.report import format_result, format_search
from minivllm.course.grader.right import right_solutions
from minivllm.course.grader.search import Found, save_rung, search
from minivllm.course.grader.wrong import edited, read_wrong, solution
from minivllm.errors import InputError

LAB = get_lab("06")
SECONDS = 60.0 if os.environ.get("LABS_FULL") else 10.0
NO_TIME = 1.0
TIMES = 10 if os.environ.get("LABS_FULL") else 2  # as many random cases


def searched(text: str, tmp_path: Path, seconds: float) -> Found | int:
    path = tmp_path / "starter.py"
    path.write_text(text)
    with Subject(LAB, path, fork=True) as subject:
        assert subject.load() is None
        return search(LAB, subject, seconds)


def test_what_is_wrong_is_found_and_made_small(tmp_path: Path, monkeypatch) -> None:
    wrong = next(wrong for wrong in read_wrong(LAB) if wrong.id == "victim_is_the_first")
    found = searched(edited(LAB, wrong), tmp_path, SECONDS)
    assert isinstance(found, Found)
    workload = parse_rung(found.line)
    assert len(workload["requests"]) == 2, "one request alone is never somebody else's victim"
    monkeypatch.chdir(tmp_path)
    path = save_rung(LAB, found)
    said = format_search(found, path)
    assert found.line in said and "expected" in said and "got" in said and str(path) in said
    assert path.read_text() == f"{found.line}\n"


def test_the_engines_own_lines_never_differ(tmp_path: Path) -> None:
    tried = searched(solution(LAB), tmp_path, NO_TIME)
    assert isinstance(tried, int) and tried > 0
    assert "no difference" in format_search(tried)


def test_a_lab_that_drives_no_scheduler(tmp_path: Path) -> None:
    lab = get_lab("07")
    with pytest.raises(InputError, match="drives a scheduler"):
        search(lab, None, NO_TIME)


def test_all_of_a_file_can_be_graded_at_once(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text(build_starter(LAB))
    parts = StudentFile(LAB, path).parts("*")
    with pytest.raises(NotImplementedError, match=r"Lab 6\.1"):
        parts["scheduler"]._select_victim(None)


# ---------------------------------------------------------------------- more random cases


def checks_of(lab: Lab) -> ModuleType:
    return importlib.import_module(f"minivllm.lessons.lab{lab.number}.check")


WITH_RANDOM_CASES = [lab for lab in all_labs() if hasattr(checks_of(lab), "NUM_RANDOM")]


@pytest.fixture
def more_cases(request, monkeypatch) -> Iterator[Lab]:
    """A lab whose checks draw more cases; what they remember of them is forgotten before and after."""
    lab: Lab = request.param
    module = checks_of(lab)
    remembering = [found for found in vars(module).values() if hasattr(found, "cache_clear")]
    with monkeypatch.context() as patched:
        patched.setattr(module, "NUM_RANDOM", TIMES * module.NUM_RANDOM)
        for function in remembering:
            function.cache_clear()
        yield lab
    for function in remembering:
        function.cache_clear()


@pytest.mark.parametrize("more_cases", WITH_RANDOM_CASES, ids=lambda lab: lab.number, indirect=True)
def test_more_random_cases_refuse_nothing_that_is_right(more_cases: Lab, tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    limits = Limits(call_s=more_cases.call_s * TIMES, task_s=60.0 * TIMES)
    right = dict(list(right_solutions(more_cases).items())[: TIMES // 5])
    for name, text in {"the engine's": solution(more_cases), **right}.items():
        path.write_text(text)
        result = grade(more_cases, path, limits=limits, fork=True)
        assert result.points == result.max, f"{name}: {format_result(result, [])}"
