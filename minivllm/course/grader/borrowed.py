"""Whether a solution only calls the engine's own in place of doing the work.

Interface: borrowed, engine_names, is_engine.
Must not know: what follows from it.
"""

import ast
from pathlib import Path

from minivllm.course.grader.catalog import Lab


def borrowed(lab: Lab, path: Path) -> dict[str, str]:
    """Symbol -> why its tasks count nothing: it calls, names or imports the engine's own in place of doing the work."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):  # the judge says it
        return {}
    symbols = [symbol for task in lab.tasks for symbol in task.symbols]
    names, graded = engine_names(tree), {symbol.rpartition(".")[2] for symbol in symbols}
    reasons: dict[str, str] = {}
    for name, function in _functions_of(tree).items():
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


def _functions_of(tree: ast.Module) -> dict[str, ast.AST]:
    """Qualified name -> function."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


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
