"""A pytest plugin that puts one wrong edit into one module as it is imported. Nothing is written to disk.

Owns: where an edit is applied. The edit comes as JSON in the environment: {"module", "symbol", "old", "new"}.
Must not know: which edits there are.
"""

import ast
import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
VARIABLE = "MINIVLLM_MUTANT"


def path_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def edited(source: str, symbol: str, old: str, new: str) -> str:
    """The source with `old` replaced in one function or class, like "Scheduler.schedule".

    Raises ValueError unless `old` stands there exactly once.
    """
    body: list[ast.stmt] = ast.parse(source).body
    for name in symbol.split("."):
        node = next((n for n in body if getattr(n, "name", None) == name), None)
        if node is None:
            raise ValueError(f"there is no {symbol}")
        body = node.body
    lines = source.splitlines(keepends=True)
    before, inside, after = lines[: node.lineno - 1], lines[node.lineno - 1 : node.end_lineno], lines[node.end_lineno :]
    text = "".join(inside)
    if text.count(old) != 1:
        raise ValueError(f"{old!r} stands {text.count(old)} times in {symbol}")
    return "".join(before) + text.replace(old, new) + "".join(after)


class MutatedLoader(SourceFileLoader):
    """Loads a module from its edited source, past the cache of compiled files."""

    def __init__(self, module: str, edit: dict[str, str]) -> None:
        super().__init__(module, str(path_of(module)))
        self.edit = edit

    def get_code(self, fullname: str) -> CodeType:
        source = edited(Path(self.path).read_text(), self.edit["symbol"], self.edit["old"], self.edit["new"])
        return compile(source, self.path, "exec")


class MutantFinder(MetaPathFinder):
    """Finds the one module that is edited."""

    def __init__(self, edit: dict[str, str]) -> None:
        self.edit = edit

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self.edit["module"]:
            return None
        loader = MutatedLoader(fullname, self.edit)
        return importlib.util.spec_from_file_location(fullname, path_of(fullname), loader=loader)


if VARIABLE in os.environ:
    sys.meta_path.insert(0, MutantFinder(json.loads(os.environ[VARIABLE])))
