"""The commands, as a student and as an instructor call them."""

import json
import re
from pathlib import Path

import pytest

from minivllm.__main__ import main
from minivllm.labs import work
from minivllm.labs.catalog import FOLDER, all_labs, find_root, get_lab
from minivllm.labs.collect import sign
from minivllm.labs.wrong import edited, read_wrong, solution

LAB = get_lab("04")


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def started(capsys) -> Path:
    assert main(["lab", "start", "4", "--seed", "ada"]) == 0
    capsys.readouterr()
    return Path("my-labs/04")


def test_list_says_what_there_is(capsys) -> None:
    assert main(["lab", "list"]) == 0
    said = capsys.readouterr().out
    assert "04  Block pool and free queue" in said and "60 min" in said


def test_start_makes_a_folder_and_never_writes_over_one(started: Path, capsys) -> None:
    names = {path.name for path in started.iterdir()}
    assert names == {"starter.py", "README.md", "questions.md", "answers.toml", "lab.json", "lab04.ipynb"}
    assert (started / "starter.py").read_text() == LAB.starter.read_text()
    assert main(["lab", "start", "4"]) == 4
    assert "is there already" in capsys.readouterr().err


def test_check_of_an_untouched_starter(started: Path, capsys) -> None:
    assert main(["lab", "check", "04"]) == 1
    said = capsys.readouterr().out
    assert said.count("not written") == 4 and "Next: write 4.1" in said
    assert "Traceback" not in said


def test_check_of_a_wrong_solution_shows_one_failure_in_full(started: Path, capsys) -> None:
    wrong = next(wrong for wrong in read_wrong(LAB) if wrong.id == "forgets_the_hash_on_free")
    (started / "starter.py").write_text(edited(LAB, wrong))
    assert main(["lab", "check", "04", "--json", "result.json"]) == 1
    said = capsys.readouterr().out
    for label in ("input", "where", "before", "expected", "got", "looks like", "trace", "next"):
        assert f"\n      {label:<11}" in said, label
    assert "recorded from vLLM 0.22.0" in said and wrong.message in said
    result = json.loads(Path("result.json").read_text())
    assert result["exit"] == 1 and result["grader"]["intact"] and result["student"]
    first = next(check for task in result["tasks"] for check in task["checks"] if check["first"])["first"]
    assert first["looks_like"] == wrong.message and first["case"] == "ladder L24"
    trace = Path("labs-out/04/fail.jsonl")
    assert trace.exists() and str(trace) in said
    assert main(["why", str(trace), "r1", "--step", "2"]) == 0


def test_all_points_and_submit(started: Path, capsys) -> None:
    (started / "starter.py").write_text(solution(LAB))
    assert main(["lab", "check", "4", "--task", "4.3"]) == 0, "all of what was asked for"
    assert main(["lab", "submit", "04"]) == 0
    assert "60/100" in capsys.readouterr().out
    result = json.loads((started / "lab-04.json").read_text())
    assert [task["points"] for task in result["tasks"]] == [20, 15, 10, 15]
    assert result["files"][0]["sha256"] and result["seed"] == json.loads((started / "lab.json").read_text())["seed"]


def test_hints_come_one_after_the_other_and_are_noted(started: Path, capsys) -> None:
    for level in (1, 2, 3, 3):
        assert main(["lab", "hint", "04", "4.1"]) == 0
        assert f"hint {level} of 3" in capsys.readouterr().out
    assert json.loads((started / "lab.json").read_text())["hints"] == [["4.1", 1], ["4.1", 2], ["4.1", 3]]
    assert main(["lab", "hint", "04", "4.9"]) == 4


def test_hints_without_a_folder_say_so(started: Path, capsys) -> None:
    assert main(["lab", "hint", "04", "4.1", "--dir", "elsewhere"]) == 0
    said = capsys.readouterr().out
    assert "hint 1 of 3" in said and "elsewhere/lab.json is not there" in said and "--dir FOLDER" in said


