"""Lab 13: every bug shows, its key is found, right mends are accepted, wrong ones and wrong diagnoses are not."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from minivllm.__main__ import main
from minivllm.course.grader.catalog import TaskText, get_lab
from minivllm.course.grader.folder import read_hints
from minivllm.course.grader.judge import Subject, TaskResult
from minivllm.errors import InputError
from minivllm.lessons.lab13 import cases, casework
from minivllm.proof.refs.lock import read_lock

LAB = get_lab("13")
MODULE = cases.read_bugs()
ALL_BUGS = [*MODULE.BUGS, MODULE.BONUS]
BY_ID = {what.id: what for what in ALL_BUGS}
SEED = 5
TASK = TaskText("13.A", "case A", 10, ())
# bug -> kind of the first wrong event, for any seed
KINDS = {
    "block_one_token_late": {"allocate_slots", "get_new_blocks"},
    "touch_without_unlink": {"touch"},
    "whole_prompt_cached": {"get_computed_blocks"},
    "stale_hash": {"get_new_blocks"},
    "outputs_lost_by_preemption": {"schedule"},
    "resumed_table_appended": {"update_states"},
    "length_is_the_chunk": {"prepare_inputs"},
    "rows_in_scheduling_order": {"update_from_output"},
    "top_p_loses_a_token": {"sampler.forward"},
    "half_characters": {"detokenize"},
    "freed_although_shared": {"free_blocks"},
    "positions_restart": {"prepare_inputs"},
    "no_chain_in_the_hash": {"get_cached_block", "get_computed_blocks", "cache_full_blocks"},
    "sample_of_a_chunk_kept": {"sample_tokens"},
    "victim_keeps_its_blocks": {"allocate_slots", "schedule"},
    "uncomputed_block_hit": {"forget_uncomputed_blocks"},
}
EACH_BUG = pytest.mark.parametrize("bug_id", list(BY_ID))


def _filled():
    spec = importlib.util.spec_from_file_location("filled_13", LAB.folder / "filled.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILLED = _filled()
_cases: dict[str, cases.Case] = {}


def case_of(bug_id: str) -> cases.Case:
    if bug_id not in _cases:
        _cases[bug_id] = cases.make_case("A", BY_ID[bug_id], SEED)
    return _cases[bug_id]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "nothing.py").write_text("")
    return tmp_path


def graded(case: cases.Case, place: Path, answers: dict, text: str) -> TaskResult:
    (place / "A.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in answers.items()))
    (place / "A.py").write_text(text)
    with Subject(LAB, place / "nothing.py", fork=True) as subject:
        return casework.grade_case(subject, case, TASK, place)


def points(result: TaskResult) -> dict[str, int]:
    return {check.check.id: check.points for check in result.checks}


def test_there_are_fifteen_bugs_and_a_bonus() -> None:
    assert len(MODULE.BUGS) == 15 and len(BY_ID) == 16 == len(KINDS)
    assert casework.stale_bugs(LAB) == []


@EACH_BUG
def test_key_and_sound_method_get_all_points(bug_id: str, place: Path) -> None:
    case = case_of(bug_id)
    answers, text = casework.answers_of(case)
    result = graded(case, place, answers, text)
    assert result.points == 10 and result.status == "pass", result.failures


@EACH_BUG
def test_the_first_wrong_event_is_where_the_bug_is_and_before_the_end(bug_id: str) -> None:
    case = case_of(bug_id)
    sound = cases.record_run({}, case.workload)
    broken = cases.record_run(cases.broken_parts(case.what.bug), case.workload, 30)
    key = cases.first_wrong(sound, broken)
    assert key.kind in KINDS[bug_id]
    assert cases.is_the_event(key.seq, broken, key)
    assert not cases.is_the_event(max(event.seq for event in broken), broken, key)
    with pytest.raises(ValueError, match="do not differ"):
        cases.first_wrong(sound, sound)


@EACH_BUG
def test_the_broken_method_itself_is_no_mend(bug_id: str, place: Path) -> None:
    bug = BY_ID[bug_id].bug
    from minivllm.lessons.lab13.members import edited_source

    result = graded(case_of(bug_id), place, {}, casework.mended_file(bug.symbol, edited_source(bug)))
    assert result.points == 0 and result.failures


@pytest.mark.parametrize("mend", FILLED.MENDS, ids=lambda mend: f"{mend.bug}: {mend.why}")
def test_mends_are_judged_by_what_they_do(mend, place: Path) -> None:
    from minivllm.lessons.lab13.members import source_of

    source = source_of(mend.symbol)
    for old, new in mend.edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    result = graded(case_of(mend.bug), place, {}, casework.mended_file(mend.symbol, source))
    assert points(result)["mended method"] == (4 if mend.right else 0)
    for failure in result.failures:
        assert failure.input and failure.expected and failure.got


@pytest.mark.parametrize("wrong", FILLED.DIAGNOSES, ids=lambda wrong: f"{wrong.bug}: {wrong.field} {wrong.answer}")
def test_a_wrong_diagnosis_costs_its_points_and_no_others(wrong, place: Path) -> None:
    case = case_of(wrong.bug)
    answers, text = casework.answers_of(case)
    answer = wrong.answer
    if answer == "symptom":
        answer = _symptom(case)
    result = graded(case, place, answers | {wrong.field: answer}, text)
    assert points(result) == casework.POINTS | {wrong.field: 0}


def _symptom(case: cases.Case) -> int:
    """The innermost event that raised, or the first update with another token than the sound engine's."""
    sound = cases.record_run({}, case.workload)
    broken = cases.record_run(cases.broken_parts(case.what.bug), case.workload, 30)
    for event in broken:
        if event.error:
            return event.seq
    mine, other = ([e for e in events if e.kind == "update_from_output"] for events in (broken, sound))
    return next(a.seq for a, b in zip(mine, other, strict=False) if a.updates != b.updates)


