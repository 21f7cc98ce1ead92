"""For instructors: folders for a class, a table of what came back, and grading again on one's own machine.

Owns: the layout of a class's folder, the table, the signature.
Interface: start_class, read_ids, collect, regrade, sign.
Must not know: checks.

A folder holds one folder per student, named by the student's id, and in it the labs' folders: ID/04/starter.py,
answers.toml, lab-04.json. Files that `submit` wrote may lie in it too, under any name. Only what `regrade` wrote,
ID/04/lab-04.regraded.json, counts: a student can write any JSON.
"""

import csv
import hashlib
import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from minivllm.course.grader import seeds
from minivllm.course.grader.catalog import Lab, every_lab
from minivllm.course.grader.folder import NOTE, read_note, start
from minivllm.course.grader.result import ResultFile, read_result, to_json
from minivllm.course.grader.work import check
from minivllm.errors import InputError

REGRADED = "lab-{}.regraded.json"
CLASS = Path("class")
NOT_IN_A_NAME = set('/\\:*?"<>|')

# ---------------------------------------------------------------------- a class begins


def read_ids(path: Path) -> list[str]:
    """The ids of a file, one a line; empty lines and lines that begin with # do not count.

    Raises InputError for ids that can't be names of folders, and for two that are the same without case and spaces.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {error}. One id a line is expected.") from error
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise InputError(f"{path} has no ids. One id a line is expected.")
    known: dict[str, str] = {}
    for one in ids:
        if one.startswith(".") or NOT_IN_A_NAME & set(one):
            raise InputError(f"{path}: {one!r} can't be the name of a folder. Take letters, digits, dots and @.")
        if seeds.plain_id(one) in known:
            raise InputError(f"{path}: {one!r} and {known[seeds.plain_id(one)]!r} are the same: case does not count.")
        known[seeds.plain_id(one)] = one
    return ids


def start_class(labs: Sequence[Lab], folder: Path, ids: Sequence[str], salt: str = "") -> Iterator[str]:
    """A folder for each student, and in it one for each lab; what is there already is kept. Yields a line a student."""
    for student in ids:
        made = [
            start(lab, folder / student / lab.number, student, salt).name
            for lab in labs
            if not (folder / student / lab.number / lab.begun_with).exists()
        ]
        kept = len(labs) - len(made)
        yield f"{folder / student}: {' '.join(made) or 'nothing new'}" + (f" ({kept} there already)" if kept else "")


# ---------------------------------------------------------------------- a table


def collect(folder: Path, csv_path: Path | None = None) -> str:
    """A table of the results in a folder. Raises InputError if it is empty."""
    rows = [_row(path, lab) for lab in every_lab() for path in sorted(folder.glob(f"*/{lab.number}")) if path.is_dir()]
    rows += [_told(path.stem, _result_of(path), "student") for path in sorted(folder.glob("*.json"))]
    if not rows:
        raise InputError(f"{folder} holds no submission: a student's lab 04 is expected in {folder}/STUDENT/04.")
    if csv_path is not None:
        with csv_path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    widths = {
        key: max(len(str(row[key])) for row in [dict(zip(rows[0], rows[0], strict=True)), *rows]) for key in rows[0]
    }
    lines = ["  ".join(f"{key:<{widths[key]}}" for key in rows[0])]
    lines += ["  ".join(f"{row[key]!s:<{widths[key]}}" for key in row) for row in rows]
    return "\n".join(lines)


def _row(path: Path, lab: Lab) -> dict[str, Any]:
    regraded = path / REGRADED.format(lab.number)
    own = path / f"lab-{lab.number}.json"
    source = "regraded" if regraded.exists() else "student" if own.exists() else "none"
    result = _result_of(regraded if regraded.exists() else own) if source != "none" else None
    return _told(path.parent.name, result, source) | {"lab": lab.number}


def _result_of(path: Path) -> ResultFile | None:
    """The result that a file holds; None where it holds none: a student can write any JSON."""
    try:
        return read_result(path)
    except InputError:
        return None


def _told(student: str, result: ResultFile | None, source: str) -> dict[str, Any]:
    """A row of the table."""
    keys = ("total", "tasks", "questions", "hints", "borrowed", "started", "ended", "signed")
    row: dict[str, Any] = {"student": student, "lab": "-", "source": source} | dict.fromkeys(keys, "-")
    if result is None:
        return row | {"source": source if source == "none" else f"{source}, unreadable"}
    return row | {
        "lab": result.lab,
        "total": result.total if result.exit < 3 else "void",
        "tasks": " ".join(f"{task.id}:{task.points}" for task in result.tasks) or "-",
        "questions": sum(question.points for question in result.questions),
        "hints": len(result.hints),
        "borrowed": " ".join(result.borrowed),
        "started": result.started or "",
        "ended": result.ended,
        "signed": "yes" if result.signature else "",
    }


# ---------------------------------------------------------------------- graded again


def regrade(folder: Path, salt: str = "", key: str | None = None, strict: bool = False) -> Iterator[tuple[str, bool]]:
    """Check every starter of a folder again, with seeds from the folders' names; yields a line, and if it was graded.

    What can't be graded is told and left out: one student's broken file must not end the work on the others'. strict:
    no share of a task's points for what is right in it. Raises InputError if there is nothing to grade.
    """
    found = [(lab, path) for lab in every_lab() for path in sorted(folder.glob(f"*/{lab.number}/{lab.begun_with}"))]
    if not found:
        raise InputError(f"{folder} holds no submission: a student's lab 04 is expected in {folder}/STUDENT/04.")
    for lab, path in found:
        student = path.parent.parent.name
        try:
            result = _graded(replace(lab, strict=lab.strict or strict), path, student, salt)
        except (InputError, ModuleNotFoundError) as error:
            yield f"{student}  lab {lab.number}  not graded: {error}", False
            continue
        signed = msgspec.structs.replace(result, signature=sign(msgspec.to_builtins(result), key)) if key else result
        target = path.parent / REGRADED.format(lab.number)
        target.write_text(to_json(signed), encoding="utf-8")
        yield f"{student}  lab {lab.number}  {result.total}/{result.max}  {target}", True


def _graded(lab: Lab, path: Path, student: str, salt: str) -> ResultFile:
    if (path.parent / NOTE).exists():
        note = read_note(lab, path.parent)
        if note.revision != lab.revision:
            raise InputError(
                f"it was begun with revision {note.revision}, and this is revision {lab.revision} of the lab. Regrade "
                "it with the minivllm that it was begun with."
            )
    checked = check(lab, path, seed=seeds.seed_of(lab, student, salt), keep=False)
    return msgspec.structs.replace(checked.file, student=seeds.student_sha256(student, salt))


def sign(result: dict[str, Any], key: str) -> str:
    """HMAC over the result without its signature."""
    text = json.dumps({name: value for name, value in result.items() if name != "signature"}, sort_keys=True)
    return "hmac-sha256:" + hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
