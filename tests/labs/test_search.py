"""`check --search`: it finds what is wrong, makes it small, and finds nothing in the engine's own code."""

import os
from pathlib import Path

import pytest

from minivllm.errors import InputError
from minivllm.labs.catalog import get_lab
from minivllm.labs.child import StudentFile
from minivllm.labs.judge import Subject
from minivllm.labs.ladder import parse_rung
from minivllm.labs.report import format_search
from minivllm.labs.search import Found, search
from minivllm.labs.wrong import edited, read_wrong, solution

LAB = get_lab("06")
SECONDS = 60.0 if os.environ.get("LABS_FULL") else 10.0
NO_TIME = 2.0


def searched(text: str, tmp_path: Path, seconds: float) -> Found | int:
    path = tmp_path / "starter.py"
    path.write_text(text)
    with Subject(LAB, path, fork=True) as subject:
        assert subject.load() is None
        return search(LAB, subject, seconds)


def test_what_is_wrong_is_found_and_made_small(tmp_path: Path) -> None:
    wrong = next(wrong for wrong in read_wrong(LAB) if wrong.id == "victim_is_the_first")
    found = searched(edited(LAB, wrong), tmp_path, SECONDS)
    assert isinstance(found, Found)
    workload = parse_rung(found.line)
    assert len(workload["requests"]) == 2, "one request alone is never somebody else's victim"
    said = format_search(found)
    assert found.line in said and "expected" in said and "got" in said


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
    path.write_text(LAB.starter.read_text())
    parts = StudentFile(LAB, path).parts("*")
    with pytest.raises(NotImplementedError, match=r"Lab 6\.1"):
        parts["Scheduler"]._select_victim(None)
