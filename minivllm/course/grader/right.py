"""Right solutions in other styles than the engine's: right/*.py of a lab holds what such a student would write.

Owns: how such a file and the starter make a whole solution.
Interface: right_solutions, complete.
Must not know: how a check works.

A file holds imports, helpers, and the functions and methods that replace those of the starter, without the
docstrings, which the starter has. A class holds only the methods that differ.
"""

import ast

from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.cut import build_starter


def right_solutions(lab: Lab) -> dict[str, str]:
    """Name -> text of a whole solution, for every file of right/."""
    starter = build_starter(lab)
    files = sorted((lab.folder / "right").glob("*.py"))
    return {path.stem: complete(starter, path.read_text(encoding="utf-8")) for path in files}


def complete(starter: str, written: str) -> str:
    """The starter with the functions and methods of `written` in place of its own.

    What the starter does not have is added: a method at the end of its class, all else before the first definition.
    """
    lines, new = starter.splitlines(), written.splitlines()
    tree = ast.parse(starter)
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    changes: list[tuple[int, int, list[str]]] = []  # first line and line after the last, from 0, and what goes there
    first_definition = min(map(_first, defined.values())) - 1
    for node in ast.parse(written).body:
        own = defined.get(getattr(node, "name", None))
        if own is None:
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # its docstring
                changes.append((first_definition, first_definition, [*_text(new, node), "", ""]))
        elif isinstance(own, ast.ClassDef):
            methods = {item.name: item for item in own.body if isinstance(item, ast.FunctionDef)}
            for item in node.body:
                method = methods.get(getattr(item, "name", None))
                if method is None:
                    changes.append((own.end_lineno, own.end_lineno, ["", *_text(new, item)]))
                else:
                    changes.append((_first(method) - 1, method.end_lineno, _text(new, item)))
        else:
            changes.append((_first(own) - 1, own.end_lineno, _text(new, node)))
    changes.sort(key=lambda change: change[:2])
    for first, last, text in reversed(changes):  # from the end, so that line numbers hold
        lines[first:last] = text
    return "\n".join(lines) + "\n"


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])


def _text(lines: list[str], node: ast.stmt) -> list[str]:
    return lines[_first(node) - 1 : node.end_lineno]
