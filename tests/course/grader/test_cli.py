"""The commands, as a student calls them; test_class.py has those of an instructor."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.__main__ import main
from minivllm.course.grader import work
from minivllm.course.grader.catalog import all_labs, get_lab, read_lab
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.folder import start
from minivllm.course.grader.wrong import edited, read_wrong, solution

LAB = get_lab("04")
WRONG = next(wrong for wrong in read_wrong(LAB) if wrong.id == "forgets_the_hash_on_free")


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
    begun = {"starter.py", "README.md", "questions.md", "answers.toml", "lab.json", "lab04.ipynb"}
    assert names == begun | {"AGENTS.md"}
    assert (started / "starter.py").read_text() == build_starter(LAB)
    assert main(["lab", "start", "4"]) == 4
    assert "is there already" in capsys.readouterr().err


def test_the_notice_for_programs_names_what_they_must_not_write(started: Path) -> None:
    notice = (started / "AGENTS.md").read_text()
    for task in LAB.tasks:
        assert all(f"`{symbol}`" in notice for symbol in task.symbols)
    assert "answers.toml" in notice and "Explain" in notice and "Do not write the bodies" in notice


def test_all_labs_can_be_started_at_once(monkeypatch, capsys) -> None:
    some = [get_lab(number) for number in ("02", "04", "07")]
    monkeypatch.setattr("minivllm.course.grader.catalog.every_lab", lambda root=None: some)
    assert main(["lab", "start", "04", "mine/04", "--seed", "ada"]) == 0
    assert main(["lab", "start", "--all", "mine", "--seed", "ada"]) == 0
    assert "There already, and kept: 04" in capsys.readouterr().out
    assert {path.name for path in Path("mine").iterdir()} == {"02", "04", "07"}


def test_check_of_an_untouched_starter(started: Path, capsys) -> None:
    assert main(["lab", "check", "04"]) == 1
    said = capsys.readouterr().out
    assert said.count("not written") == 4 and "Next: write 4.1" in said
    seed = json.loads((started / "lab.json").read_text())["seed"]
    assert f"seed {seed[:4]} · starter.py {len(build_starter(LAB).splitlines())} lines" in said
    assert "Traceback" not in said


def test_check_of_a_wrong_solution_shows_one_failure_in_full(started: Path, capsys) -> None:
    (started / "starter.py").write_text(edited(LAB, WRONG))
    assert main(["lab", "check", "04", "--json", "result.json"]) == 1
    said = capsys.readouterr().out
    for label in ("input", "where", "before", "expected", "got", "looks like", "trace", "next"):
        assert f"\n      {label:<11}" in said, label
    assert "recorded from vLLM 0.22.0" in said and WRONG.message in said
    result = json.loads(Path("result.json").read_text())
    assert result["exit"] == 1 and result["grader"]["intact"] and result["student"]
    first = next(check for task in result["tasks"] for check in task["checks"] if check["first"])["first"]
    assert first["looks_like"] == WRONG.message and first["case"] == "ladder L24"
    assert f"step {first['step']}, event {first['event']} (B10 schedule)" in said
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
    Path("mine/starter.py").write_text(edited(LAB, WRONG))
    capsys.readouterr()
    assert main(["lab", "check", "04", "mine", "--task", "4.2"]) == 1
    assert "--dir mine" in capsys.readouterr().out
    Path("mine/starter.py").write_text(solution(LAB))
    assert main(["lab", "check", "04", "mine"]) == 0
    assert "Next: minivllm lab run 04 mine" in capsys.readouterr().out
    assert main(["lab", "check", "04", "mine", "--task", "4.3"]) == 0
    assert "Next: the other tasks" in capsys.readouterr().out


def test_questions_are_printed_again(started: Path, capsys) -> None:
    assert main(["lab", "questions", "04"]) == 0
    assert capsys.readouterr().out.strip() == (started / "questions.md").read_text().strip()


def answer(folder: Path, **answers: object) -> None:
    (folder / "answers.toml").write_text("".join(f"{name} = {json.dumps(one)}\n" for name, one in answers.items()))


def test_wrong_answers_are_counted_and_the_third_one_shows_the_event(started: Path, capsys) -> None:
    (started / "starter.py").write_text(solution(LAB))
    for tries, blocks in enumerate(([1, 1, 1, 1, 1], [2, 2, 2, 2, 2], [3, 3, 3, 3, 3]), start=1):
        answer(started, Q1=blocks)
        assert main(["lab", "check", "04", "--task", "4.3", "--json", "result.json"]) == 0
        said = capsys.readouterr().out
        assert ("Q1, after 3 wrong answers: step" in said) is (tries == 3)
        question = json.loads(Path("result.json").read_text())["questions"][0]
        assert (question["status"], question["tries"], question["given"]) == ("not_right", tries, blocks)
    answer(started, Q1=[1, 2])
    main(["lab", "check", "04", "--task", "4.3"])
    assert "Q1: a list of 5 numbers is asked for" in capsys.readouterr().out
    assert json.loads((started / "lab.json").read_text())["tries"] == {"Q1": ["1 1 1 1 1", "2 2 2 2 2", "3 3 3 3 3"]}


@pytest.mark.parametrize(
    "call",
    [
        [],
        ["bogus"],
        ["check"],
        ["check", "04", "--search", "long"],
        ["start"],
        ["start", "--all", "04", "mine"],
        ["hint", "04", "4.1", "seven"],
    ],
)
def test_a_call_that_cant_be_read_is_status_4(call: list[str], capsys) -> None:
    try:
        status = main(["lab", *call])
    except SystemExit as end:
        status = end.code
    assert status == 4
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["check", "99"], "There is no lab 99. The labs are: 01, "),
        (["check", "abc"], "There is no lab abc"),
        (["check", "05"], "Begin with: minivllm lab start 05\n"),
        (["check", "04", "nowhere"], "Begin with: minivllm lab start 04 nowhere"),
        (["check", "04", "--task", "1.1"], "Its tasks are: 4.1, 4.2"),
        (["check", "05", "my-labs/04"], "holds lab 04, not lab 05"),
        (["hint", "04", "4.1", "7"], "has hints 1 to 3"),
        (["check", "04", "--task", "4.3", "--json", "no/such/folder.json"], "no/such/folder.json"),
        (["start", "--all", "--seed-file", "nobody.txt"], "One id a line is expected"),
        (["collect", "nowhere"], "holds no submission"),
        (["regrade", "nowhere"], "holds no submission"),
    ],
)
def test_a_mistake_in_the_call_is_one_line_and_status_4(call: list[str], said: str, started: Path, capsys) -> None:
    assert main(["lab", *call]) == 4
    told = capsys.readouterr().err
    assert len(told.strip().splitlines()) == 1 and said in told


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("answers.toml", "Q1 = [1, 2\n", "An answer looks like Q1 = [1, 2] or Q2 = 7."),
        ("answers.toml", b"Q1 = '\xff'", "An answer looks like"),
        ("lab.json", "{}", "Start the lab again in another folder."),
        ("lab.json", '{"lab": "04", "revision": 1, "seed": "no number"}', "Start the lab again"),
        ("lab.json", "nothing", "Start the lab again"),
    ],
)
def test_a_file_of_the_folder_that_cant_be_read(name: str, content, said: str, started: Path, capsys) -> None:
    (started / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["lab", "check", "04"]) == 4
    told = capsys.readouterr().err
    assert len(told.strip().splitlines()) == 1 and said in told and name in told


def test_a_starter_of_another_name_is_found(started: Path, capsys) -> None:
    (started / "starter.py").rename(started / "mine.py")
    assert main(["lab", "check", "04"]) == 4
    assert "starter.py is not there, but mine.py" in capsys.readouterr().err
    assert main(["lab", "check", "04", str(started / "mine.py"), "--task", "4.3"]) == 1


def test_a_folder_of_another_revision_is_told_so(started: Path, capsys) -> None:
    note = json.loads((started / "lab.json").read_text())
    (started / "lab.json").write_text(json.dumps(note | {"revision": LAB.revision + 1}))
    assert main(["lab", "check", "04", "--task", "4.3"]) == 1
    said = capsys.readouterr().out
    assert f"made with revision {LAB.revision + 1} of the lab, and this is revision {LAB.revision}" in said


def test_hints_without_a_task_are_a_list(started: Path, capsys) -> None:
    main(["lab", "hint", "04", "4.2"])
    capsys.readouterr()
    assert main(["lab", "hint", "04"]) == 0
    said = capsys.readouterr().out
    assert "4.1" in said and "0 of 3 hints taken" in said and "1 of 3 hints taken" in said


def test_a_search_is_for_code_that_passes_all_else(started: Path, capsys) -> None:
    assert main(["lab", "check", "04", "--task", "4.3", "--search", "9"]) == 1
    assert "search: for code that passes all of this" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"def broken(:\n", b"x = '\xff'\n", b"x = 1\0\n", b""])
def test_a_file_that_cant_be_loaded_is_status_2(content: bytes, started: Path, capsys) -> None:
    (started / "starter.py").write_bytes(content)
    assert main(["lab", "check", "04", "--json", "result.json"]) == 2
    assert "can't be loaded" in capsys.readouterr().out
    assert json.loads(Path("result.json").read_text())["exit"] == 2


def test_code_that_changes_the_graders_files_voids_the_result(tmp_path: Path, monkeypatch, capsys) -> None:
    """In a copy of the repository, of which the lab's own folder is enough."""
    folder = tmp_path / "repository/notebooks/labs" / LAB.folder.name
    shutil.copytree(LAB.folder, folder)
    for place in LAB.symbols:
        path = Path(place.partition("::")[0])
        (tmp_path / "repository" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(LAB.root / path, tmp_path / "repository" / path)
    copy = read_lab(folder / "lab.toml")
    monkeypatch.setattr("minivllm.course.grader.catalog.get_lab", lambda number: copy)
    assert main(["lab", "start", "04"]) == 0
    change = f"open({str(folder / 'wrong.toml')!r}, 'a').write('# gone\\n')\n"
    Path("my-labs/04/starter.py").write_text(solution(LAB) + change)
    assert main(["lab", "check", "04", "--task", "4.3", "--json", "result.json"]) == 3
    assert "this result is void" in capsys.readouterr().out
    result = json.loads(Path("result.json").read_text())
    assert result["exit"] == 3 and result["grader"]["intact"] is False
    assert main(["lab", "submit", "04"]) == 3


def test_the_manifest_covers_package_evidence_and_lab(tmp_path: Path, monkeypatch) -> None:
    seen = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: seen.append(path) or real(path))
    work.manifest(LAB)
    names = {path.relative_to(LAB.root).as_posix() for path in seen}
    assert {"minivllm/course/grader/judge.py", "minivllm/core/block_pool.py", "traces/labs/ladder.json.gz"} <= names
    assert any(name.startswith("notebooks/labs/04") for name in names)


NEED_NO_TORCH = ["01", "02", "03", "04", "05", "06", "12"]
WITHOUT_TORCH = f"""
import sys
sys.modules["torch"] = None
import tempfile
from pathlib import Path
from minivllm.course.grader import judge, seeds
from minivllm.course.grader.catalog import all_labs
from minivllm.course.grader.cut import build_starter
for lab in all_labs():
    if lab.number in {NEED_NO_TORCH}:
        seeds.ask(lab, 3)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "starter.py"
            path.write_text(build_starter(lab))
            result = judge.grade(lab, path, fork=True)
        print(lab.number, *sorted(set(task.status for task in result.tasks)))
"""


def test_labs_that_compute_nothing_need_no_torch() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=120)
    assert said.stdout.splitlines() == [f"{number} not_written" for number in NEED_NO_TORCH], said.stderr


def test_links_of_the_copied_readme_lead_somewhere(tmp_path: Path) -> None:
    for lab in all_labs():
        folder = start(lab, tmp_path / lab.number, "ada")
        links = re.findall(r"\]\(<?([^)#>]+)[^)]*\)", (folder / "README.md").read_text())
        assert links, lab.number
        assert all(link.startswith("http") or (folder / link).exists() for link in links), links