def test_the_commands_that_are_named_know_a_folder_of_another_name(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "start", "04", "mine"]) == 0
    assert '"starter.py"' in json.dumps(json.loads((tmp_path / "mine/lab04.ipynb").read_text())).replace('\\"', '"')
    wrong = next(wrong for wrong in read_wrong(LAB) if wrong.id == "forgets_the_hash_on_free")
    Path("mine/starter.py").write_text(edited(LAB, wrong))
    capsys.readouterr()
    assert main(["lab", "check", "04", "mine"]) == 1
    assert "--dir mine" in capsys.readouterr().out
    Path("mine/starter.py").write_text(solution(LAB))
    assert main(["lab", "check", "04", "mine"]) == 0
    assert "Next: minivllm lab run 04 mine" in capsys.readouterr().out
    assert main(["lab", "check", "04", "mine", "--task", "4.3"]) == 0
    assert "Next: the other tasks" in capsys.readouterr().out


def test_questions_are_printed_again(started: Path, capsys) -> None:
    assert main(["lab", "questions", "04"]) == 0
    assert capsys.readouterr().out.strip() == (started / "questions.md").read_text().strip()


@pytest.mark.parametrize("call", [["check", "99"], ["check", "04", "nowhere"], ["check", "04", "--task", "1.1"]])
def test_a_mistake_in_the_call_is_one_line_and_status_4(call: list[str], capsys) -> None:
    assert main(["lab", *call]) == 4
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_file_that_cant_be_loaded_is_status_2(started: Path, capsys) -> None:
    (started / "starter.py").write_text("def broken(:\n")
    assert main(["lab", "check", "04"]) == 2
    assert "can't be loaded" in capsys.readouterr().out


def test_a_changed_grader_voids_the_result(started: Path, capsys, monkeypatch) -> None:
    answers = iter(["before", "after"])
    monkeypatch.setattr(work, "manifest", lambda lab: next(answers))
    (started / "starter.py").write_text(solution(LAB))
    assert main(["lab", "check", "04", "--task", "4.3"]) == 3
    assert "this result is void" in capsys.readouterr().out


def test_the_manifest_covers_package_evidence_and_lab(tmp_path: Path, monkeypatch) -> None:
    seen = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: seen.append(path) or real(path))
    work.manifest(LAB)
    names = {path.relative_to(LAB.root).as_posix() for path in seen}
    assert {"minivllm/labs/judge.py", "minivllm/core/block_pool.py", "traces/labs/ladder.json.gz"} <= names
    assert any(name.startswith("notebooks/labs/04") for name in names)


def test_a_class_is_collected_and_regraded(tmp_path: Path, capsys) -> None:
    for student, text in {"ada": solution(LAB), "bob": solution(LAB), "eve": LAB.starter.read_text()}.items():
        assert main(["lab", "start", "04", f"class/{student}/04", "--seed", student]) == 0
        Path(f"class/{student}/04/starter.py").write_text(text)
    Path("class/eve/04/lab-04.json").write_text(json.dumps({"total": 100, "tasks": [], "questions": []}))
    assert main(["lab", "regrade", "class", "--sign", "secret"]) == 0
    capsys.readouterr()
    assert main(["lab", "collect", "class", "--csv", "class.csv"]) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in said.splitlines()[1:4]}
    assert rows["ada"][2] == "60" and rows["eve"][2] == "0", "what a student writes into the JSON does not count"
    assert "ada and bob" in said
    result = json.loads(Path("class/ada/04/lab-04.regraded.json").read_text())
    assert result["signature"] == sign(result, "secret") != sign(result, "other")
    assert len(Path("class.csv").read_text().splitlines()) == 4


def test_without_the_repository_there_is_one_clear_line(monkeypatch, capsys) -> None:
    from minivllm.labs import catalog

    monkeypatch.setattr(catalog, "__file__", "/nowhere/minivllm/labs/catalog.py")
    assert main(["lab", "list"]) == 4
    assert "lie in the repository" in capsys.readouterr().err
    monkeypatch.undo()
    assert (find_root() / FOLDER).is_dir()


def test_links_of_the_copied_readme_lead_somewhere(tmp_path: Path) -> None:
    for lab in all_labs():
        folder = work.start(lab, tmp_path / lab.number, "ada")
        links = re.findall(r"\]\(<?([^)#>]+)[^)]*\)", (folder / "README.md").read_text())
        assert links, lab.number
        assert all(link.startswith("http") or (folder / link).exists() for link in links), links
