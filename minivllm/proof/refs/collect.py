"""Our references to vLLM: from docstrings, comments, event kinds, docs and notebooks.

Owns: which files are read.
Interface: `find_project`, `collect`.
Must not know: whether a reference is right; nothing is imported, all is read as text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minivllm.proof.refs.docstrings import Module
from minivllm.proof.refs.events import EventKind, event_kinds
from minivllm.proof.refs.prose import GENERATED_PAGE, Passage, markdown_passages, notebook_passages
from minivllm.proof.refs.uses import (
    LINES_IN_TEXT,
    NONE,
    STATEMENT,
    Collected,
    Problem,
    Use,
    references_in,
    what_is_wrong,
)

CODE_FOLDERS = ("minivllm", "kernels", "minivllm_kernels", "notebooks")
# of notebooks/: what students write or read, and notebooks themselves, which count as texts
NO_CODE = re.compile(r"(^|/)(right/.*|starter|filled|wrong|questions|bugs|(lab)?\d\d\w*)\.py$")
TEXT_FOLDERS = ("docs", "notebooks", "traces", "kernels", "minivllm")


@dataclass(frozen=True, slots=True)
class Project:
    """Where our own files are."""

    root: Path  # names of files are relative to it
    code: tuple[Path, ...]  # packages
    texts: tuple[Path, ...]  # Markdown files and notebooks

    def name_of(self, path: Path) -> str:
        """The file's name in messages and pages."""
        return path.relative_to(self.root).as_posix()


def find_project(root: Path | None = None) -> Project:
    """The checkout that this package lies in, or, once installed, the packages alone."""
    root = Path(__file__).parents[3] if root is None else root
    code = tuple(root / name for name in CODE_FOLDERS if (root / name).is_dir())
    texts: list[Path] = []
    if (root / "pyproject.toml").is_file():
        texts += root.glob("*.md")
        for folder in TEXT_FOLDERS:
            for pattern in ("*.md", "*.ipynb"):
                texts += (root / folder).rglob(pattern)
    hidden = {".ipynb_checkpoints", "node_modules", "_build"}
    kept = [path for path in texts if not hidden & set(path.parts) and not path.is_relative_to(root / "traces/out")]
    return Project(root, code, tuple(sorted(kept)))


def collect(project: Project) -> Collected:
    """Read every file of the project."""
    found = Collected()
    for package in project.code:
        files = [path for path in package.rglob("*.py") if package.name != "notebooks" or not NO_CODE.search(str(path))]
        for path in sorted(files, key=lambda path: (path.parent, path.name != "__init__.py", path)):
            Module(project.name_of(path), path.read_text(encoding="utf-8"), found).collect()
    for kind in event_kinds(project.root):
        _collect_event(kind, found)
    for path in project.texts:
        _collect_text(project, path, found)
    return found


def _collect_event(kind: EventKind, found: Collected) -> None:
    place = f"{kind.file}:{kind.line}"
    if not kind.reference:
        message = f"the event kind {kind.kind!r} names no symbol of vLLM; without a counterpart: `none, reason`"
        found.problems.append(Problem("event-without", place, message))
    elif NONE.fullmatch(kind.reference):
        found.nones += 1
    elif STATEMENT.fullmatch(kind.reference):
        found.uses += references_in(kind.reference, "event", kind.file, kind.line, kind.kind)
    else:
        found.problems.append(Problem("malformed", place, f"event kind {kind.kind!r}: {what_is_wrong(kind.reference)}"))


def _collect_text(project: Project, path: Path, found: Collected) -> None:
    text = path.read_text(encoding="utf-8")
    name = project.name_of(path)
    if path.suffix == ".ipynb":
        passages, kind = notebook_passages(text), "notebook"
    elif GENERATED_PAGE.search(text[:1000]):
        return
    else:
        passages, kind = markdown_passages(text), "docs"
    for passage in passages:
        found.uses += [
            use
            for use in _passagereferences_in(passage, kind, name)
            if not (project.root / use.path).is_file()  # our own, or one of our tests
        ]


def _passagereferences_in(passage: Passage, kind: str, file: str) -> Iterator[Use]:
    yield from references_in(passage.text, kind, file, passage.line, passage.owner)
    for match in LINES_IN_TEXT.finditer(passage.text):
        lines = int(match["first"]), int(match["last"])
        yield Use(match["path"], "", kind, file, passage.line, passage.owner, passage.text, lines)
