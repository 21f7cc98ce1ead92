"""A folder of cases: what `start` puts there, how the diagnoses and the mended methods are graded.

Owns: the files of the folder, cases/A.md, A.jsonl, A.toml, A.py for each; the points of a case.
Interface: start, check, POINTS, answers_of.
Must not know: which bugs there are, or how a run is made (cases.py).
"""

import ast
import importlib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from minivllm import __version__
from minivllm.course.grader import evidence
from minivllm.course.grader.catalog import Lab, TaskText
from minivllm.course.grader.judge import (
    Check,
    CheckResult,
    Failure,
    LabResult,
    Limits,
    Observation,
    Outcome,
    Subject,
    TaskResult,
    points_of,
)
from minivllm.course.grader.words import tell_workload
from minivllm.errors import InputError
from minivllm.lessons.lab13 import cases
from minivllm.lessons.lab13.cases import Case
from minivllm.lessons.lab13.members import HOMES, edited_source, is_written, source_of
from minivllm.lessons.lab13.tell import tell_case, tell_difference
from minivllm.proof.lockstep.recording import Workload

FOLDER = "cases"
POINTS = {"event": 2, "rule": 2, "cause": 2, "mended method": 4}
DIAGNOSIS = ("event", "rule", "cause")
RULE = re.compile(r"[PSKHRF]\d")
HINTS = {"event": "13.1", "rule": "13.2", "cause": "13.3", "mended method": "13.4"}
ANSWERS = """\
# Case {letter}. The words are explained in README.md.
event = ""  # seq of the first wrong event in {letter}.jsonl
rule = ""   # the rule that it breaks
cause = ""  # the method or function of the engine that is at fault
why = ""    # one sentence, to be talked about
"""
MENDED = '''\
"""Case {letter}: the method that you mend, in the class that it is of (or the function, at the margin).

Only methods that stand here are taken; everything else is the broken engine's. For instance:

    class BlockPool(given.BlockPool):
        def get_usage(self) -> float:
            return 1.0 - self.get_num_free_blocks() / (self.num_gpu_blocks - 1)

A method that you copy keeps its decorator or leaves it out; its annotations need no imports, the names in its body do.
"""

from __future__ import annotations

from minivllm.boundary import boundary  # noqa: F401
from minivllm.course.grader import given  # noqa: F401
'''


# ---------------------------------------------------------------------- start


def start(lab: Lab, folder: Path, seed: int) -> None:
    """Write the cases of a seed into a folder."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    for case in cases.deal(lab, seed):
        sound, broken, events = _runs(case)
        path = place / case.letter
        _save_trace(case, events, path.with_suffix(".jsonl"))
        path.with_suffix(".md").write_text(tell_case(case, sound, broken, str(place)), encoding="utf-8")
        path.with_suffix(".toml").write_text(ANSWERS.format(letter=case.letter), encoding="utf-8")
        path.with_suffix(".py").write_text(MENDED.format(letter=case.letter), encoding="utf-8")


def _runs(case: Case) -> tuple[cases.Run, cases.Run, list[Any]]:
    """The sound run, the broken run, and the events of the broken one."""
    parts = cases.broken_parts(case.what.bug)
    sound = cases.run({}, case.workload)
    num_steps = len(sound["steps"])
    return sound, cases.run(parts, case.workload, num_steps), cases.record_run(parts, case.workload, num_steps)


def _save_trace(case: Case, events: list[Any], path: Path) -> None:
    from minivllm.trace.replay import Trace
    from minivllm.trace.schema import Process, new_header

    config = dict(case.workload["config"])
    process = Process("core", complete=True)
    header = new_header("logical", 0, process, __version__, config=config, num_gpu_blocks=config["num_blocks"])
    Trace(header, sorted(events, key=lambda event: event.seq)).save(path)


# ---------------------------------------------------------------------- check


def check(
    lab: Lab,
    folder: Path,
    seed: int,
    letters: Sequence[str] | None = None,
    limits: Limits | None = None,
    fork: bool = False,
) -> LabResult:
    """Grade the diagnoses and the mended methods of a folder. letters: only these cases."""
    dealt = cases.deal(lab, seed, None if letters is None else tuple(letters))
    tasks = tuple(TaskText(f"13.{case.letter}", f"case {case.letter}", sum(POINTS.values()), ()) for case in dealt)
    result = LabResult(replace(lab, tasks=(*tasks, *lab.tasks)))
    with Subject(lab, _empty_file(folder), limits, fork) as subject:
        for case, task in zip(dealt, tasks, strict=True):
            result.tasks.append(grade_case(subject, case, task, folder / FOLDER))
        result.output = subject.output()
    return result


def _empty_file(folder: Path) -> Path:
    """The child begins with a file that has nothing in it; each case's own is sent to it."""
    path = folder / FOLDER / ".nothing.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")
    return path


