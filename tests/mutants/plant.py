"""Puts one wrong edit into one module as it is imported. Nothing is written to disk.

Owns: where an edit is applied.
Must not know: which edits there are.
"""

import ast
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from mutants.edits import Edit

ROOT = Path(__file__).parents[2]


def path_of(edit: Edit) -> Path:
    """The file that an edit is in."""
    return ROOT / "minivllm" / (edit.module.replace(".", "/") + ".py")


def edited(source: str, edit: Edit) -> str:
    """The source with the edit made. Raises ValueError unless its old text stands exactly once in its symbol."""
    body: list[ast.stmt] = ast.parse(source).body
    for name in edit.symbol.split("."):
        node = next((node for node in body if getattr(node, "name", None) == name), None)
        if node is None:
            raise ValueError(f"there is no {edit.symbol} in {edit.module}")
        body = node.body
    lines = source.splitlines(keepends=True)
    inside = "".join(lines[node.lineno - 1 : node.end_lineno])
    if inside.count(edit.old) != 1:
        raise ValueError(f"{edit.old!r} stands {inside.count(edit.old)} times in {edit.symbol}")
    return "".join([*lines[: node.lineno - 1], inside.replace(edit.old, edit.new), *lines[node.end_lineno :]])


def plant(edit: Edit) -> None:
    """From now on, whoever imports the module gets it with the edit. It must not be imported yet."""
    assert f"minivllm.{edit.module}" not in sys.modules
    sys.meta_path.insert(0, _Finder(edit))


class _Finder(MetaPathFinder):
    """Finds the one module that is edited."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != f"minivllm.{self.edit.module}":
            return None
        loader = _Loader(fullname, self.edit)
        return importlib.util.spec_from_file_location(fullname, path_of(self.edit), loader=loader)


class _Loader(SourceFileLoader):
    """Loads a module from its edited source, past the cache of compiled files."""

    def __init__(self, fullname: str, edit: Edit) -> None:
        super().__init__(fullname, str(path_of(edit)))
        self.edit = edit

    def get_code(self, fullname: str) -> CodeType:
        return compile(edited(Path(self.path).read_text(), self.edit), self.path, "exec")
