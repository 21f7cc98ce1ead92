"""A whole tree of vLLM's source: what is defined where, who imports and inherits it, which files hold which lines.

Owns: the parsed files, each parsed when it is first asked for, and one reading of all files as text. Also the measure
of likeness: two texts are as alike as the share of lines that they have in common, whatever the order and indentation.
Must not know: what anything is looked up for.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from minivllm.proof.refs.lock import COMMON, Lock
from minivllm.proof.refs.resolve import TRIVIAL, Source, Symbol, line_key
from minivllm.proof.refs.source import PACKAGE, Tree

NAMED = re.compile(r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=", re.MULTILINE)
MAX_HOPS = 8


def likeness(one: Iterable[int], other: Iterable[int]) -> float:
    """Twice the lines in common by all lines, 0 to 1; lines that say little do not count."""
    first = Counter(key for key in one if key > TRIVIAL)
    second = Counter(key for key in other if key > TRIVIAL)
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0


class TreeIndex:
    """One version's tree, parsed file by file as it is asked for."""

    def __init__(self, tree: Tree, lock: Lock) -> None:
        self.tree = tree
        self.lock = lock
        self.sources: dict[str, Source | None] = {}

    def source(self, path: str) -> Source | None:
        """The file, parsed; None if there is none, or if this Python can't parse it."""
        if path not in self.sources:
            try:
                self.sources[path] = Source(self.tree.text(path))
            except (KeyError, SyntaxError):
                self.sources[path] = None
        return self.sources[path]

    def symbol(self, path: str, name: str) -> Symbol | None:
        """The definition of a name in a file, if it has one."""
        source = self.source(path)
        return source.symbols.get(name) if source else None

    def keys(self, path: str, name: str) -> list[int]:
        """The keys of a symbol that is there."""
        source = self.source(path)
        return source.keys_of(source.symbols[name]) if source else []

    def files_naming(self, name: str) -> set[str]:
        """The files that seem to define the name, anywhere in them."""
        return self._scanned[0].get(name, set())

    def files_sharing(self, keys: Iterable[int], limit: int = 8) -> list[str]:
        """The files that hold most of these lines; a line counts the less the more files hold it."""
        weights: Counter[str] = Counter()
        for key in set(keys):
            holders = self._scanned[1].get(key, set())
            for path in holders:
                weights[path] += 1 / len(holders)
        return [path for path, _ in sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:limit]]

    @cached_property
    def _scanned(self) -> tuple[dict[str, set[str]], dict[int, set[str]]]:
        """All files, read once without parsing: name -> files, and key of a locked line -> files."""
        wanted = {key for runs in self.lock.runs.values() for _, keys in runs for key in keys if key > TRIVIAL}
        names: dict[str, set[str]] = {}
        lines: dict[int, set[str]] = {}
        for path in sorted(self.tree.paths):
            text = self.tree.text(path)
            for found in NAMED.finditer(text):
                names.setdefault(found[1] or found[2], set()).add(path)
            for key in wanted.intersection(map(line_key, set(text.split("\n")))):
                lines.setdefault(key, set()).add(path)
        return names, lines

    def without_common(self, keys: Iterable[int]) -> list[int]:
        """The keys that say something and that few files hold, of both versions."""
        holders = self._scanned[1]
        return [
            key for key in keys if key > TRIVIAL and key not in self.lock.common and len(holders.get(key, ())) <= COMMON
        ]

    def module_path(self, module: str, importer: str) -> str | None:
        """The file of an imported module of vLLM's; None for others' modules."""
        if module.startswith("."):
            level = len(module) - len(module.lstrip("."))
            parts = importer.split("/")[:-level] + [part for part in module[level:].split(".") if part]
        elif module.split(".")[0] == PACKAGE:
            parts = module.split(".")[1:]
        else:
            return None
        for path in ("/".join(parts) + ".py", "/".join([*parts, "__init__.py"])):
            if path in self.tree.paths:
                return path
        return None

    def follow_import(self, path: str, name: str) -> tuple[str, str] | None:
        """Where the file gets a name from that it does not define: the defining file and the name there."""
        for _ in range(MAX_HOPS):
            source = self.source(path)
            if source is None:
                return None
            if name in source.symbols:
                return path, name
            if name not in source.imports:
                return None
            module, original = source.imports[name]
            found = self.module_path(module, path)
            if found is None:
                return None
            path, name = found, original
        return None

    def ancestors(self, path: str, class_name: str, hops: int = MAX_HOPS) -> set[tuple[str, str]]:
        """The bases of a class and their bases, each as file and name; only those that are vLLM's."""
        source = self.source(path)
        found: set[tuple[str, str]] = set()
        for base in source.bases.get(class_name, []) if source and hops else ():
            at = self.follow_import(path, base.partition("[")[0])
            if at is not None:
                found |= {at} | self.ancestors(*at, hops - 1)
        return found

    def inherited(self, path: str, class_name: str, member: str, hops: int = MAX_HOPS) -> tuple[str, str] | None:
        """Where a class gets a member from that it does not define: the file, and the name there."""
        source = self.source(path)
        if source is None or hops == 0:
            return None
        for base in source.bases.get(class_name, []):
            at = self.follow_import(path, base.partition("[")[0])
            if at is None:
                continue
            if self.symbol(at[0], f"{at[1]}.{member}"):
                return at[0], f"{at[1]}.{member}"
            further = self.inherited(*at, member, hops - 1)
            if further:
                return further
        return None
