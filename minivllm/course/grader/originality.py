"""How like another text a solution is, and whether it only calls the engine's own.

Owns: the measure. Interface: similarity, engine_likeness, borrowed.
Must not know: what follows from it; a person decides that.
"""

import ast
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.wrong import solution

GRAM = 4  # node types in a row
MIN_NODES = 40  # a shorter body is alike by accident
REPORTED_FROM = 0.85
Grams = Counter[tuple[str, ...]]


def functions(text: str) -> dict[str, ast.AST]:
    """Qualified name -> function, of a file. Raises SyntaxError."""
    return functions_of(ast.parse(text))


def functions_of(tree: ast.Module) -> dict[str, ast.AST]:
    """The same, of a syntax tree."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def kinds_of(function: ast.AST) -> list[str]:
    """The types of all nodes of a body, in order; names, constants and the docstring do not count."""
    body = list(function.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [type(node).__name__ for statement in body for node in ast.walk(statement)]


def similarity(one: ast.AST, other: ast.AST) -> float:
    """Dice's measure of the 4-grams of node types: 1.0 for the same text with all names changed."""
    return _dice(*(_grams(kinds_of(function)) for function in (one, other)))


def _dice(left: Grams, right: Grams) -> float:
    total = sum(left.values()) + sum(right.values())
    return 2 * sum((left & right).values()) / total if total else 0.0


def _grams(kinds: list[str]) -> Grams:
    return Counter(tuple(kinds[i : i + GRAM]) for i in range(len(kinds) - GRAM + 1))


@lru_cache(maxsize=512)  # a class is compared pair by pair
def _measured(text: str) -> dict[str, tuple[int, Grams]]:
    """Function -> nodes of its body, and their 4-grams."""
    kinds = {name: kinds_of(function) for name, function in functions(text).items()}
    return {name: (len(found), _grams(found)) for name, found in kinds.items()}


def engine_likeness(lab: Lab, text: str, other: str | None = None) -> list[dict[str, Any]]:
    """Of every function that is long enough, how like the engine's it is (or that in `other`, another submission)."""
    reference = _measured(other if other is not None else solution(lab))
    return [
        {"symbol": name, "similarity": round(_dice(grams, reference[name][1]), 2), "nodes": nodes}
        for name, (nodes, grams) in _measured(text).items()
        if name in reference and nodes >= MIN_NODES
    ]


# ---------------------------------------------------------------------- borrowed


def borrowed(lab: Lab, path: Path) -> dict[str, str]:
    """Symbol -> why its tasks count nothing: it calls, names or imports the engine's own in place of doing the work."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):  # the judge says it
        return {}
    symbols = [symbol for task in lab.tasks for symbol in task.symbols]
    names, graded = engine_names(tree), {symbol.rpartition(".")[2] for symbol in symbols}
    reasons: dict[str, str] = {}
    for name, function in functions_of(tree).items():
        if any(name == symbol or name.startswith(f"{symbol}.") for symbol in symbols):
            for node in ast.walk(function):
                used = _named(node)
                if used is not None and used[1] in graded and is_engine(used[0], names):
                    reasons[name] = f"line {node.lineno} calls the engine's own {used[1]}"
    for name, line in _assigned(tree, names).items():
        if name in symbols:
            reasons[name] = f"line {line} takes the engine's own {name.rpartition('.')[2]}"
    for name, line in _imported_symbols(tree, graded).items():
        if name in symbols:
            reasons[name] = f"line {line} imports the engine's own {name}"
    return reasons


def _named(node: ast.AST) -> tuple[ast.AST, str] | None:
    """Owner and name of `owner.name`, and of `getattr(owner, "name")`."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        match node.args:
            case [owner, ast.Constant(value=str(name)), *_]:
                return owner, name
    return None


def _assigned(tree: ast.Module, names: set[str]) -> dict[str, int]:
    """Symbol -> line, of what is the engine's own by an assignment: at the margin, or in a class."""
    found = {}
    bodies = [("", tree.body), *((f"{node.name}.", node.body) for node in tree.body if isinstance(node, ast.ClassDef))]
    for prefix, body in bodies:
        for node in body:
            if isinstance(node, ast.Assign) and is_engine(node.value, names):
                found |= {f"{prefix}{ast.unparse(target)}": node.lineno for target in node.targets}
    return found


def engine_names(tree: ast.Module) -> set[str]:
    """Names of the file that stand for the engine's modules or classes."""
    names = {"given", "super"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minivllm"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                (alias.asname or alias.name).partition(".")[0]
                for alias in node.names
                if alias.name.startswith("minivllm")
            }
        elif isinstance(node, ast.Assign) and is_engine(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def is_engine(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression begins with one of the names."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names


def _imported_symbols(tree: ast.Module, graded: set[str]) -> dict[str, int]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minivllm"):
            found |= {alias.name: node.lineno for alias in node.names if alias.name in graded}
    return found
