"""The judge: the parent's side. It holds the expectations, asks the child, compares, and gives points.

Owns: what a check and its outcome are, how points are given.
Interface: Check, Outcome, Failure, Ask, grade, TaskResult, LabResult; Subject, Limits and Observation of subject.py.
Must not know: what a lab is about (check.py says what is asked and expected), or how results are shown (report.py).
"""

import hashlib
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minivllm.course.grader.catalog import Lab, TaskText
from minivllm.course.grader.child import WHOLE_FILE, observer
from minivllm.course.grader.subject import Limits, Observation, Subject

KINDS = ("crash", "hang", "invariant", "decision", "structure")  # of equal inputs, in the order of showing


# ---------------------------------------------------------------------- what a check says


@dataclass(slots=True)
class Failure:
    """One case that failed, told in full. kind: one of KINDS. size: the smaller, the sooner it is shown."""

    kind: str
    case: str
    size: int
    input: str
    expected: str
    got: str
    where: str = ""
    before: str = ""
    says: str = ""  # who says what is expected
    rule: str = ""
    line: str = ""  # the student's line that ran last
    looks_like: str = ""
    trace_of: dict[str, Any] | None = None  # the workload whose trace shows it, and the step
    hint: str = ""  # the task whose hints help; "" for its own
    step: int | None = None  # of the workload, from 0
    event: int | None = None  # in the trace that is shown with it


@dataclass(slots=True)
class Outcome:
    """What a check found. families: family -> all its cases are right; a check without families is all or nothing.

    left_out: the check that it needs, and that something is wrong in; then nothing was asked.
    """

    cases: int = 0
    passed: int = 0
    families: dict[str, bool] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)  # one short mark per case that always runs: the fingerprint
    not_written: str = ""  # the label of the task's first body that is missing
    left_out: str = ""

    def add(self, mark: str | None, failure: Failure | None) -> None:
        """Count one case. mark: None for a case that does not always run."""
        self.cases += 1
        if mark is not None:
            self.marks.append(mark)
        if failure is None:
            self.passed += 1
        else:
            self.failures.append(failure)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a task. run: asks, compares, and says what it found. needs: checks without which it says nothing."""

    id: str
    title: str
    points: int
    run: Callable[["Ask"], Outcome]
    needs: tuple[str, ...] = ()


class Ask:
    """What a check may do: ask the student's code about one task, and the engine's own."""

    def __init__(self, subject: "Subject", lab: Lab, task_id: str, thorough: bool = True) -> None:
        self.subject = subject
        self.lab = lab
        self.task_id = task_id
        self.thorough = thorough  # False: a family may stop at its first failure

    def student(self, name: str, asked: Any) -> Observation:
        """Run an observer with the student's parts of this task, in the child."""
        return next(self.student_many(name, [asked]))

    def student_many(self, name: str, inputs: Sequence[Any]) -> Iterator[Observation]:
        """Run an observer on many inputs. After a hang, or a body that is not written, there are no more answers."""
        return self.subject.call_many(self.task_id, name, inputs)

    def engine(self, name: str, asked: Any) -> Any:
        """Run the same observer with the engine's own parts, here."""
        return as_sent(observer(name)({}, asked, []))


def as_sent(value: Any) -> Any:
    """A value as it looks after the pipe: tuples have become lists."""
    import msgspec

    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


# ---------------------------------------------------------------------- results


@dataclass(slots=True)
class CheckResult:
    """A check with its points."""

    check: Check
    outcome: Outcome
    points: int


@dataclass(slots=True)
class TaskResult:
    """A task with the results of its checks. status: pass, fail, not_written, crash, timeout, refused."""

    id: str
    title: str
    points: int
    max: int
    status: str
    checks: list[CheckResult] = field(default_factory=list)
    refused: str = ""

    @property
    def failures(self) -> list[Failure]:
        return [failure for result in self.checks for failure in result.outcome.failures]


@dataclass(slots=True)
class LabResult:
    """What grading a file gave. load_error: the file could not be imported, and nothing was checked."""

    lab: Lab
    tasks: list[TaskResult] = field(default_factory=list)
    load_error: dict[str, Any] | None = None
    output: list[str] = field(default_factory=list)
    seconds: float = 0.0
    borrowed: dict[str, str] = field(default_factory=dict)  # symbol that is not own work -> why
    stretch: list[CheckResult] = field(default_factory=list)  # counts nothing; asked once all points are there

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def max(self) -> int:
        return sum(task.points for task in self.lab.tasks)

    def worst(self) -> tuple[TaskResult, Failure] | None:
        """The failure to show: the smallest input; of equal ones a crash first, then a hang, a rule, a decision."""
        found = [(task, failure) for task in self.tasks for failure in task.failures]
        return min(found, key=lambda pair: (pair[1].size, KINDS.index(pair[1].kind)), default=None)


def checks_of(lab: Lab) -> dict[str, tuple[Check, ...]]:
    """Task -> its checks, from check.py in the folder of the lab."""
    return importlib.import_module(f"minivllm.lessons.lab{lab.number}.check").CHECKS


