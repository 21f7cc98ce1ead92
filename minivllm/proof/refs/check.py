"""Our references against the lock, or against a tree of vLLM's source.

Owns: the kinds of mistakes and their words. A finding names our place, what is wrong there, and the nearest right one.
Must not know: how references are collected, or how trees are found.
"""

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from minivllm.proof.refs.index import TreeIndex
from minivllm.proof.refs.lock import Entry, Lock
from minivllm.proof.refs.resolve import Symbol
from minivllm.proof.refs.source import PACKAGE, Tree
from minivllm.proof.refs.uses import Collected, Problem, Use

KINDS = {
    "malformed": "not of the form `vLLM: file.py::Name (note)`, or not the last of its docstring",
    "class-without": "a public class that says nothing about vLLM",
    "boundary-without": "a boundary that says nothing about vLLM",
    "event-without": "an event kind that says nothing about vLLM",
    "prefix": "a path that begins with `vllm/`",
    "wrong-file": "vLLM has no such file",
    "wrong-class": "the file has no such class or function",
    "missing": "the class has no such member",
    "imported": "the file imports the name from where it is defined",
    "inherited": "the class inherits the name from where it is defined",
    "not-locked": "right, or at least not known to be wrong, but not in the lock",
    "stale-lines": "the lines are not those of the symbol",
    "changed": "the text of the symbol is not the locked one",
}


@dataclass(slots=True)
class Checked:
    """What was checked and what was found."""

    against: str
    uses: int = 0
    symbols: int = 0  # different ones
    nones: int = 0
    verified: int = 0  # symbols whose text was compared with the lock, and is equal
    findings: list[Problem] = field(default_factory=list)

    def count(self) -> Counter[str]:
        """Findings by kind."""
        return Counter(finding.kind for finding in self.findings)


def check(collected: Collected, lock: Lock, tree: Tree | None = None) -> Checked:
    """Check every reference: it is well formed, it is in the lock, its lines are right.

    With a tree, too: it is defined where it says, and it and every other locked symbol has the locked text and lines.
    """
    against = f"the lock of vLLM {lock.version}"
    if tree is not None:
        against = f"{tree.label} (vLLM {tree.version or 'of an unknown version'}) and {against}"
    checked = Checked(against, nones=collected.nones, findings=list(collected.problems))
    checked.uses = len(collected.uses)
    checked.symbols = len({use.target for use in collected.uses if use.name})
    index = TreeIndex(tree, lock) if tree is not None else None
    for use in collected.uses:
        problem = _wrong_place(use, lock, index) or _wrong_lines(use, lock)
        if problem is not None:
            checked.findings.append(problem)
    if index is not None:
        for entry in lock.entries.values():
            problem = _wrong_text(entry, index, collected.uses)
            checked.verified += problem is None
            if problem is not None:
                checked.findings.append(problem)
    return checked


def _wrong_place(use: Use, lock: Lock, index: TreeIndex | None) -> Problem | None:
    if use.path.startswith(f"{PACKAGE}/"):
        return _problem("prefix", use, f"leave out `{PACKAGE}/`: paths are relative to the package")
    if index is not None:
        problem = _not_in_tree(use, index)
        if problem is not None:
            return problem
    if not use.name:
        if use.path in lock.files or index is not None:
            return None
        return _problem("wrong-file", use, f"the lock knows no such file{_nearest(use.path, lock.files)}")
    if (use.path, use.name) in lock.entries:
        return None
    if index is not None:
        return _problem("not-locked", use, f"it is in the tree but not in the lock: {_lock_again(lock)}")
    return _not_in_lock(use, lock)


