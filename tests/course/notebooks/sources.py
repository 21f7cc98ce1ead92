"""The notebooks as the tests see them: cells of the .py, the calls in them, and the prose that an author typed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docs.pages import CODE, FENCED, HEADING, MARKS, ROOT

from minivllm.course.notebook import build

SOURCES = build.sources()
NUMBERS = tuple(f"{number:02}" for number in range(15))
# A number may be a name: of a step, a block, a setting's old and new value. Nought, one and minutes to plan are words.
NAMES = (
    "requests?|steps?|positions?|blocks?|slots?|seeds?|temperature|notebooks?|sections?|cells?|traps?|layers?|heads?|rows?"
    "|tokens?|budgets?|pools?|seats?|thresholds?|detail|tiles?|programs?|levels?|checks?|checkpoints?|stops?|phases?"
    "|evidence|vllm|python|plan|puzzles?|labs?|max_model_len|head_dim|top-k|top-p|min-p|top|warps?|stages?|from|time:"
)
LIST = r"-?\d[\d.]*((,| and| or| to| →|,? then) \d[\d.]*)*"
LABELLED = re.compile(
    rf"(?i)\b({NAMES})[ -](of |id |size |number )?{LIST}|\d+ minutes|2\^\S*|(?<![\w.])[−-]?([01]|0\d)(?![\w.]*\d)"
)
LINK = re.compile(r"\[([^\]]*)\]\(([^()\s]+)\)")
TYPED = re.compile(r"(?:\S+ ){0,4}(?<![\w.⟨])\d\S*")


class Cell(NamedTuple):
    """One cell of a notebook's source."""

    place: int
    kind: str  # markdown or code
    text: str
    tags: tuple[str, ...]


@cache
def cells(path: Path) -> tuple[Cell, ...]:
    book = build.read_source(path)
    return tuple(
        Cell(place, cell.cell_type, cell.source, tuple(cell.metadata.get("tags", ())))
        for place, cell in enumerate(book.cells)
    )


def markdown(path: Path) -> str:
    return "\n\n".join(cell.text for cell in cells(path) if cell.kind == "markdown")


def code_cells(path: Path) -> list[Cell]:
    """All code cells but the setup."""
    return [cell for cell in cells(path) if cell.kind == "code" and "setup" not in cell.tags]


def questions(path: Path) -> str:
    """The module that holds a notebook's predictions, recall and closing questions."""
    return (ROOT / f"notebooks/ask_{path.stem[:2]}.py").read_text(encoding="utf-8")


def calls(path: Path, name: str) -> list[ast.Call]:
    """Every call of a function of the framework, in the cells and in the questions."""
    texts = [*(cell.text for cell in code_cells(path)), questions(path)]
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", getattr(n.func, "attr", "")) == name]


def typed_numbers(text: str) -> list[str]:
    """Numbers in a text that an author typed and that are no names, each with the words before it."""
    for pattern, instead in ((FENCED, ""), (MARKS, ""), (CODE, "`"), (HEADING, "")):
        text = pattern.sub(instead, text)
    text = LINK.sub(lambda match: re.sub(r"\d", "", match[1]), text)
    text = re.sub(r"^\s*\d+\. ", "", text, flags=re.MULTILINE)
    return TYPED.findall(LABELLED.sub("", " ".join(text.split())))


def sentences(text: str) -> Iterator[str]:
    """The strings in code that hold prose: what is computed in them is left out, keys of dicts are free."""
    tree = ast.parse(text)
    skipped = {id(part) for node in ast.walk(tree) for part in _not_prose(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "`x`" for p in node.values)
            skipped |= {id(part) for part in ast.walk(node) if part is not node and not _nested(part)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.value


def _nested(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr)


def _not_prose(node: ast.AST) -> Iterator[ast.AST]:
    """Keys, and the names that a call of the framework or an index takes."""
    if isinstance(node, ast.Dict):
        yield from (part for key in node.keys if key is not None for part in ast.walk(key))
    elif isinstance(node, ast.Subscript):
        yield from ast.walk(node.slice)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in ("code", "trace", "Story", "startswith", "split", "join", "filter"):
            yield from (part for one in node.args for part in ast.walk(one))
        for keyword in node.keywords:
            if keyword.arg in ("names", "columns", "mark", "start", "vllm", "params", "dtype", "ruler"):
                yield from ast.walk(keyword.value)


def product_lines() -> dict[tuple[str, str, str], str]:
    """Three lines of the engine or the kernels that follow one another, none of them trivial -> where they are."""
    found = {}
    for folder in ("minivllm", "kernels"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, three in triples(path.read_text(encoding="utf-8")):
                found.setdefault(three, f"{path.relative_to(ROOT)}:{number}")
    return found


def triples(text: str) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """(line number, three lines) without indentation, comments and blank lines; none shorter than a statement."""
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    for (number, one), (_, two), (_, three) in zip(lines, lines[1:], lines[2:], strict=False):
        if all(len(line) > 8 and re.search(r"\w\W*\w\W*\w\W*\w", line) for line in (one, two, three)):
            yield number, (one, two, three)
