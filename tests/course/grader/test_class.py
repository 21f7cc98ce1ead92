"""The commands, as an instructor calls them: a class begins, is collected, and is graded again."""

import json
import re
from pathlib import Path

import pytest

from minivllm.__main__ import main, parse
from minivllm.course.grader import collect, seeds
from minivllm.course.grader.catalog import every_lab, get_lab
from minivllm.course.grader.collect import read_ids, sign
from minivllm.course.grader.result import read_result
from minivllm.course.grader.wrong import solution
from minivllm.course.places import repo_path
from minivllm.errors import InputError

LAB = get_lab("04")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def begin(*students: str) -> None:
    Path("ids.txt").write_text("# the class\n\n" + "".join(f"{student}\n" for student in students))
    assert main(["lab", "start", "04", "--seed-file", "ids.txt", "--salt", "course"]) == 0


def hand_in(**texts: str) -> None:
    for student, text in texts.items():
        Path(f"class/{student}/04/starter.py").write_text(text)


def regrade(*options: str) -> int:
    return main(["lab", "regrade", "class", "--salt", "course", *options])


def test_every_student_gets_a_folder_for_every_lab(capsys) -> None:
    Path("ids.txt").write_text("ada\n\n# gone: eve\nBob 7\n")
    assert main(["lab", "start", "--all", "--seed-file", "ids.txt", "--salt", "course"]) == 0
    numbers = {lab.number for lab in every_lab()}
    assert {path.name for path in Path("class").iterdir()} == {"ada", "Bob 7"}
    for student in ("ada", "Bob 7"):
        assert {path.name for path in Path("class", student).iterdir()} == numbers
    note = json.loads(Path("class/Bob 7/04/lab.json").read_text())
    assert int(note["seed"], 16) == seeds.seed_of(LAB, "bob7", "course")
    assert note["student"] == seeds.student_sha256("BOB7", "course")
    assert Path("class/ada/04/questions.md").read_text() != Path("class/Bob 7/04/questions.md").read_text()
    Path("class/ada/04/starter.py").write_text("mine")
    capsys.readouterr()
    assert main(["lab", "start", "--all", "--seed-file", "ids.txt", "--salt", "course"]) == 0
    assert f"class/ada: nothing new ({len(numbers)} there already)" in capsys.readouterr().out
    assert Path("class/ada/04/starter.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no ids"),
        ("# nobody\n", "has no ids"),
        ("ada\nAda \n", "'Ada' and 'ada' are the same"),
        ("../eve\n", "can't be the name of a folder"),
        ("a/b\n", "can't be the name of a folder"),
    ],
)
def test_a_file_of_ids_that_cant_be_used(text: str, said: str) -> None:
    Path("ids.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        read_ids(Path("ids.txt"))


def test_a_class_is_collected_and_regraded(capsys) -> None:
    begin("ada", "bob", "eve")
    hand_in(ada=solution(LAB), bob=solution(LAB))
    asked = seeds.ask(LAB, seeds.seed_of(LAB, "ada", "course"))
    Path("class/ada/04/answers.toml").write_text(f"Q2 = {asked.questions[1].key}\n")
    Path("class/eve/04/lab-04.json").write_text(json.dumps({"total": 100, "tasks": [], "questions": []}))
    assert regrade("--sign", "secret") == 0
    capsys.readouterr()
    assert main(["lab", "collect", "class", "--csv", "class.csv"]) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line for line in said.splitlines()[1:4]}
    assert "regraded" in rows["ada"] and " 75 " in rows["ada"] and "4.1:20 4.2:15 4.3:10 4.4:15" in rows["ada"]
    assert " 0 " in rows["eve"] and "100" not in rows["eve"], "what a student writes into the JSON does not count"
    path = Path("class/ada/04/lab-04.regraded.json")
    result = json.loads(path.read_text())
    assert result["signature"] == sign(result, "secret") != sign(result, "other")
    assert sign(result | {"total": 100}, "secret") != result["signature"]
    assert read_result(path).student == seeds.student_sha256("Ada", "course")
    assert len(Path("class.csv").read_text().splitlines()) == 4


def test_a_tampered_seed_does_not_count_when_it_is_regraded() -> None:
    begin("ada")
    note = json.loads(Path("class/ada/04/lab.json").read_text())
    Path("class/ada/04/lab.json").write_text(json.dumps(note | {"seed": "7", "tries": {"Q1": ["1"]}}))
    assert regrade() == 0
    result = read_result(Path("class/ada/04/lab-04.regraded.json"))
    assert int(result.seed, 16) == seeds.seed_of(LAB, "ada", "course")
    assert json.loads(Path("class/ada/04/lab.json").read_text())["tries"] == {"Q1": ["1"]}, "it is left as it is"


def test_one_broken_submission_does_not_end_the_work_on_the_others(capsys) -> None:
    begin("ada", "bob", "eve", "zoe")
    Path("class/ada/04/answers.toml").write_text("Q1 = [")
    Path("class/bob/04/starter.py").write_text("def broken(:")
    note = json.loads(Path("class/eve/04/lab.json").read_text())
    Path("class/eve/04/lab.json").write_text(json.dumps(note | {"revision": LAB.revision + 1}))
    capsys.readouterr()
    assert regrade() == 1
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "not graded" in told["ada"] and "answers.toml" in told["ada"]
    assert "0/100" in told["bob"] and read_result(Path("class/bob/04/lab-04.regraded.json")).exit == 2
    assert f"begun with revision {LAB.revision + 1}" in told["eve"]
    assert "0/100" in told["zoe"]


def test_files_of_submit_are_collected_under_any_name(capsys) -> None:
    assert main(["lab", "start", "04", "--seed", "ada"]) == 0
    Path("in").mkdir()
    assert main(["lab", "submit", "04", "--out", "in/ada-from-a-mail.json"]) == 1
    Path("in/poem.json").write_text("[]")
    capsys.readouterr()
    assert main(["lab", "collect", "in"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("ada-from-a-mail  04 ") and "4.1:0 4.2:0 4.3:0 4.4:0" in said[1]
    assert "student, unreadable" in said[2]


def test_strict_is_handed_to_the_grader(monkeypatch) -> None:
    begin("ada")
    graded, real = [], collect.check
    monkeypatch.setattr(collect, "check", lambda lab, *where, **how: graded.append(lab) or real(lab, *where, **how))
    assert regrade() == regrade("--strict") == 0
    assert [lab.strict for lab in graded] == [False, True]


def test_every_call_in_the_docs_can_be_read() -> None:
    texts = [repo_path(name).read_text() for name in ("docs/instructor.md", "notebooks/labs/README.md")]
    calls = [call for text in texts for call in re.findall(r"^ *(?:python -m )?minivllm (lab .*)$", text, re.MULTILINE)]
    assert len(calls) > 10
    for call in calls:
        words = re.split(r" {2,}", call)[0].split()
        assert parse(words).what == words[1], call
