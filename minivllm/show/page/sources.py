"""Where a marked method is: in our source, and its counterpart in vLLM's.

Owns: nothing; our files are read as text, vLLM's lines come from the lock.
Interface: our_source, vllm_source.
Must not know: what a method does. Nothing is imported to look at it.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.proof.refs.lock import PINNED, Lock, read_lock

ROOT = Path(__file__).parents[2]
RELEASE = f"https://github.com/vllm-project/vllm/blob/v{PINNED}/vllm"


@cache
def our_source(method: str) -> dict[str, Any] | None:
    """File and lines of `Class.method`, None if there is no such class."""
    owner, _, name = method.partition(".")
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f"class {owner}(" not in text and f"class {owner}:" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == name:
                        return {"file": f"minivllm/{path.relative_to(ROOT)}", "lines": [item.lineno, item.end_lineno]}
    return None


def vllm_source(reference: str) -> dict[str, Any] | None:
    """File, symbol, lines and address of `path::Qual.name` at the pinned version; None for `none, reason`."""
    path, _, name = reference.partition("::")
    entry = _lock().entries.get((path, name))
    if entry is None:
        return None
    url = f"{RELEASE}/{path}#L{entry.first}-L{entry.last}"
    return {"file": path, "name": name, "lines": [entry.first, entry.last], "url": url}


@cache
def _lock() -> Lock:
    return read_lock()
