"""Starters, cut from the engine's own source.

Owns: what is cut, the markers' grammar, and the text of a starter.
Interface: build_starter, check_starter, Source, Block, own_blocks, blocks_in, MarkerError.
Must not know: checks, students, points.

Where a student writes a whole body, `bodies` of lab.toml says so: the function, and in a few words what is to be done.
Where a student writes a part of a body, the source has two comment lines of the same indentation:

    # >>> lab 04.2 what is to be done, in a few words
    # <<< lab 04.2

In the starter of lab 04 either becomes `raise NotImplementedError("Lab 4.2: what is to be done, in a few words")`; in
the starter of another lab the lines stay, without the markers.
"""

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from minivllm.course.grader.catalog import Lab
from minivllm.course.places import module_of, repo_path

OPEN = re.compile(r"( *)# >>> lab (\d\d)\.(\d+) (\S.*)")
CLOSE = re.compile(r"( *)# <<< lab (\d\d)\.(\d+)")
LIKE_A_MARKER = re.compile(r"\s*#\s*(>>>|<<<)\s*lab")
MIN_LEAK = 13  # characters other than spaces: a shorter line gives nothing away
WIDTH = 120


class MarkerError(Exception):
    """A marker that is open, nested, empty, or closed at another indentation; a body that is not there."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that a student writes. first, last: their numbers, from 1; markers stand outside."""

    lab: str  # "04"
    task: str  # "4.2"
    text: str
    indent: str
    first: int
    last: int

    def raise_line(self) -> str:
        return f'{self.indent}raise NotImplementedError("Lab {self.task}: {self.text}")'


def blocks_in(lines: list[str], name: str) -> list[Block]:
    """The marked blocks of a file. Raises MarkerError with both line numbers."""
    found: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines, start=1):
        if not LIKE_A_MARKER.match(line):
            continue
        opening, closing = OPEN.fullmatch(line), CLOSE.fullmatch(line)
        if opening is None and closing is None:
            raise MarkerError(f"{name}:{number}: {line.strip()!r} is not written as a marker is")
        if opening is not None:
            if opened is not None:
                raise MarkerError(f"{name}:{number}: opens a block inside the one opened in line {opened[0]}")
            opened = number, opening
            continue
        if opened is None:
            raise MarkerError(f"{name}:{number}: closes a block that was not opened")
        first, start = opened
        if start.groups()[:3] != closing.groups():
            raise MarkerError(f"{name}:{number}: does not close what line {first} opened: other lab, or indentation")
        if not any(inner.strip() and not inner.strip().startswith("#") for inner in lines[first : number - 1]):
            raise MarkerError(f"{name}:{number}: nothing stands between it and line {first}")
        indent, lab, task, text = start.groups()
        found.append(Block(lab, f"{int(lab)}.{task}", text, indent, first + 1, number - 1))
        opened = None
    if opened is not None:
        raise MarkerError(f"{name}:{opened[0]}: is never closed")
    return found


# ---------------------------------------------------------------------- one engine file


class Source:
    """One file of the engine: its lines, its symbols, its marked blocks."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.module = module_of(name)
        text = repo_path(name, root).read_text(encoding="utf-8")
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.blocks = blocks_in(self.lines, name)

    def find(self, symbol: str) -> ast.AST:
        """The class or function of this name. Raises MarkerError when there is none."""
        node: ast.AST = self.tree
        for part in symbol.split("."):
            inner = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == part]
            if not inner:
                raise MarkerError(f"{self.name} has no {symbol}")
            node = inner[0]
        return node

    def span(self, symbol: str) -> tuple[int, int]:
        """First and last line of a symbol, its decorators and a closing marker included."""
        node = self.find(symbol)
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        inside = [block.last + 1 for block in self.blocks if node.lineno <= block.first <= node.end_lineno]
        return first, max([node.end_lineno, *inside])

    def body(self, symbol: str) -> tuple[int, int]:
        """First and last line of a function's body: all that comes after its docstring, comments too."""
        node = self.find(symbol)
        docstring = ast.get_docstring(node) is not None
        first = node.body[docstring].lineno
        while not self.lines[first - 2].strip() or self.lines[first - 2].strip().startswith("#"):
            first -= 1
        return first, node.end_lineno

    def cut(self, symbol: str, blocks: Sequence[Block]) -> list[str]:
        """The symbol's lines, as a starter has them in which these blocks are to be written."""
        first, last = self.span(symbol)
        markers = {number for block in self.blocks for number in (block.first - 1, block.last + 1)}
        raised = {block.first: block.raise_line() for block in blocks}
        left_out = {number for block in blocks for number in range(block.first, block.last + 1)}
        kept: list[str] = []
        for number in range(first, last + 1):
            if number in raised:
                kept.append(raised[number])
            elif number not in markers and number not in left_out:
                kept.append(self.lines[number - 1])
        return kept

    def imports(self) -> dict[str, str]:
        """Name -> the statement that brings it into this file."""
        found: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"import {alias.name}" + _as(alias)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"from {node.module} import {alias.name}" + _as(alias)
            for name in _defined_names(node):
                found[name] = f"from {self.module} import {name}"
        return found


def _as(alias: ast.alias) -> str:
    return f" as {alias.asname}" if alias.asname else ""


def _defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def own_blocks(lab: Lab, source: Source, symbol: str) -> list[Block]:
    """What a student of `lab` writes of a symbol, in the order of the lines. Raises MarkerError."""
    first, last = source.span(symbol)
    found = [block for block in source.blocks if block.lab == lab.number and first <= block.first <= last]
    for name, text in lab.bodies.items():
        if name == symbol or name.startswith(symbol + "."):
            start, end = source.body(name)
            indent = " " * source.find(name).body[0].col_offset
            found.append(Block(lab.number, _task_of(lab, name), text, indent, start, end))
    return sorted(found, key=lambda block: block.first)


