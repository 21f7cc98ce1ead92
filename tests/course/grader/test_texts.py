"""What the labs' texts say is so: symbols, tasks, points, files, hints, links."""

import re
from functools import cache
from pathlib import Path

import pytest

from minivllm.course.grader.catalog import Lab, all_labs
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.folder import read_hints
from minivllm.course.places import repo_path
from minivllm.parts import SEAMS
from minivllm.proof.refs.lock import read_lock

LABS = all_labs()
EACH_LAB = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
SYMBOL = re.compile(r"`((?:[\w./-]+)\.py)::([\w.]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([\w-]+))?\)")
FILE = re.compile(r"`([\w./-]+\.(?:py|md|toml|json|gz|ipynb))`")
IN_A_STUDENTS_FOLDER = {"answers.toml", "questions.md", "lab.json", "AGENTS.md"}
WORD = re.compile(r"[A-Za-z_]\w*")
NUM_HINTS = 3
# words that say nothing, or that make a reader feel stupid
EMPTY_WORDS = re.compile(r"\b(simply|just|obviously|of course|easy|easily|trivial)\b", re.IGNORECASE)


def texts(lab: Lab) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(lab.folder.glob("*.md"))}


@EACH_LAB
def test_a_lab_is_whole(lab: Lab) -> None:
    names = {path.name for path in lab.folder.iterdir()}
    wanted = {
        "lab.toml",
        "README.md",
        "hints.md",
        "wrong.toml",
        "questions.py",
        "fingerprints.json",
        "right",
    }
    assert names >= wanted | {f"lab{lab.number}.py", f"lab{lab.number}.ipynb"}
    assert lab.folder.name.startswith(f"{lab.number}_")
    assert 30 <= lab.minutes <= 90
    assert 2 <= len(lab.tasks) <= 4


@EACH_LAB
def test_symbols_of_vllm_are_in_the_lock(lab: Lab) -> None:
    lock = read_lock()
    named = SYMBOL.findall(texts(lab)[lab.folder / "README.md"])
    assert named
    for path, name in named:
        assert (path, name) in lock.entries, f"{path}::{name}"


@EACH_LAB
def test_the_readme_has_every_task_with_its_points(lab: Lab) -> None:
    readme = (lab.folder / "README.md").read_text()
    rows = {row[0]: int(row[1]) for row in re.findall(r"^\| (\d+\.\d) \|.*\| (\d+) \|$", readme, re.MULTILINE)}
    assert rows == {task.id: task.points for task in lab.tasks}
    assert f"minivllm lab run {lab.number}" in readme
    assert "## Further" in readme and "**Goal.**" in readme


@EACH_LAB
def test_three_hints_for_every_task(lab: Lab) -> None:
    hints = read_hints(lab)
    assert list(hints) == [task.id for task in lab.tasks]
    for task, levels in hints.items():
        assert len(levels) == NUM_HINTS and all(len(level.splitlines()) > 1 for level in levels), task


@EACH_LAB
def test_hints_do_not_hold_lines_of_the_solution(lab: Lab) -> None:
    from minivllm.course.grader.wrong import solution

    starter = {line.strip() for line in build_starter(lab).splitlines()}
    answers = {line.strip() for line in solution(lab).splitlines()} - starter
    text = (lab.folder / "hints.md").read_text()
    for line in answers:
        assert len(line) < 25 or line not in text, f"hints.md has {line!r}"


@EACH_LAB
def test_files_and_tasks_that_are_named_exist(lab: Lab) -> None:
    tasks = {task.id for task in lab.tasks}
    for path, text in texts(lab).items():
        for name in FILE.findall(text):
            places = (lab.root, lab.folder, lab.root / "minivllm", lab.root / "notebooks")
            known = any((place / name).exists() for place in places) or name in IN_A_STUDENTS_FOLDER
            of_vllm = any(one.endswith(name) for one, _ in read_lock().entries)
            assert known or of_vllm, f"{path.name}: {name}"
        for number in re.findall(rf"(?<![\d.`]){int(lab.number)}\.\d(?![\d%])", text):
            assert number in tasks, f"{path.name}: {number}"


@cache
def engine_names() -> set[str]:
    """Every function and class of the package."""
    texts = (path.read_text() for path in repo_path("minivllm").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^ *(?:def|class) (\w+)", text, re.MULTILINE)}


@EACH_LAB
def test_hints_name_what_there_is(lab: Lab) -> None:
    """Words of code in the hints are words of the engine's file or of the starter, or names of the engine."""
    files = {place.partition("::")[0] for place in lab.symbols}
    words = set(WORD.findall(build_starter(lab))) | engine_names()
    for name in files:
        words |= set(WORD.findall((lab.root / name).read_text()))
    hints = (lab.folder / "hints.md").read_text()
    unknown = {
        word
        for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", hints)
        for word in WORD.findall(code)
        if "_" in word and word not in words
    }
    assert not unknown


@EACH_LAB
def test_links_lead_somewhere(lab: Lab) -> None:
    for path, text in texts(lab).items():
        for target, anchor in LINK.findall(text):
            if not target.startswith("http"):
                assert (path.parent / target).exists(), f"{path.name}: {target}"
                assert not anchor or anchor in _anchors(path.parent / target), f"{path.name}: {target}#{anchor}"


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH_LAB
def test_prose_is_plain(lab: Lab) -> None:
    for path, text in texts(lab).items():
        assert not EMPTY_WORDS.findall(text), f"{path.name}: {EMPTY_WORDS.findall(text)}"


@EACH_LAB
def test_parts_are_seams_of_the_engine(lab: Lab) -> None:
    from minivllm.course.grader.child import engine_symbols

    assert set(lab.parts) <= set(SEAMS)
    owners = {symbol.partition(".")[0] for symbol in engine_symbols(lab)}
    assert set(lab.parts.values()) <= owners