def stretch_of(lab: Lab) -> tuple[Check, ...]:
    """Checks of the whole file that count nothing, if check.py has any: what "Further" of the README asks for."""
    return getattr(importlib.import_module(f"minivllm.lessons.lab{lab.number}.check"), "STRETCH", ())


def grade(
    lab: Lab,
    path: Path,
    tasks: Sequence[str] | None = None,
    limits: Limits | None = None,
    fork: bool = False,
    thorough: bool = True,
    borrowed: Mapping[str, str] | None = None,
) -> LabResult:
    """Run the checks of a lab on a student's file.

    tasks: only these. thorough=False: once something has failed, what leaves no marks may be spared. borrowed: symbols
    whose tasks count nothing, with the reason (borrowed.py); the child finds more of them.
    """
    started = time.monotonic()
    result = LabResult(lab, borrowed=dict(borrowed or {}))
    checks = checks_of(lab)
    with Subject(lab, path, limits, fork) as subject:
        result.load_error = subject.load()
        if result.load_error is None:
            more = {symbol: why for symbol, why in subject.borrowed.items() if symbol not in result.borrowed}
            result.borrowed |= more  # behind those whose reason names the line
            for task in lab.tasks:
                if tasks is None or task.id in tasks:
                    outcomes = _run_checks(checks[task.id], Ask(subject, lab, task.id, thorough))
                    graded = _task_result(task, outcomes, _refusal(task, result.borrowed))
                    result.tasks.append(_all_or_nothing(graded) if lab.strict else graded)
            if result.points == result.max:
                ask = Ask(subject, lab, WHOLE_FILE, thorough)
                result.stretch = [CheckResult(check, check.run(ask), 0) for check in stretch_of(lab)]
        result.output = subject.output()
    result.seconds = time.monotonic() - started
    return result


def _refusal(task: TaskText, borrowed: Mapping[str, str]) -> str:
    """Why a task counts nothing; nothing when it is own work. A symbol of a task may be a class, whole."""
    for symbol, reason in borrowed.items():
        if any(symbol == graded or symbol.startswith(f"{graded}.") for graded in task.symbols):
            return reason
    return ""


def _run_checks(checks: Sequence[Check], ask: Ask) -> list[tuple[Check, Outcome]]:
    """All checks, in order. Those that leave no marks are spared when something has failed and it is not thorough."""
    done: list[tuple[Check, Outcome]] = []
    for check in checks:
        failed = any(outcome.failures for _, outcome in done)
        spared = failed and not ask.thorough and getattr(check.run, "leaves_no_marks", False)
        missed = [other.id for other, outcome in done if other.id in check.needs and outcome.passed < outcome.cases]
        if missed:
            done.append((check, Outcome(left_out=missed[0])))
        else:
            done.append((check, Outcome() if spared else check.run(ask)))
    return done


def _task_result(task: TaskText, outcomes: list[tuple[Check, Outcome]], refused: str) -> TaskResult:
    results = [CheckResult(check, outcome, 0 if refused else points_of(check, outcome)) for check, outcome in outcomes]
    points = sum(result.points for result in results)
    status = status_of([outcome for _, outcome in outcomes], points == task.points, refused)
    return TaskResult(task.id, task.title, points, task.points, status, results, refused)


def _all_or_nothing(task: TaskResult) -> TaskResult:
    """The same, without a share for what is right in a task that is not."""
    if task.points < task.max:
        task.points = 0
        for result in task.checks:
            result.points = 0
    return task


def status_of(outcomes: Sequence[Outcome], passed: bool, refused: str = "") -> str:
    """pass, fail, not_written, crash, timeout or refused: of a task, or of one check."""
    if refused:
        return "refused"
    if any(outcome.not_written for outcome in outcomes):
        return "not_written"
    if passed:
        return "pass"
    kinds = {failure.kind for outcome in outcomes for failure in outcome.failures}
    return "timeout" if "hang" in kinds else "crash" if "crash" in kinds else "fail"


def points_of(check: Check, outcome: Outcome) -> int:
    """All points for all cases; of a check with families, a family's share for each family that is right."""
    if outcome.not_written or not outcome.cases:
        return 0
    if outcome.families:
        right = sum(outcome.families.values())
        return check.points * right // len(outcome.families)
    return check.points if outcome.passed == outcome.cases else 0


# ---------------------------------------------------------------------- fingerprints


def fingerprint(task: TaskResult) -> str | None:
    """One text for how a task's code behaves on all cases that always run: equal texts, equal behaviour.

    None when nothing is wrong in those cases, or there are none.
    """
    marks = [[result.check.id, result.outcome.marks] for result in task.checks]
    if all(result.outcome.passed == result.outcome.cases for result in task.checks if result.outcome.marks):
        return None
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest()[:16]


__all__ = [
    "Ask",
    "Check",
    "CheckResult",
    "Failure",
    "LabResult",
    "Limits",
    "Observation",
    "Outcome",
    "Subject",
    "TaskResult",
    "grade",
]