@pytest.mark.parametrize("answer", [{"event": "step 5"}, {"rule": "the pool"}, {"rule": "P55"}], ids=str)
def test_an_answer_that_can_be_none_is_refused_before_it_costs_points(answer: dict, place: Path) -> None:
    case = case_of("touch_without_unlink")
    answers, text = casework.answers_of(case)
    with pytest.raises(InputError, match="Write "):
        graded(case, place, answers | answer, text)


def test_a_method_is_known_by_its_name_alone(place: Path) -> None:
    case = case_of("touch_without_unlink")
    answers, text = casework.answers_of(case)
    assert graded(case, place, answers | {"cause": "touch()"}, text).points == 10


def test_a_method_without_its_class_is_told_so(place: Path) -> None:
    result = graded(case_of("touch_without_unlink"), place, {}, "def touch(self, blocks):\n    pass\n")
    assert "touch can't be placed" in result.failures[0].got


@pytest.mark.parametrize(
    "text",
    [
        "from minivllm.course.grader import given\nclass BlockPool(given.BlockPool):\n"
        "    def touch(self, blocks):\n        return given.BlockPool.touch(self, blocks)\n",
        "from minivllm.course.grader import given\nclass BlockPool(given.BlockPool):\n"
        "    def touch(self, blocks):\n        return super().touch(blocks)\n",
    ],
)
def test_the_sound_engines_own_method_is_refused(text: str, place: Path) -> None:
    result = graded(case_of("touch_without_unlink"), place, {}, text)
    assert result.points == 0 and "calls the sound engine's own touch" in result.failures[0].got


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("class BlockPool:\n    def touch(self, blocks):\n        while True:\n            pass\n", "stopped"),
        ("import os\n\nclass BlockPool:\n    os._exit(0)\n", "ended before it answered"),
        ("class BlockPool:\n    def touch(self, blocks):\n        raise KeyError(blocks)\n", "KeyError"),
    ],
)
def test_code_that_fails_gets_a_message_with_its_line(text: str, told: str, place: Path) -> None:
    from minivllm.course.grader.judge import Limits

    (place / "A.py").write_text(text)
    with Subject(LAB, place / "nothing.py", Limits(call_s=0.3), fork=True) as subject:
        result = casework.grade_case(subject, case_of("touch_without_unlink"), TASK, place)
    (failure,) = result.failures
    assert told in failure.got and "starter.py" not in failure.line + failure.got