def grade_case(subject: Subject, case: Case, task: TaskText, place: Path) -> TaskResult:
    """One case: the diagnosis by the key, the mended method by its runs."""
    answers = read_answers(place / f"{case.letter}.toml")
    right = right_answers(case, answers) if any(answers[name] for name in DIAGNOSIS) else {}
    results = []
    for name in DIAGNOSIS:
        outcome = Outcome(cases=1, passed=int(right.get(name, False)))
        if not answers[name]:
            outcome.not_written = f"no {name}"
        results.append((Check(name, name, POINTS[name], _never), outcome))
    path = place / f"{case.letter}.py"
    outcome = judge_mended(subject, case, path.read_text(encoding="utf-8") if path.exists() else "")
    results.append((Check("mended method", "mended method", POINTS["mended method"], _never), outcome))
    checks = [CheckResult(check, outcome, points_of(check, outcome)) for check, outcome in results]
    points = sum(one.points for one in checks)
    status = "pass" if points == task.points else "fail"
    if all(outcome.not_written for _, outcome in results):
        status = "not_written"
    return TaskResult(task.id, task.title, points, task.points, status, checks)


def _never(ask: Any) -> Outcome:
    raise RuntimeError("a case is graded as a whole")


def read_answers(path: Path) -> dict[str, str]:
    """The diagnosis in a case's toml; empty where there is none.

    Raises InputError for a file that is no TOML, an event that is no number, and a rule that there is none of.
    """
    found: dict[str, Any] = {}
    if path.exists():
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f'{path} can\'t be read: {error}. It looks like: event = 17, rule = "P5".') from error
    answers = {name: str(found.get(name, "")).strip() for name in DIAGNOSIS}
    if answers["event"] and not answers["event"].isdecimal():
        raise InputError(f"{path}: event is {answers['event']!r}. Write the seq of one event, a number: event = 17.")
    if answers["rule"] and not RULE.fullmatch(answers["rule"].upper()):
        raise InputError(f'{path}: rule is {answers["rule"]!r}. Write one rule of the table in README.md: rule = "P5".')
    return answers


def right_answers(case: Case, answers: dict[str, str]) -> dict[str, bool]:
    """Which of event, rule and cause are right."""
    parts = cases.broken_parts(case.what.bug)
    num_steps = len(cases.run({}, case.workload)["steps"])
    events = cases.record_run(parts, case.workload, num_steps)
    key = cases.first_wrong(cases.record_run({}, case.workload), events)
    cause = answers["cause"].rpartition("::")[2].removesuffix("()").casefold()
    causes = {name.casefold() for name in case.what.causes}
    return {
        "event": cases.is_the_event(answers["event"], events, key),
        "rule": answers["rule"].upper() in case.what.rules,
        "cause": cause in causes | {name.rpartition(".")[2] for name in causes},
    }


# ---------------------------------------------------------------------- the mended method


