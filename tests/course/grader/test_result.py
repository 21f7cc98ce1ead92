"""The result for a program: its form is written down, what is written has it, and no key is in it."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from minivllm.__main__ import main
from minivllm.course.grader import seeds
from minivllm.course.grader.build import stale_schema
from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.result import SCHEMA_FILE, read_result, to_json
from minivllm.course.grader.wrong import edited, read_wrong, solution
from minivllm.course.places import ROOT, repo_path
from minivllm.errors import InputError

LAB = get_lab("04")
FIELDS = """schema lab revision minivllm student seed started ended seconds platform files total max exit load_error
tasks questions hints borrowed grader signature"""
FAILURE_FIELDS = "case kind where step event rule input before expected says got looks_like line"


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "start", "04", "--seed", "ada"]) == 0
    return Path("my-labs/04")


def valid(path: Path) -> dict[str, Any]:
    """What a file says, after it was held against docs/lab-result.schema.json."""
    result = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(result, json.loads(repo_path(SCHEMA_FILE).read_text()))
    return result


def test_the_schema_is_what_the_structs_give(tmp_path: Path) -> None:
    assert stale_schema(ROOT) == []
    (tmp_path / "docs").mkdir()
    assert "run `minivllm lab build`" in stale_schema(tmp_path)[0]
    (tmp_path / SCHEMA_FILE).write_text("{}")
    assert "is not what the structs give" in stale_schema(tmp_path)[0]


@pytest.mark.parametrize("what", ["starter", "solution", "wrong", "crash", "broken"])
def test_what_check_and_submit_write_has_that_form(what: str, started: Path) -> None:
    text = {
        "starter": build_starter(LAB),
        "solution": solution(LAB),
        "wrong": edited(LAB, next(wrong for wrong in read_wrong(LAB) if wrong.id == "forgets_the_hash_on_free")),
        "crash": build_starter(LAB).replace("raise NotImplementedError", "raise KeyError"),
        "broken": "def broken(:",
    }[what]
    (started / "starter.py").write_text(text)
    (started / "answers.toml").write_text('Q1 = [1, "é"]\nQ2 = nan\nQ3 = 1979-05-27\n')
    status = main(["lab", "check", "04", "--json", "result.json"])
    result = valid(Path("result.json"))
    assert result["exit"] == status == {"starter": 1, "solution": 0, "wrong": 1, "crash": 1, "broken": 2}[what]
    assert sorted(result) == list(result) == sorted(FIELDS.split()), "keys sorted"
    assert [question["given"] for question in result["questions"]] == [[1, "é"], "nan", "1979-05-27"]
    assert "é" in Path("result.json").read_text(encoding="utf-8"), "UTF-8"
    failures = [check["first"] for task in result["tasks"] for check in task["checks"] if check["first"]]
    assert bool(failures) == (what in ("wrong", "crash"))
    assert all(list(failure) == sorted(FAILURE_FIELDS.split()) for failure in failures)
    assert {task["status"] for task in result["tasks"]} <= {"pass", "fail", "crash", "not_written"}
    if what in ("starter", "crash"):  # the short ones
        assert main(["lab", "submit", "04"]) == status
        submitted = valid(started / "lab-04.json")
        same = {"tasks", "questions", "student", "seed", "files", "total", "borrowed"}
        assert {key: submitted[key] for key in same} == {key: result[key] for key in same}


def test_the_key_is_not_in_it(started: Path) -> None:
    asked = seeds.ask(LAB, seeds.seed_of(LAB, "ada"))
    main(["lab", "submit", "04"])
    for name in ("lab-04.json", "lab.json", "answers.toml"):
        text = "".join((started / name).read_text(encoding="utf-8").split())
        for question in asked.questions:
            if isinstance(question.key, list):
                assert ",".join(map(str, question.key)) not in text, name


def test_lab_13_writes_it_too() -> None:
    assert main(["lab", "start", "13", "--seed", "ada"]) == 0
    assert main(["lab", "check", "13", "--task", "C", "--json", "result.json"]) == 1
    result = valid(Path("result.json"))
    assert result["lab"] == "13" and result["questions"] == [] and result["tasks"][0]["id"] == "13.C"


def test_a_result_is_read_back_and_another_json_is_not(started: Path) -> None:
    main(["lab", "submit", "04"])
    path = started / "lab-04.json"
    assert to_json(read_result(path)) == path.read_text(encoding="utf-8")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": 7}))
    with pytest.raises(InputError, match="is no result of a lab"):
        read_result(path)
