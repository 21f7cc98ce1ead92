"""What grading gave, for a program to read: the file that `check --json` and `submit` write.

Owns: the form of that file, and docs/lab-result.schema.json, which is made from it.
Interface: ResultFile and its parts, task_entries, load_error_of, exit_status, to_json, read_result, json_schema.
Must not know: how anything was found out, or how it is told to a person (report.py).
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from minivllm.course.grader.judge import CheckResult, Failure, LabResult, TaskResult, status_of
from minivllm.errors import InputError

SCHEMA = 1
SCHEMA_FILE = Path("docs/lab-result.schema.json")
GRADER_CHANGED = 3
Status = Literal["pass", "fail", "not_written", "crash", "timeout", "refused"]
Answer = int | float | str | list[int | float | str]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file. A field that it does not know is an error."""


class FailureEntry(_Part):
    """The smallest failure of a check."""

    case: Annotated[str, Meta(description="which of the check's cases")]
    kind: Annotated[str, Meta(description="crash, hang, invariant, decision or structure")]
    where: Annotated[str, Meta(description="in words")]
    step: Annotated[int | None, Meta(description="step of the workload, from 0; null where there are no steps")]
    event: Annotated[int | None, Meta(description="number of the event in the trace, of the failure that was shown")]
    rule: Annotated[str, Meta(description="the invariant that is broken, such as S4, or nothing")]
    input: str
    before: Annotated[str, Meta(description="the state before it, in words")]
    expected: str
    says: Annotated[str, Meta(description="who says what is expected")]
    got: str
    looks_like: Annotated[str, Meta(description="what a known wrong solution that behaves the same is told")]
    line: Annotated[str, Meta(description="the student's line that was the last to run")]


class CheckEntry(_Part):
    """One check of a task."""

    id: str
    points: int
    max: int
    status: Status
    cases: Annotated[int, Meta(description="that were looked at")]
    passed: Annotated[int, Meta(description="of these, the right ones")]
    families: Annotated[dict[str, bool], Meta(description="families that share the points: all its cases are right")]
    first: FailureEntry | None


class TaskEntry(_Part):
    """One task of a lab; of lab 13, one case."""

    id: str
    points: int
    max: int
    status: Status
    refused: Annotated[str, Meta(description="why it counts nothing, if it is refused")]
    checks: list[CheckEntry]


class QuestionEntry(_Part):
    """One question, with what was answered. The key is never written."""

    id: str
    points: int
    max: int
    status: Literal["right", "not_right", "not_answered"]
    given: Annotated[Answer, Meta(description="the answer, as it stands in answers.toml")]
    tries: Annotated[int, Meta(description="different wrong answers that were checked so far")]
    asked_sha256: Annotated[str, Meta(description="of the question's text")]


class FileEntry(_Part):
    """A file of the student's that was graded."""

    name: str
    sha256: str
    lines: int


class Grader(_Part):
    """Whether the grader's own files were the same before and after."""

    manifest_sha256: str
    intact: bool


class LoadError(_Part):
    """Why the student's file could not be loaded."""

    kind: str
    type: str
    message: str
    line: int
    text: Annotated[str, Meta(description="that line")]


class ResultFile(_Part, kw_only=True):
    """The result of one lab of one student."""

    schema: Literal[1]
    lab: Annotated[str, Meta(description="its number, such as 03")]
    revision: Annotated[int, Meta(description="of the lab, as the grader has it")]
    minivllm: Annotated[str, Meta(description="version of the package that graded")]
    student: Annotated[str | None, Meta(description="sha256: of salt and id; null for a file outside a lab's folder")]
    seed: Annotated[str, Meta(description="of the questions, hexadecimal")]
    started: Annotated[str | None, Meta(description="when the student began (`lab start`), UTC")]
    ended: Annotated[str, Meta(description="when this grading ended, UTC")]
    seconds: Annotated[float, Meta(description="that the grading took")]
    platform: str
    files: list[FileEntry]
    total: Annotated[int, Meta(description="points of code and questions")]
    max: int
    exit: Annotated[
        Literal[0, 1, 2, 3],
        Meta(description="0 all points of the code, 1 some missing, 2 the file can't be loaded, 3 the grader changed"),
    ]
    load_error: LoadError | None
    tasks: list[TaskEntry]
    questions: list[QuestionEntry]
    hints: Annotated[list[tuple[str, int]], Meta(description="task and level of each hint that was taken")]
    borrowed: Annotated[list[str], Meta(description="symbols of tasks that were refused, for they are not own work")]
    grader: Grader
    signature: Annotated[
        str | None, Meta(description="hmac-sha256: of all the rest; only `lab regrade --sign` sets it")
    ]


# ---------------------------------------------------------------------- from what the judge found


def exit_status(result: LabResult, enough: int | None = None) -> int:
    """0: all points of the code. 1: some are missing. 2: the file can't be loaded. enough: where there is a bonus."""
    if result.load_error is not None:
        return 2
    most = sum(task.max for task in result.tasks)
    return 0 if result.points >= min(most, enough or most) else 1


def task_entries(result: LabResult) -> list[TaskEntry]:
    """The tasks of a result."""
    return [
        TaskEntry(
            id=task.id,
            points=task.points,
            max=task.max,
            status=task.status,
            refused=task.refused,
            checks=[_check_entry(task, check) for check in task.checks],
        )
        for task in result.tasks
    ]


def _check_entry(task: TaskResult, result: CheckResult) -> CheckEntry:
    outcome = result.outcome
    return CheckEntry(
        id=result.check.id,
        points=result.points,
        max=result.check.points,
        status=status_of([outcome], result.points == result.check.points, task.refused),
        cases=outcome.cases,
        passed=outcome.passed,
        families=outcome.families,
        first=failure_entry(outcome.failures),
    )


def failure_entry(failures: list[Failure]) -> FailureEntry | None:
    """The smallest of some failures."""
    if not failures:
        return None
    first = min(failures, key=lambda failure: failure.size)
    return FailureEntry(**{name: getattr(first, name) for name in FailureEntry.__struct_fields__})


def load_error_of(result: LabResult) -> LoadError | None:
    """Why the file could not be loaded, if it could not."""
    error = result.load_error
    return error and LoadError(**{name: error[name] for name in LoadError.__struct_fields__})


# ---------------------------------------------------------------------- text


def to_json(written: msgspec.Struct) -> str:
    """The text of a file that the commands write: keys sorted, UTF-8."""
    return msgspec.json.format(msgspec.json.encode(written, order="sorted"), indent=1).decode() + "\n"


def read_result(path: Path) -> ResultFile:
    """Read such a file. Raises InputError for one that is not of this form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ResultFile)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is no result of a lab: {error}.") from error


def json_schema() -> str:
    """The text of docs/lab-result.schema.json."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= msgspec.json.schema(ResultFile, ref_template="#/$defs/{name}")
    return json.dumps(_without_our_remarks(schema), indent=1, ensure_ascii=False) + "\n"


def _without_our_remarks(value: Any) -> Any:
    """Docstrings end with a remark that is for the source alone."""
    if isinstance(value, dict):
        return {key: _without_our_remarks(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_our_remarks(inner) for inner in value]
    return value.partition("\n\nvLLM:")[0] if isinstance(value, str) else value