def judge_mended(subject: Subject, case: Case, text: str) -> Outcome:
    """Whether the engine with the mended method does what the sound one does: on the case and on two more workloads."""
    if not is_written(text):
        return Outcome(not_written="Lab 13: the file has no method yet")
    outcome, bug = Outcome(), case.what.bug
    for number, workload in enumerate((case.workload, *case.unseen)):
        sound = cases.run({}, workload)["steps"]
        asked = {
            "workload": workload,
            "max_steps": cases.last_arrival(workload) + len(sound) + cases.MORE_STEPS,
            "symbol": bug.symbol,
            "old": bug.old,
            "new": bug.new,
            "text": text,
            "path": str(subject.file),
        }
        subject.file.write_text(text, encoding="utf-8")
        observation = next(subject.call_many("13.4", "lab13.cases:run_mended", [asked]))
        if evidence.ends_the_check(observation, outcome):
            return outcome
        told = "its own workload" if number == 0 else f"unseen workload {number}"
        failure = compare(case, workload, sound, observation, told)
        outcome.add(None, failure)
        if failure is not None:
            return outcome
    return outcome


def compare(
    case: Case, workload: Workload, sound: list[dict[str, Any]], observation: Observation, name: str
) -> Failure | None:
    """The first step in which the mended engine is not the sound one; None: there is none."""
    own = workload is case.workload
    told = f"the workload of {case.letter}.md" if own else tell_workload(cases.without_outputs(workload))
    sound = json.loads(json.dumps(sound))
    seen = json.loads(json.dumps(observation.seen if observation.error else observation.value))
    size = evidence.size_of(workload | {"steps": sound})
    for number, (expected, got) in enumerate(zip(sound, seen, strict=False)):
        if expected != got:
            wanted, found = tell_difference(expected, got)
            return Failure(
                kind="decision",
                case=name,
                size=size,
                input=told,
                where=f"step {number + 1}",
                expected=wanted,
                got=found,
                says="the sound engine",
                hint=HINTS["mended method"],
            )
    if observation.error is None and len(seen) == len(sound):
        return None
    if observation.error is None:
        return Failure(
            "decision", name, size, told, f"{len(sound)} steps", f"{len(seen)} steps", hint=HINTS["mended method"]
        )
    failure = evidence.error_failure(observation.error, name, told, size)
    failure.expected, failure.says = f"its {len(sound)} steps", "the sound engine"
    failure.line = failure.line.replace("starter.py", f"{case.letter}.py")
    failure.got = failure.got.replace("starter.py", f"{case.letter}.py")
    failure.hint = HINTS["mended method"]
    return failure


def stale_bugs(lab: Lab) -> list[str]:
    """Bugs whose line is not in the engine any more."""
    module, found = cases.read_bugs(), []
    for what in [*module.BUGS, module.BONUS]:
        try:
            edited_source(what.bug)
        except ValueError as error:
            found.append(f"lab {lab.number}, bug {what.id}: {error}")
    return found


def answers_of(case: Case) -> tuple[dict[str, Any], str]:
    """The key of a case, and the sound method as a file: for tests, and for instructors."""
    num_steps = len(cases.run({}, case.workload)["steps"])
    events = cases.record_run(cases.broken_parts(case.what.bug), case.workload, num_steps)
    key = cases.first_wrong(cases.record_run({}, case.workload), events)
    answers = {"event": key.seq, "rule": case.what.rules[0], "cause": case.what.causes[0]}
    return answers, mended_file(case.what.bug.symbol)


def mended_file(symbol: str, source: str | None = None) -> str:
    """A file with the engine's own method in it, or `source` in its place, and all that the engine's module imports."""
    owner, _, name = symbol.rpartition(".")
    module = importlib.import_module(HOMES[owner or name])
    source = source_of(symbol) if source is None else source
    lines = ["from __future__ import annotations"]
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.append(ast.unparse(node))
    known = {alias.asname or alias.name for line in lines for alias in ast.parse(line).body[0].names}
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    wanted = used & set(vars(module)) - known - {owner, name}
    lines += [f"from {module.__name__} import {key}" for key in sorted(wanted)]
    return "\n".join(lines) + "\n\n\n" + (f"class {owner}:\n{textwrap.indent(source, '    ')}" if owner else source)