def test_deals_differ_and_are_the_same_for_the_same_seed() -> None:
    def dealt(seed: int) -> list[str]:
        return [case.what.id for case in cases.deal(LAB, seed, ("A", "B"))]

    assert dealt(1) == dealt(1)
    assert len({tuple(dealt(seed)) for seed in range(4)}) > 2
    one, again = (cases.make_case("A", MODULE.BUGS[0], 3) for _ in range(2))
    assert one == again != cases.make_case("A", MODULE.BUGS[0], 4)
    assert len({json.dumps(workload) for workload in (one.workload, *one.unseen)}) == 3


def test_a_student_starts_checks_and_submits(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "start", "13", "--seed", "ada"]) == 0
    folder = tmp_path / "my-labs/13"
    assert main(["lab", "start", "13"]) == 4
    names = {path.name for path in (folder / "cases").iterdir()}
    letters = [*cases.LETTERS, cases.BONUS_LETTER]
    assert names == {f"{letter}.{ending}" for letter in letters for ending in ("md", "jsonl", "toml", "py")}
    capsys.readouterr()
    assert main(["lab", "check", "13", "--task", "C"]) == 1
    assert "not written" in capsys.readouterr().out
    seed = int(json.loads((folder / "lab.json").read_text())["seed"], 16)
    (case,) = cases.deal(LAB, seed, ("C",))
    answers, text = casework.answers_of(case)
    (folder / "cases/C.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in answers.items()))
    (folder / "cases/C.py").write_text(text)
    assert main(["lab", "check", "13", "--task", "C", "--json", "result.json"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["total"] == 10 and result["grader"]["intact"]
    told = (folder / "cases/C.md").read_text()
    assert case.what.complaint in told and case.what.id not in told
    assert not any(cause in told for cause in case.what.causes)
    assert main(["why", str(folder / "cases/C.jsonl"), "r0"]) == 0
    (folder / "cases/C.toml").write_text("event = \n")
    assert main(["lab", "check", "13", "--task", "C"]) == 4
    assert main(["lab", "hint", "13", "13.1"]) == 0
    assert main(["lab", "questions", "13"]) == main(["lab", "run", "13"]) == 4


# ---------------------------------------------------------------------- texts


def test_the_texts_are_whole() -> None:
    readme = (LAB.folder / "README.md").read_text()
    rows = {row[0]: int(row[1]) for row in re.findall(r"^\| (\d+\.\d) \|.*\| (\d+) \|$", readme, re.MULTILINE)}
    assert rows == {task.id: task.points for task in LAB.tasks} and sum(rows.values()) == 100
    assert sum(casework.POINTS.values()) * cases.NUM_CASES == 100
    assert {task: len(levels) for task, levels in read_hints(LAB).items()} == dict.fromkeys(rows, 3)
    lock = read_lock()
    named = re.findall(r"`((?:[\w./-]+)\.py)::([\w.]+)`", readme)
    assert named and all(name in lock.entries for name in named)
    rules = set(re.findall(r"^\| ([PSHKRF]\d) \|", readme, re.MULTILINE))
    assert {rule for what in ALL_BUGS for rule in what.rules} <= rules
    for target in re.findall(r"\]\(([^)#\s]+)", readme):
        assert (LAB.folder / target).exists(), target
    assert (LAB.folder / "lab13.py").exists() and (LAB.folder / "lab13.ipynb").exists()


def test_the_readmes_rules_are_those_of_the_invariants() -> None:
    from minivllm.course.grader.invariants import RULES

    readme = (LAB.folder / "README.md").read_text().replace("`", "")
    for rule, words in RULES.items():
        assert f"| {rule} | {words}" in readme, rule
