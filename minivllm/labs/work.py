"""A student's folder: what `start` puts there, how it is checked, what `submit` writes.

Owns: the files of the folder, and lab.json, which says whose it is, when it began and which hints were taken.
Interface: start, check, submit, take_hint, read_note, Checked.
Must not know: how results look.
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.labs import casework, judge, originality, record, seeds
from minivllm.labs.catalog import Lab
from minivllm.labs.judge import LabResult
from minivllm.labs.wrong import looks_like

STARTER = "starter.py"
LINK = re.compile(r"\]\(([^)#:\s]+)(#[\w-]+)?\)")
NOTE = "lab.json"
OUTPUT = Path("labs-out")
GRADER_FOLDERS = ("minivllm/labs", "minivllm/lockstep", "minivllm/core", "traces/labs", "traces/vllm-0.22.0")
GRADER_ENDINGS = {".py", ".toml", ".json", ".gz", ".txt"}


@dataclass(slots=True)
class Checked:
    """What a check of a folder gave.

    vLLM: none, vLLM has no labs
    """

    result: LabResult
    questions: list[dict[str, Any]]
    facts: dict[str, Any]  # for the JSON: student, seed, files, originality, grader, hints, times
    trace: str = ""  # how to look at the failure that is shown

    @property
    def intact(self) -> bool:
        return self.facts["grader"]["intact"]


def default_folder(lab: Lab) -> Path:
    return Path("my-labs") / lab.number


def start(lab: Lab, folder: Path, student: str, salt: str = "") -> Path:
    """Make a folder to work in. Raises InputError when there is a starter already.

    vLLM: none, vLLM has no labs
    """
    if (folder / lab.begun_with).exists():
        raise InputError(f"{folder / lab.begun_with} is there already. Go on with it, or name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    readme = (lab.folder / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(_with_absolute_links(readme, lab.folder), encoding="utf-8")
    _copy_notebook(lab, folder)
    seed = seeds.seed_of(lab, student, salt)
    if lab.form == "cases":
        casework.start(lab, folder, seed)
    else:
        shutil.copyfile(lab.starter, folder / STARTER)
        asked = seeds.ask(lab, seed)
        (folder / "questions.md").write_text(seeds.format_questions(lab, asked), encoding="utf-8")
        (folder / seeds.ANSWERS).write_text(seeds.format_answers(asked), encoding="utf-8")
    note = {
        "lab": lab.number,
        "revision": lab.revision,
        "student": hashlib.sha256(f"{salt}\0{student}".encode()).hexdigest(),
        "seed": f"{seed:016x}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hints": [],
    }
    _write_note(folder, note)
    return folder


def _copy_notebook(lab: Lab, folder: Path) -> None:
    """The lab's notebook, in which the student's file is the one beside it."""
    book = lab.folder / f"lab{lab.number}.ipynb"
    if book.exists():
        text = book.read_text(encoding="utf-8").replace(f"my-labs/{lab.number}/{STARTER}", STARTER)
        (folder / book.name).write_text(text, encoding="utf-8")


def _with_absolute_links(text: str, base: Path) -> str:
    """Markdown whose relative links, which hold in `base`, hold in every folder of this machine."""

    def absolute(link: re.Match[str]) -> str:
        target, anchor = link.groups("")
        return f"](<{(base / target).resolve()}{anchor}>)" if (base / target).exists() else link.group()

    return LINK.sub(absolute, text)


def read_note(lab: Lab, folder: Path) -> dict[str, Any]:
    """What lab.json says. A folder without one is practice.

    vLLM: none, vLLM has no labs
    """
    path = folder / NOTE
    if not path.exists():
        seed = seeds.seed_of(lab, seeds.PRACTICE)
        return {"lab": lab.number, "revision": lab.revision, "student": None, "seed": f"{seed:016x}", "hints": []}
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} can't be read: {error}. Start the lab again in another folder.") from error
    if note.get("lab") != lab.number:
        raise InputError(f"{folder} holds lab {note.get('lab')}, not lab {lab.number}.")
    return note


def _write_note(folder: Path, note: dict[str, Any]) -> None:
    (folder / NOTE).write_text(json.dumps(note, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def starter_in(lab: Lab, place: Path) -> Path:
    """The student's file: `place` itself, or starter.py in it. Raises InputError when there is none.

    vLLM: none, vLLM has no labs
    """
    path = place if place.suffix == ".py" else place / STARTER
    if not path.exists():
        raise InputError(f"{path} is not there. Begin with: minivllm lab start {lab.number} {path.parent}")
    return path


# ---------------------------------------------------------------------- check


def check(lab: Lab, place: Path, tasks: Sequence[str] | None = None, seed: int | None = None) -> Checked:
    """Grade the code and the answers of a folder (or one file). seed: in place of the folder's own.

    vLLM: none, vLLM has no labs
    """
    if lab.form == "cases":
        return _check_cases(lab, place, tasks, seed)
    path = starter_in(lab, place)
    note = read_note(lab, path.parent)
    before = manifest(lab)
    result = judge.grade(lab, path, tasks, refused=originality.borrowed(lab, path))
    looks_like(lab, result.tasks)
    seed = int(note["seed"], 16) if seed is None else seed
    questions = seeds.grade_answers(lab, seed, path.parent / seeds.ANSWERS)
    trace = save_failure(lab, path, result)
    text = path.read_text(encoding="utf-8", errors="replace")
    facts = {
        "student": note["student"],
        "seed": f"{seed:016x}",
        "started": note.get("started"),
        "hints": note["hints"],
        "files": [{"name": path.name, "sha256": _sha256(path), "lines": text.count("\n")}],
        "originality": {
            "engine": [] if result.load_error else originality.engine_likeness(lab, text),
            "borrowed": [task.id for task in result.tasks if task.refused],
        },
        "grader": {"manifest_sha256": before, "intact": before == manifest(lab)},
        "signature": None,
    }
    return Checked(result, questions, facts, trace)


def _check_cases(lab: Lab, place: Path, letters: Sequence[str] | None, seed: int | None) -> Checked:
    """Grade a folder of cases. letters: only these. place: the folder, or its lab.json."""
    folder = place.parent if place.name == NOTE else place
    if not (folder / NOTE).exists():
        raise InputError(f"{folder / NOTE} is not there. Begin with: minivllm lab start {lab.number} {folder}")
    note, before = read_note(lab, folder), manifest(lab)
    seed = int(note["seed"], 16) if seed is None else seed
    started = time.monotonic()
    result = casework.check(lab, folder, seed, letters)
    result.seconds = time.monotonic() - started
    paths = [path for path in sorted((folder / casework.FOLDER).glob("*.py")) if not path.name.startswith(".")]
    facts = {
        "student": note["student"],
        "seed": f"{seed:016x}",
        "started": note.get("started"),
        "hints": note["hints"],
        "files": [
            {"name": path.name, "sha256": _sha256(path), "lines": path.read_bytes().count(b"\n")} for path in paths
        ],
        "originality": {"engine": [], "borrowed": []},  # the sound method is the engine's, openly
        "grader": {"manifest_sha256": before, "intact": before == manifest(lab)},
        "signature": None,
    }
    return Checked(result, [], facts)


def save_failure(lab: Lab, path: Path, result: LabResult) -> str:
    """Write the trace of the failure that is shown; returns the command that explains it, or nothing.

    vLLM: none, vLLM has no labs
    """
    worst = result.worst()
    if worst is None or worst[1].trace_of is None:
        return ""
    task, failure = worst
    target = OUTPUT / lab.number / "fail.jsonl"
    workload, step = failure.trace_of["workload"], failure.trace_of["step"]
    with judge.Subject(lab, path) as subject:
        if subject.load() is not None:
            return ""
        event = record.save_trace(subject, task.id, workload, step, target)
    place = f", event {event} (step {step + 1} there)" if event is not None else ""
    return f"minivllm view {target}{place}"


def manifest(lab: Lab) -> str:
    """One hash over the grader: checks, evidence, the lab's own files, and the engine files that it is cut from.

    vLLM: none, vLLM has no labs
    """
    folders = [lab.root / folder for folder in GRADER_FOLDERS]
    paths = {path for folder in (*folders, lab.folder) for path in folder.rglob("*")}
    paths |= {lab.root / place.partition("::")[0] for place in lab.symbols}
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.suffix in GRADER_ENDINGS and path.is_file():
            digest.update(path.relative_to(lab.root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------------- hints


def read_hints(lab: Lab) -> dict[str, list[str]]:
    """Task -> its hints, from the least to the most. hints.md has `## 4.1` for a task and `### ` for each level.

    vLLM: none, vLLM has no labs
    """
    found: dict[str, list[str]] = {}
    task = ""
    for line in (lab.folder / "hints.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            task = line[3:].split()[0]
            found[task] = []
        elif line.startswith("### "):
            found[task].append(line[4:])
        elif task and found[task]:
            found[task][-1] += f"\n{line}"
    return {task: [hint.strip() for hint in hints] for task, hints in found.items()}


def take_hint(lab: Lab, folder: Path, task_id: str, level: int | None) -> str:
    """A hint; without a level, the next one that was not taken yet. Noted in the folder; it costs nothing.

    vLLM: none, vLLM has no labs
    """
    lab.task(task_id)
    hints = read_hints(lab).get(task_id, [])
    note = read_note(lab, folder)
    taken = [n for task, n in note["hints"] if task == task_id]
    level = level if level is not None else min(max(taken, default=0) + 1, len(hints))
    if not 1 <= level <= len(hints):
        raise InputError(f"Task {task_id} has hints 1 to {len(hints)}.")
    text = f"{task_id}, hint {level} of {len(hints)}: {hints[level - 1]}"
    if not (folder / NOTE).exists():
        more = f"minivllm lab hint {lab.number} {task_id} --dir FOLDER"
        return f"{text}\n({folder / NOTE} is not there, so nobody counts. For the next one, name your folder: {more})"
    if [task_id, level] not in note["hints"]:
        note["hints"].append([task_id, level])
        _write_note(folder, note)
    return text
