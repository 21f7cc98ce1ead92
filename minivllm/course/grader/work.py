"""A student's folder, graded: code, answers, and what may surprise; and the trace of the failure that is shown.

Owns: Checked, and the hash over the grader's own files.
Interface: check, Checked, manifest, save_failure.
Must not know: how results look, or what a folder has beside starter and answers (folder.py).
"""

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minivllm import __version__
from minivllm.course.grader import answers, judge, record, seeds
from minivllm.course.grader.borrowed import borrowed
from minivllm.course.grader.catalog import Lab, casework_of
from minivllm.course.grader.folder import NOTE, OUTPUT, Note, now, read_note, starter_in, write_note
from minivllm.course.grader.judge import LabResult
from minivllm.course.grader.result import (
    GRADER_CHANGED,
    SCHEMA,
    FileEntry,
    Grader,
    QuestionEntry,
    ResultFile,
    exit_status,
    load_error_of,
    task_entries,
)
from minivllm.course.grader.wrong import looks_like
from minivllm.course.places import repo_path
from minivllm.errors import InputError

GRADER_FOLDERS = ("minivllm", "kernels", "traces/labs", "traces/vllm-0.22.0")
GRADER_ENDINGS = {".py", ".c", ".toml", ".json", ".gz", ".txt"}


@dataclass(slots=True)
class Checked:
    """What a check of a folder gave. file: the same for a program. advice: what is said of wrong answers.

    trace: how to look at the failure that is shown. notices: of what may surprise, a line each.
    """

    result: LabResult
    file: ResultFile
    advice: list[str]
    trace: str
    notices: list[str]

    @property
    def questions(self) -> list[QuestionEntry]:
        return self.file.questions

    @property
    def intact(self) -> bool:
        return self.file.grader.intact


def check(
    lab: Lab, place: Path, tasks: Sequence[str] | None = None, seed: int | None = None, keep: bool = True
) -> Checked:
    """Grade the code and the answers of a folder (or one file).

    seed: in place of the folder's own. keep: note the tries in the folder, and write the trace of the failure.
    """
    if lab.form == "cases":
        return _check_cases(lab, place, tasks, seed)
    path = starter_in(lab, place)
    note = read_note(lab, path.parent)
    given = answers.read_answers(path.parent / seeds.ANSWERS)
    before = manifest(lab)
    result = judge.grade(lab, path, tasks, borrowed=borrowed(lab, path))
    looks_like(lab, result.tasks)
    seed = int(note.seed, 16) if seed is None else seed
    asked = seeds.ask(lab, seed)
    questions = answers.grade_answers(asked, given, note.tries)
    trace = save_failure(lab, path, result) if keep else ""
    if keep and (path.parent / NOTE).exists():
        write_note(path.parent, note)
    grader = Grader(manifest_sha256=before, intact=before == manifest(lab))
    file = _result_file(lab, result, note, seed, [path], questions, grader)
    return Checked(result, file, answers.advice(asked, questions), trace, _notices(lab, note))


def _check_cases(lab: Lab, place: Path, letters: Sequence[str] | None, seed: int | None) -> Checked:
    """Grade a folder of cases. letters: only these. place: the folder, or its lab.json."""
    folder = place.parent if place.name == NOTE else place
    if not (folder / NOTE).exists():
        raise InputError(f"{folder / NOTE} is not there. Begin with: minivllm lab start {lab.number} {folder}")
    note, before = read_note(lab, folder), manifest(lab)
    seed = int(note.seed, 16) if seed is None else seed
    started = time.monotonic()
    casework = casework_of(lab)
    result = casework.check(lab, folder, seed, letters)
    result.seconds = time.monotonic() - started
    paths = [path for path in sorted((folder / casework.FOLDER).glob("*.py")) if not path.name.startswith(".")]
    grader = Grader(manifest_sha256=before, intact=before == manifest(lab))
    file = _result_file(lab, result, note, seed, paths, [], grader)
    return Checked(result, file, [], "", _notices(lab, note))


def _result_file(
    lab: Lab,
    result: LabResult,
    note: Note,
    seed: int,
    paths: Sequence[Path],
    questions: list[QuestionEntry],
    grader: Grader,
) -> ResultFile:
    most = sum(task.points for task in lab.tasks)
    return ResultFile(
        schema=SCHEMA,
        lab=lab.number,
        revision=lab.revision,
        minivllm=__version__,
        student=note.student,
        seed=f"{seed:016x}",
        started=note.started,
        ended=now(),
        seconds=round(result.seconds, 1),
        platform=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        files=[FileEntry(name=path.name, sha256=_sha256(path), lines=path.read_bytes().count(b"\n")) for path in paths],
        total=result.points + sum(question.points for question in questions),
        max=most + sum(question.max for question in questions),
        exit=exit_status(result, most) if grader.intact else GRADER_CHANGED,
        load_error=load_error_of(result),
        tasks=task_entries(result),
        questions=questions,
        hints=note.hints,
        borrowed=sorted(result.borrowed),
        grader=grader,
        signature=None,
    )


def _notices(lab: Lab, note: Note) -> list[str]:
    """What may surprise in a result."""
    found = []
    if note.revision != lab.revision:
        found.append(
            f"This folder was made with revision {note.revision} of the lab, and this is revision {lab.revision}: "
            f"starter and questions may be other ones. `minivllm lab start {lab.number} ANOTHER_FOLDER` makes new ones."
        )
    if platform.system() == "Darwin":
        found.append("On macOS the limit on memory is advisory.")
    return found


def save_failure(lab: Lab, path: Path, result: LabResult) -> str:
    """Write the trace of the failure that is shown; returns the command that explains it, or nothing."""
    worst = result.worst()
    if worst is None or worst[1].trace_of is None:
        return ""
    task, failure = worst
    target = OUTPUT / lab.number / "fail.jsonl"
    target.unlink(missing_ok=True)
    workload, step = failure.trace_of["workload"], failure.trace_of["step"]
    with judge.Subject(lab, path) as subject:
        if subject.load() is not None:
            return ""
        failure.event = record.save_trace(subject, task.id, workload, step, target)
    if not target.exists():
        return ""
    place = f", event {failure.event} (step {step + 1} there)" if failure.event is not None else ""
    return f"minivllm view {target}{place}"


def manifest(lab: Lab) -> str:
    """One hash over the grader: the package, the kernels, the evidence, and the lab's own files."""
    folders = [repo_path(folder, lab.root) for folder in GRADER_FOLDERS]
    paths = {path for folder in (*folders, lab.folder) for path in folder.rglob("*")}
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.suffix in GRADER_ENDINGS and path.is_file():
            digest.update(path.relative_to(lab.root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