def _not_in_tree(use: Use, index: TreeIndex) -> Problem | None:
    source = index.source(use.path)
    if source is None:
        if use.path in index.tree.paths:
            return _problem("wrong-file", use, "this Python can't parse the file")
        return _problem("wrong-file", use, f"there is no such file{_nearest(use.path, index.tree.paths)}")
    if not use.name or use.name in source.symbols:
        return None
    at = index.follow_import(use.path, use.name.partition(".")[0])
    if at is not None and at[0] != use.path:
        right = ".".join([at[1], *use.name.split(".")[1:]])
        return _problem("imported", use, f"the file imports it; it is defined at {at[0]}::{right}")
    parent, _, member = use.name.rpartition(".")
    if parent and parent not in source.symbols:
        return _problem("wrong-class", use, f"the file has no {parent}{_nearest(parent, source.symbols)}")
    if parent:
        base = index.inherited(use.path, parent, member)
        if base is not None:
            return _problem("inherited", use, f"{parent} inherits it; it is defined at {base[0]}::{base[1]}")
    kind = "missing" if parent else "wrong-class"
    return _problem(kind, use, f"the file has no {use.name}{_nearest(use.name, source.symbols)}")


def _not_in_lock(use: Use, lock: Lock) -> Problem:
    """Without a tree one can't tell a wrong reference from a new one for sure; the list of definitions says most."""
    names = [name for path, name in lock.entries if path == use.path]
    if lock.was_defined(use.path, use.name):
        return _problem("not-locked", use, f"vLLM {lock.version} has it, but the lock does not: {_lock_again(lock)}")
    if not names and not any(lock.was_defined(use.path, part) for part in _prefixes(use.name)):
        return _problem("wrong-file", use, f"the lock knows no such file{_nearest(use.path, lock.files)}")
    parent = use.name.rpartition(".")[0]
    hint = f"{_nearest(use.name, names)}. If it is right: {_lock_again(lock)}"
    if parent and (lock.was_defined(use.path, parent) or parent in names):
        return _problem("missing", use, f"the lock knows no such member of {parent}{hint}")
    return _problem("wrong-class", use, f"the lock knows no {parent or use.name} there{hint}")


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _wrong_lines(use: Use, lock: Lock) -> Problem | None:
    """A passage that names lines must name exactly those of a locked symbol, with or without its decorators."""
    if use.lines is None:
        return None
    if use.name:
        entries = [lock.entries[use.path, use.name]]
    else:
        entries = [entry for (path, _), entry in lock.entries.items() if path == use.path]
    if any(use.lines in ((entry.first, entry.last), (entry.line, entry.last)) for entry in entries):
        return None
    lines = f"{use.lines[0]}-{use.lines[1]}"
    if use.name:
        return _problem("stale-lines", use, f"lines {lines}; it stands at {entries[0].line}-{entries[0].last}")
    return _problem("stale-lines", use, f"lines {lines} are no locked symbol's; name the symbol instead")


def _wrong_text(entry: Entry, index: TreeIndex, uses: Iterable[Use]) -> Problem | None:
    """Whether a locked symbol stands in the tree as it is locked. Its place is that of the first use, or the lock."""
    source = index.source(entry.path)
    symbol: Symbol | None = source.symbols.get(entry.name) if source else None
    place = next((use.place for use in uses if (use.path, use.name) == (entry.path, entry.name)), "the lock")
    if source is None or symbol is None:
        return Problem("missing", place, f"{entry.target} is in the lock, but not in the tree")
    found = source.sha256_of(symbol)
    if found != entry.sha256:
        message = f"{entry.target} has another text than the lock: sha256 {found[:12]}…, locked {entry.sha256[:12]}…"
        return Problem("changed", place, message)
    if (symbol.first, symbol.line, symbol.last) != (entry.first, entry.line, entry.last):
        message = (
            f"{entry.target} stands at lines {symbol.first}-{symbol.last}; the lock says {entry.first}-{entry.last}"
        )
        return Problem("stale-lines", place, message)
    return None


def _problem(kind: str, use: Use, message: str) -> Problem:
    return Problem(kind, use.place, f"{use.target}: {message}")


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; nearest: {found[0]}" if found else ""


def _lock_again(lock: Lock) -> str:
    return f"minivllm refs lock --vllm {lock.version}"
