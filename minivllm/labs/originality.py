"""How like another text a solution is, and whether it only calls the engine's own.

Owns: the measure. Interface: similarity, engine_likeness, borrowed.
Must not know: what follows from it; a person decides that.
"""

import ast
from collections import Counter
from pathlib import Path
from typing import Any

from minivllm.labs.catalog import Lab
from minivllm.labs.wrong import solution

GRAM = 4  # node types in a row
MIN_NODES = 40  # a shorter body is alike by accident
REPORTED_FROM = 0.85


def functions(text: str) -> dict[str, ast.AST]:
    """Qualified name -> function, of a file. Raises SyntaxError.

    vLLM: none, vLLM has no labs
    """
    found: dict[str, ast.AST] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def kinds_of(function: ast.AST) -> list[str]:
    """The types of all nodes of a body, in order; names, constants and the docstring do not count.

    vLLM: none, vLLM has no labs
    """
    body = list(function.body)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return [type(node).__name__ for statement in body for node in ast.walk(statement)]


def similarity(one: ast.AST, other: ast.AST) -> float:
    """Dice's measure of the 4-grams of node types: 1.0 for the same text with all names changed.

    vLLM: none, vLLM has no labs
    """
    left, right = (_grams(kinds_of(function)) for function in (one, other))
    total = sum(left.values()) + sum(right.values())
    return 2 * sum((left & right).values()) / total if total else 0.0


def _grams(kinds: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(kinds[i : i + GRAM]) for i in range(len(kinds) - GRAM + 1))


def engine_likeness(lab: Lab, text: str, other: str | None = None) -> list[dict[str, Any]]:
    """Of every function that is long enough, how like the engine's it is (or the one in `other`, another submission).

    vLLM: none, vLLM has no labs
    """
    reference = functions(other if other is not None else solution(lab))
    found = []
    for name, function in functions(text).items():
        nodes = len(kinds_of(function))
        if name in reference and nodes >= MIN_NODES:
            found.append(
                {"symbol": name, "similarity": round(similarity(function, reference[name]), 2), "nodes": nodes}
            )
    return found


# ---------------------------------------------------------------------- borrowed


def borrowed(lab: Lab, path: Path) -> dict[str, str]:
    """Task -> why it counts nothing: a graded method that calls the engine's own in place of doing the work.

    vLLM: none, vLLM has no labs
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = functions(text)
    except (SyntaxError, UnicodeDecodeError):
        return {}
    graded = {symbol.rpartition(".")[2] for task in lab.tasks for symbol in task.symbols}
    names = engine_names(ast.parse(text))
    reasons: dict[str, str] = {}
    for name, function in found.items():
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in graded and is_engine(node.value, names):
                for task in lab.tasks:
                    if any(name == symbol or name.startswith(symbol + ".") for symbol in task.symbols):
                        reasons[task.id] = f"line {node.lineno} calls the engine's own {node.attr}"
    for name, line in _imported_symbols(ast.parse(text), graded).items():
        for task in lab.tasks:
            if name in task.symbols:
                reasons[task.id] = f"line {line} imports the engine's own {name}"
    return reasons


def engine_names(tree: ast.Module) -> set[str]:
    """Names of the file that stand for the engine's modules or classes.

    vLLM: none, vLLM has no labs
    """
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
    """Whether an expression begins with one of the names.

    vLLM: none, vLLM has no labs
    """
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names


def _imported_symbols(tree: ast.Module, graded: set[str]) -> dict[str, int]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minivllm"):
            found |= {alias.name: node.lineno for alias in node.names if alias.name in graded}
    return found
