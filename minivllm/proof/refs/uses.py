"""The written form of a reference, and what is collected: uses and problems.

Owns: the grammar. A reference is a file, `::` and a name. In a `vLLM:` line a note in brackets may follow. In a text
the lines may follow, as `:first-last`; a file with lines and no name is understood too.
Must not know: where references stand, or whether they are right.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

REFERENCE = r"(?P<path>[\w./-]*\w\.py)::(?P<name>[A-Za-z_][\w.]*\w|\w)"
LINES = r"(?::(?P<first>\d+)-(?P<last>\d+))"
IN_TEXT = re.compile(rf"(?<![\w./-]){REFERENCE}{LINES}?(?![\w-])")
LINES_IN_TEXT = re.compile(rf"(?<![\w./-])(?P<path>[\w./-]*\w\.py){LINES}(?!\w)")
STATEMENT = re.compile(rf"{REFERENCE}(?: \((?P<note>.+)\))?")
NONE = re.compile(r"none, \S.*")


@dataclass(frozen=True, slots=True)
class Use:
    """One place of ours that rests on one symbol of vLLM."""

    path: str  # vLLM's file, relative to its package
    name: str  # qualified name in it; "" for a passage that names lines only
    kind: str  # code, event, docs, notebook
    file: str  # ours, relative to the project
    line: int  # in `file`; in a notebook the line within its cell
    owner: str  # what holds it: our qualified name, the event kind, the heading, the notebook cell
    text: str  # the sentence, for docs and notebooks; the note, for code
    lines: tuple[int, int] | None = None  # the lines of vLLM's file that it names

    @property
    def target(self) -> str:
        """The reference as it is written."""
        return f"{self.path}::{self.name}" if self.name else self.path

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.file}, {self.owner}" if self.kind == "notebook" else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of ours that is wrong whatever vLLM is."""

    kind: str
    place: str
    message: str


@dataclass(slots=True)
class Collected:
    """All references, in the order of files and lines, and what is wrong with them."""

    uses: list[Use] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    nones: int = 0  # places that say `vLLM: none, reason`


def what_is_wrong(statement: str) -> str:
    """Why a statement is not of the form, for the user."""
    shown = statement if len(statement) < 90 else statement[:90] + "…"
    if statement.startswith("none"):
        return f"`vLLM: {shown}` gives no reason: write `vLLM: none, reason`"
    match = STATEMENT.match(statement)
    if match:
        return f"`vLLM: {shown}` goes on after the reference: it must be the last of the docstring; a note in brackets"
    return f"`vLLM: {shown}` is not of the form `vLLM: path/in/vllm.py::Name.of.it (note)`"


def references_in(text: str, kind: str, file: str, line: int, owner: str) -> Iterator[Use]:
    """Every reference in a text."""
    text = inspect.cleandoc(text)
    for match in IN_TEXT.finditer(text):
        lines = (int(match["first"]), int(match["last"])) if match["first"] else None
        yield Use(match["path"], match["name"], kind, file, line, owner, text, lines)
