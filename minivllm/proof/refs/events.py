"""The table of event kinds of the trace, and the `@boundary` marks, read as text.

Owns: how both are found. The table is `_TABLE` in minivllm/trace/events.py, a list of tuples; the fields of the class
`Kind` there name their columns. Texts may be put together from constants of that module by f-strings.
Must not know: what an event holds.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minivllm.proof.refs.docstrings import mirrors_vllm

TABLE = "minivllm/trace/events.py"


@dataclass(frozen=True, slots=True)
class EventKind:
    """One entry of the table. `reference` is None where the entry names nothing of vLLM's."""

    kind: str
    boundary: str | None  # B1 to B27; None for a parent without a number
    process: str
    method: str  # ours
    reference: str | None  # vLLM's, maybe with a note; or `none, reason`
    absent: str  # when a finished request can be without it
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Mark:
    """One `@boundary("kind")` in the code."""

    kind: str
    owner: str  # module and qualified name: core.scheduler.Scheduler.schedule
    file: str
    line: int


def event_kinds(root: Path) -> list[EventKind]:
    """The entries of the table, in its order; none if there is no such file."""
    path = root / TABLE
    if not path.is_file():
        return []
    return list(_entries(ast.parse(path.read_text(encoding="utf-8"))))


def _entries(tree: ast.Module) -> Iterator[EventKind]:
    columns: list[str] = []
    texts: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef(name="Kind"):
                fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
                columns = [field.id for field in fields if isinstance(field, ast.Name)]
            case ast.Assign(targets=[ast.Name(id="_TABLE")], value=ast.List(elts=rows)):
                for row in rows:
                    values = dict(zip(columns, [_text(item, texts) for item in getattr(row, "elts", [])], strict=False))
                    yield EventKind(
                        values.get("kind") or "",
                        values.get("boundary"),
                        values.get("process") or "",
                        values.get("method") or "",
                        values.get("vllm"),
                        values.get("absent") or "",
                        TABLE,
                        row.lineno,
                    )
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                texts[name] = text


def _text(node: ast.expr, texts: dict[str, str]) -> str | None:
    """The value of a text, a constant's name, or an f-string of such; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return texts.get(name)
        case ast.JoinedStr(values=parts):
            found = [_text(part.value if isinstance(part, ast.FormattedValue) else part, texts) for part in parts]
            return None if None in found else "".join(filter(None, found))
    return None


def boundary_marks(root: Path, package: Path) -> list[Mark]:
    """Every marked method of the rooms that mirror vLLM, in the order of files and lines."""
    paths = [path for path in sorted(package.rglob("*.py")) if mirrors_vllm(path.relative_to(root).as_posix())]
    return [mark for path in paths for mark in _marks_of(root, package, path)]


def _marks_of(root: Path, package: Path, path: Path) -> Iterator[Mark]:
    module = ".".join(path.relative_to(package).with_suffix("").parts)
    for holder in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(holder, ast.ClassDef):
            continue
        for node in holder.body:
            for decorator in getattr(node, "decorator_list", []):
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "boundary":
                    kind = ast.literal_eval(decorator.args[0])
                    owner = f"{module}.{holder.name}.{node.name}"
                    yield Mark(kind, owner, path.relative_to(root).as_posix(), node.lineno)
