"""Puts one wrong edit into one file as it is imported, or read as text. Nothing is written to disk.

Owns: when an edit is applied; where, minivllm/proof/edits.py knows.
Must not know: which edits there are.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from mutants.edits import Edit

from minivllm.proof import edits

ROOT = Path(__file__).parents[2]


def path_of(edit: Edit) -> Path:
    """The file that an edit is in."""
    return ROOT / edit.path


def edited(source: str, edit: Edit) -> str:
    """The source with the edit made. Raises EditError unless its old text stands exactly once in its symbol."""
    return edits.apply(source, edit.symbol, edit.old, edit.new, python=edit.path.endswith(".py"))


def plant(edit: Edit) -> None:
    """From now on, whoever imports the module or reads the file gets it with the edit. It must not be imported yet."""
    if edit.path.endswith(".py"):
        assert edit.module not in sys.modules
        sys.meta_path.insert(0, _Finder(edit))
        return
    path, read_text = path_of(edit).resolve(), Path.read_text

    def read_edited(self: Path, *args: Any, **kwargs: Any) -> str:
        text = read_text(self, *args, **kwargs)
        return edited(text, edit) if self.name == path.name and self.resolve() == path else text

    Path.read_text = read_edited


class _Finder(MetaPathFinder):
    """Finds the one module that is edited."""

    def __init__(self, edit: Edit) -> None:
        self.edit = edit

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.edit.module:
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