def _task_of(lab: Lab, name: str) -> str:
    """The first task that grades a function, or the class that it belongs to."""
    for task in lab.tasks:
        if name in task.symbols or name.partition(".")[0] in task.symbols:
            return task.id
    raise MarkerError(f"lab {lab.number}: no task grades {name}, whose body is to be written")


# ---------------------------------------------------------------------- a starter


def build_starter(lab: Lab) -> str:
    """The text of starter.py, as the engine's source and lab.toml make it. Raises MarkerError."""
    sources: dict[str, Source] = {}
    body: list[str] = []
    symbols = [place.partition("::")[2] for place in lab.symbols]
    for name in lab.bodies:
        if not any(name == symbol or name.startswith(symbol + ".") for symbol in symbols):
            raise MarkerError(f"lab {lab.number}: {name}, whose body is to be written, is in none of its symbols")
    current_class = None
    for place in lab.symbols:
        path, _, symbol = place.partition("::")
        source = sources.setdefault(path, Source(lab.root, path))
        blocks = own_blocks(lab, source, symbol)
        if not blocks:
            raise MarkerError(f"lab {lab.number}: in {place} there is nothing to be written")
        owner, _, _ = symbol.rpartition(".")
        if not owner:
            body += ["", "", *source.cut(symbol, blocks)]
        else:
            if owner != current_class:
                body += ["", "", f"class {owner}(given.{owner}):", *_class_docstring(source, owner), ""]
            else:
                body.append("")
            body += source.cut(symbol, blocks)
        current_class = owner or None
    text = "\n".join([*_header(lab), *_imports(lab, sources, body), *body]) + "\n"
    _refuse_leaks(lab, sources, text)
    return text


def check_starter(lab: Lab) -> list[str]:
    """Why the starter can't be built: nothing, or a line that says it."""
    try:
        build_starter(lab)
    except MarkerError as error:
        return [str(error)]
    return []


def _header(lab: Lab) -> list[str]:
    lines = [f'"""Lab {lab.number} · {lab.title}', "", *_wrapped(lab.goal), ""]
    lines += [f"    {task.id}  {task.title} ({task.points} points)" for task in lab.tasks]
    lines += [
        "",
        "Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.",
        f"Then: minivllm lab check {lab.number}",
        '"""',
        "",
    ]
    return lines


def _wrapped(text: str) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def _class_docstring(source: Source, name: str) -> list[str]:
    expression = source.find(name).body[0]
    if not isinstance(expression, ast.Expr) or not isinstance(expression.value, ast.Constant):
        return []
    return source.lines[expression.lineno - 1 : expression.end_lineno]


def _imports(lab: Lab, sources: dict[str, Source], body: list[str]) -> list[str]:
    tree = ast.parse("\n".join(body))
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {  # annotations may be written as text
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
        for name in [node.value]
    }
    wanted = (used | set(lab.extra_imports)) - own
    known: dict[str, str] = {}
    for source in sources.values():
        known |= {name: statement for name, statement in source.imports().items() if name not in known}
    unknown = [name for name in lab.extra_imports if name not in known]
    if unknown:
        raise MarkerError(f"lab {lab.number}: extra_imports has {', '.join(unknown)}, which its files don't know")
    local = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local -= set(lab.extra_imports)  # an argument may have its default from a name like its own
    statements = {known[name] for name in wanted if name in known and name not in local}
    statements -= {known[name] for name in wanted if name in known and hasattr(builtins, name)}
    if "given" in used:
        statements.add("from minivllm.course.grader import given")
    return _sorted_imports(statements)


def _sorted_imports(statements: set[str]) -> list[str]:
    plain = [statement for statement in statements if statement.startswith("import ")]
    by_module: dict[str, list[str]] = {}
    for statement in statements - set(plain):
        module, _, name = statement.removeprefix("from ").partition(" import ")
        by_module.setdefault(module, []).append(name)
    lines = [(statement.split()[1], statement) for statement in plain]
    lines += [(module, _from_import(module, sorted(names, key=_isort_key))) for module, names in by_module.items()]
    groups: dict[int, list[tuple[bool, str, str]]] = {}
    for module, line in lines:
        top = module.partition(".")[0]
        rank = 0 if top in sys.stdlib_module_names else 2 if top.startswith("minivllm") else 1
        groups.setdefault(rank, []).append((line.startswith("from"), module, line))
    parts = ["\n".join(line for _, _, line in sorted(groups[rank])) for rank in sorted(groups)]
    return "\n\n".join(parts).splitlines()


def _isort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _from_import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    return line if len(line) <= WIDTH else f"from {module} import (\n    " + ",\n    ".join(names) + ",\n)"


def _refuse_leaks(lab: Lab, sources: dict[str, Source], text: str) -> None:
    kept = {line.strip() for line in text.splitlines()}
    for source, block in _every_block(lab, sources):
        for line in source.lines[block.first - 1 : block.last]:
            if len("".join(line.split())) >= MIN_LEAK and line.strip() in kept:
                raise MarkerError(
                    f"the starter of lab {lab.number} gives away a line of task {block.task}: {line.strip()}"
                )


def _every_block(lab: Lab, sources: dict[str, Source]) -> Iterator[tuple[Source, Block]]:
    for place in lab.symbols:
        path, _, symbol = place.partition("::")
        for block in own_blocks(lab, sources[path], symbol):
            yield sources[path], block
