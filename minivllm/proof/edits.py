"""One edit of a source text: a wrong solution, a bug, a mutant.

Owns: where an edit is made. Interface: apply, span, EditError.
Must not know: which edits there are, or what they are for.
"""

import ast
import re


class EditError(ValueError):
    """An edit can't be made: its symbol, or its text in it, is not there exactly once."""


def apply(text: str, symbol: str, old: str, new: str, python: bool = True) -> str:
    """The text with `new` in place of `old`, which must stand exactly once in the symbol. Raises EditError.

    symbol: "Class.method", a class or a function; "": the whole text. python: False for JavaScript.
    """
    lines = text.splitlines(keepends=True)
    first, last = span(text, symbol, python)
    part = "".join(lines[first - 1 : last])
    if part.count(old) != 1:
        raise EditError(f"{old!r} stands {part.count(old)} times in {symbol or 'the file'}")
    return "".join([*lines[: first - 1], part.replace(old, new), *lines[last:]])


def span(text: str, symbol: str, python: bool = True) -> tuple[int, int]:
    """First and last line of a symbol, from 1 on. Raises EditError."""
    if not symbol:
        return 1, len(text.splitlines())
    return _span_in_python(text, symbol) if python else _span_in_javascript(text.splitlines(), symbol)


def _span_in_python(text: str, symbol: str) -> tuple[int, int]:
    node: ast.AST = ast.parse(text)
    for name in symbol.split("."):
        node = next((child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name), None)
        if node is None:
            raise EditError(f"there is no {symbol}")
    return node.lineno, node.end_lineno


def _span_in_javascript(lines: list[str], symbol: str) -> tuple[int, int]:
    """A function, class, method or constant: up to the line that closes it, which is indented as its first one is."""
    name = re.escape(symbol.rpartition(".")[2])
    head = re.compile(rf"\s*(export )?(async )?(function\*? |class |const |let |static |get )?{name}\b\s*[=({{:]")
    begins = [number for number, line in enumerate(lines) if head.match(line)]
    begins = [number for number in begins if lines[number].rstrip().endswith(("{", "(", "["))] or begins
    if len(begins) != 1:
        raise EditError(f"there are {len(begins)} lines that begin {symbol}")
    first = begins[0]
    if not lines[first].rstrip().endswith(("{", "(", "[")):
        return first + 1, first + 1
    indent = len(lines[first]) - len(lines[first].lstrip())
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return first + 1, number + 1
    raise EditError(f"{symbol} is not closed")
