"""Wrong solutions, as edits of the engine's own lines, and what they look like from outside.

Owns: the form of wrong.toml, how a solution's text is made, and the fingerprints that tell wrong solutions apart.
Interface: Wrong, Harmless, read_wrong, read_harmless, solution, edited, build_fingerprints, looks_like.
Must not know: how a check works.
"""

import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.child import engine_symbols
from minivllm.course.grader.cut import MarkerError, Source, build_starter, own_blocks
from minivllm.course.grader.judge import Limits, TaskResult, fingerprint, grade
from minivllm.proof import edits

SHORT = 0.15  # of the limit of a call: wrong solutions that hang shall not take long


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong solution that somebody could write.

    old stands exactly once in the symbol's text of the engine; new takes its place. more: further edits of the same
    kind, (symbol, old, new). message: what a student is told whose code behaves like this one.
    """

    id: str
    task: str
    symbol: str
    old: str
    new: str
    misconception: str
    message: str
    more: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Harmless:
    """An edit that looks like a mistake and changes nothing that anybody could see. proof: why that is so.

    It is kept so that nobody lists it as wrong: a check that refused it would be at fault.
    """

    id: str
    task: str
    symbol: str
    old: str
    new: str
    proof: str
    more: tuple[tuple[str, str, str], ...] = ()


def read_wrong(lab: Lab) -> list[Wrong]:
    """The wrong solutions of a lab's wrong.toml."""
    return [_made(Wrong, entry) for entry in _entries(lab)["wrong"]]


def read_harmless(lab: Lab) -> list[Harmless]:
    """The harmless edits of a lab's wrong.toml."""
    return [_made(Harmless, entry) for entry in _entries(lab).get("harmless", ())]


def _entries(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((lab.folder / "wrong.toml").read_text(encoding="utf-8"))


def _made(kind: Callable[..., Any], entry: dict[str, Any]) -> Any:
    return kind(**entry | {"more": tuple(map(tuple, entry.get("more", ())))})


def solution(lab: Lab, tasks: tuple[str, ...] | None = None) -> str:
    """The starter with the engine's own lines filled in again; of `tasks` alone, when given."""
    text = build_starter(lab)
    for place in lab.symbols:
        path, _, symbol = place.partition("::")
        source = _source(lab.root, path)
        for block in own_blocks(lab, source, symbol):
            if tasks is None or block.task in tasks:
                lines = source.lines[block.first - 1 : block.last]
                text = text.replace(block.raise_line(), "\n".join(lines), 1)
    return text


@cache
def _source(root: Path, path: str) -> Source:
    return Source(root, path)


def edited(lab: Lab, wrong: Wrong | Harmless) -> str:
    """The solution with the edits of an entry. Raises MarkerError when a line to be edited is not there."""
    text = solution(lab)
    for symbol, old, new in [(wrong.symbol, wrong.old, wrong.new), *wrong.more]:
        try:
            text = edits.apply(text, symbol, old, new)
        except edits.EditError as error:
            raise MarkerError(f"lab {lab.number}, solution {wrong.id}: {error}") from error
    return text


# ---------------------------------------------------------------------- fingerprints


def fingerprint_path(lab: Lab) -> Path:
    return lab.folder / "fingerprints.json"


def build_fingerprints(lab: Lab) -> dict[str, dict[str, list[str]]]:
    """Task -> fingerprint -> ids of the wrong solutions that behave so. It grades all of them: a few seconds."""
    found: dict[str, dict[str, list[str]]] = {}
    for wrong, task in grade_wrong(lab):
        mark = fingerprint(task)
        if mark is not None:
            found.setdefault(wrong.task, {}).setdefault(mark, []).append(wrong.id)
    return found


def grade_wrong(lab: Lab) -> Iterator[tuple[Wrong, TaskResult]]:
    """Every wrong solution with the result of its task."""
    engine_symbols(lab)  # imports what the forked processes need, once for all of them
    with tempfile.TemporaryDirectory(prefix="minivllm-") as folder:
        path = Path(folder) / "starter.py"
        for wrong in read_wrong(lab):
            path.write_text(edited(lab, wrong), encoding="utf-8")
            result = grade(lab, path, [wrong.task], Limits(call_s=lab.call_s * SHORT), fork=True, thorough=False)
            if result.load_error is not None:
                raise MarkerError(f"lab {lab.number}, wrong solution {wrong.id} can't be loaded: {result.load_error}")
            yield wrong, result.tasks[0]


def looks_like(lab: Lab, tasks: list[TaskResult]) -> None:
    """Give every failure of a task the message of the wrong solution that behaves exactly like this code, if any."""
    path = fingerprint_path(lab)
    if not path.exists():
        return
    known: Mapping[str, Mapping[str, list[str]]] = json.loads(path.read_text(encoding="utf-8"))
    messages = {wrong.id: wrong.message for wrong in read_wrong(lab)}
    for task in tasks:
        ids = known.get(task.id, {}).get(fingerprint(task) or "", [])
        text = " Or: ".join(dict.fromkeys(messages[wrong_id] for wrong_id in ids if wrong_id in messages))
        for failure in task.failures:
            failure.looks_like = text or failure.looks_like
