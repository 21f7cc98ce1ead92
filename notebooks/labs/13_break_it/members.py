"""Bugs as one-line edits of the engine's own source, and repairs laid over them.

Owns: which symbols can be broken or mended, how an edited method becomes a part, how a file with mended methods is
read. Interface: Bug, source_of, broken_members, mended_members, build_parts, Members.
Must not know: cases, points, or which bug is whose.

A bug is no switch in the engine. The method's source is taken, one line is replaced, the result is compiled and laid
over the engine's class; with no mend the broken method stays, with a mend the student's takes its place.
"""

import ast
import importlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minivllm.course.grader.borrowed import engine_names, is_engine
from minivllm.course.grader.child import Parts
from minivllm.parts import seam_of
from minivllm.proof import edits

# class or function -> the module that it is of
HOMES = {
    "Scheduler": "minivllm.core.scheduler",
    "KVCacheManager": "minivllm.core.kv_cache_manager",
    "BlockPool": "minivllm.core.block_pool",
    "FreeKVCacheBlockQueue": "minivllm.core.block_pool",
    "InputBatch": "minivllm.worker.input_batch",
    "TextStream": "minivllm.engine.detokenizer",
    "check_stop": "minivllm.core.request",
    "extend_block_hashes": "minivllm.core.block_hash",
    "hash_block_tokens": "minivllm.core.block_hash",
    "locate_tokens": "minivllm.worker.batch",
    "read_tables": "minivllm.worker.batch",
    "flatten": "minivllm.worker.batch",
    "apply_top_k_top_p": "minivllm.sample.logits_processors",
}
# the part that calls a function by its name -> the module in which it does
CALLERS = {
    "flatten": "minivllm.worker.batch",
    "extend_block_hashes": "minivllm.core.block_hash",
    "Sampler": "minivllm.sample.sampler",
}
Members = dict[str, dict[str, Any]]  # class -> its methods; "" -> functions


@dataclass(frozen=True, slots=True)
class Bug:
    """old stands exactly once in the source of symbol ("BlockPool.touch", or a function); new takes its place."""

    symbol: str
    old: str
    new: str


def source_of(symbol: str) -> str:
    """The engine's own source of a method or function, at the margin."""
    owner, _, name = symbol.rpartition(".")
    member: Any = getattr(importlib.import_module(HOMES[owner or name]), owner or name)
    return textwrap.dedent(inspect.getsource(inspect.getattr_static(member, name) if owner else member))


def edited_source(bug: Bug) -> str:
    """The source of the symbol with the bug in it. Raises EditError when the line is gone."""
    return edits.apply(source_of(bug.symbol), bug.symbol.rpartition(".")[2], bug.old, bug.new)


def broken_members(bug: Bug) -> Members:
    """The method or function with the bug in it."""
    owner, _, name = bug.symbol.rpartition(".")
    namespace = dict(vars(importlib.import_module(HOMES[owner or name])))
    exec(compile(edited_source(bug), "<broken>", "exec"), namespace)
    return {owner: {name: namespace[name]}}


def build_parts(*layers: Members) -> Parts:
    """The engine's classes and functions with members laid over them; a later layer covers an earlier one."""
    members: Members = {}
    for layer in layers:
        for owner, found in layer.items():
            members.setdefault(owner, {}).update(found)
    functions = members.pop("", {})
    parts: Parts = {}
    for owner, methods in members.items():
        base = getattr(importlib.import_module(HOMES[owner]), owner)
        parts[seam_of(owner)] = type(owner, (base,), dict(methods))
    for part, module in CALLERS.items():
        used = {name: function for name, function in functions.items() if name in _names_of(module)}
        if used:
            parts[seam_of(part)] = _executed_again(module, used)[part]
    if "check_stop" in functions:
        parts["check_stop"] = functions["check_stop"]
    return parts


def _names_of(module: str) -> Iterable[str]:
    return vars(importlib.import_module(module))


def _executed_again(name: str, functions: dict[str, Any]) -> dict[str, Any]:
    """A module's namespace, made anew, with some of its functions exchanged."""
    module = importlib.import_module(name)
    namespace = {"__name__": name, "__file__": module.__file__}
    exec(compile(inspect.getsource(module), module.__file__, "exec"), namespace)
    namespace.update(functions)
    return namespace


# ---------------------------------------------------------------------- what a student mends

MODULE = "mended"


def is_written(text: str) -> bool:
    """Whether a file has any class or function; one that can't be read counts as written."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return True
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body)


def mended_members(text: str, path: str) -> Members:
    """The methods and functions of the engine that a file has. Executes it.

    Raises ValueError for a borrowed one, and when there is none that belongs to the engine.

    A class of the file may build on `given.BlockPool` or on nothing: its methods are taken, and no others.
    """
    _refuse_borrowed(ast.parse(text))
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(compile(text, path, "exec"), module.__dict__)
    found: Members = {}
    for name, value in vars(module).items():
        if name not in HOMES or getattr(value, "__module__", None) != MODULE:
            continue
        if isinstance(value, type):
            methods = {key: member for key, member in vars(value).items() if not key.startswith("__")}
            found[name] = methods
        else:
            found.setdefault("", {})[name] = value
    if not found:
        names = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        raise ValueError(
            f"{' and '.join(names)} can't be placed. A method stands in its class, as in "
            "`class BlockPool(given.BlockPool):`, and classes and functions have the engine's names"
        )
    return found


def _refuse_borrowed(tree: ast.Module) -> None:
    """A mended method does the work itself: `given.BlockPool.touch(…)` and `super().touch(…)` are the engine's own."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names = engine_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in own and is_engine(node.value, names):
            raise ValueError(f"line {node.lineno} calls the sound engine's own {node.attr}")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minivllm"):
            taken = [alias.name for alias in node.names if alias.name in own]
            if taken:
                raise ValueError(f"line {node.lineno} imports the sound engine's own {taken[0]}")
