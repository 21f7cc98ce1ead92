"""The lock: what each symbol was at the pinned version of vLLM.

Owns: two files beside this one. `vllm-0.22.0.lock.json` holds file, name, kind, lines and sha256 of each symbol.
`vllm-0.22.0.lines.json.gz` holds what drift needs when vLLM 0.22.0 itself is not at hand, without holding its text: a
number for each line of each locked symbol and one for each definition that 0.22.0 has at all, and which of those lines
many files hold.
The lock may hold more symbols than are referred to, so that a new sentence seldom needs a new lock.
Must not know: who refers to what.
"""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.proof.refs.resolve import KEY_BITS, TRIVIAL, Source, checksum
from minivllm.proof.refs.source import Tree

PINNED = "0.22.0"
LOCK_FILE = Path(__file__).with_name(f"vllm-{PINNED}.lock.json")
LINES_FILE = Path(__file__).with_name(f"vllm-{PINNED}.lines.json.gz")
KEY_BYTES = KEY_BITS // 8
COMMON = 3  # lines in more files than that are everybody's (`self,`), and tell nothing about where a text went
DEFINITIONS = ("class", "function", "method", "kernel")


@dataclass(frozen=True, slots=True)
class Entry:
    """One locked symbol. Line numbers count from 1 and include both ends."""

    path: str
    name: str
    kind: str  # as resolve.Symbol.kind
    first: int  # its first decorator, or `line`
    line: int  # its def, class or assignment
    last: int
    sha256: str

    @property
    def target(self) -> str:
        """The reference as it is written."""
        return f"{self.path}::{self.name}"


@dataclass(frozen=True)
class Lock:
    """All locked symbols, and the keys of their lines."""

    version: str
    entries: dict[tuple[str, str], Entry]
    runs: dict[str, list[tuple[int, list[int]]]]  # path -> (first line, a key for each line)
    defined: frozenset[int]  # checksums of `path::name` of every class and function of that version
    common: frozenset[int]  # keys of locked lines that more than COMMON files of that version hold

    @cached_property
    def files(self) -> frozenset[str]:
        """The files that hold locked symbols."""
        return frozenset(path for path, _ in self.entries)

    def keys_of(self, entry: Entry) -> list[int]:
        """One number a line, see `resolve.line_key`."""
        for start, keys in self.runs[entry.path]:
            if start <= entry.first and entry.last < start + len(keys):
                return keys[entry.first - start : entry.last - start + 1]
        raise InputError(f"{LINES_FILE.name} lacks the lines of {entry.target}. Make the lock again.")

    def was_defined(self, path: str, name: str) -> bool:
        """Whether the pinned version has this class or function (wrong for one name in about 400)."""
        return checksum(f"{path}::{name}") in self.defined


def make_lock(tree: Tree, targets: Iterable[tuple[str, str]]) -> tuple[Lock, list[str]]:
    """Lock the targets (path, name) as they are in `tree`; also says which ones are not there."""
    sources: dict[str, Source] = {}
    defined = set()
    for path in sorted(tree.paths):
        source = sources[path] = Source(tree.text(path))
        defined |= {checksum(f"{path}::{name}") for name, it in source.symbols.items() if it.kind in DEFINITIONS}
    entries, missing = {}, []
    lines: dict[str, set[int]] = {}
    for path, name in sorted(set(targets)):
        symbol = sources[path].symbols.get(name) if path in sources else None
        if symbol is None:
            missing.append(f"{path}::{name}")
            continue
        sha256 = sources[path].sha256_of(symbol)
        entries[path, name] = Entry(path, name, symbol.kind, symbol.first, symbol.line, symbol.last, sha256)
        lines.setdefault(path, set()).update(range(symbol.first, symbol.last + 1))
    runs = {
        path: [(first, sources[path].line_keys[first - 1 : last]) for first, last in _runs(numbers)]
        for path, numbers in lines.items()
    }
    locked = {key for of_file in runs.values() for _, keys in of_file for key in keys if key > TRIVIAL}
    holders = Counter(key for source in sources.values() for key in locked.intersection(source.line_keys))
    common = frozenset(key for key, count in holders.items() if count > COMMON)
    return Lock(tree.version or PINNED, entries, runs, frozenset(defined), common), missing


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    """A set of numbers as the runs of neighbours in it."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


# ---------------------------------------------------------------------- files


def write_lock(lock: Lock, lock_file: Path = LOCK_FILE, lines_file: Path = LINES_FILE) -> None:
    """Write both files; the same lock gives the same bytes."""
    by_file: dict[str, list[str]] = {}
    for (path, name), entry in sorted(lock.entries.items()):
        about: dict[str, Any] = {"kind": entry.kind, "lines": [entry.first, entry.last]}
        if entry.line != entry.first:
            about["def"] = entry.line
        about["sha256"] = entry.sha256
        by_file.setdefault(path, []).append(f"  {json.dumps(name)}: {json.dumps(about)}")
    files = ",\n".join(f" {json.dumps(path)}: {{\n" + ",\n".join(rows) + "\n }" for path, rows in by_file.items())
    lock_file.write_text(f'{{"vllm": {json.dumps(lock.version)}, "symbols": {{\n{files}\n}}}}\n', encoding="utf-8")
    content = {
        "vllm": lock.version,
        "lines": {path: [[first, _pack(keys)] for first, keys in runs] for path, runs in sorted(lock.runs.items())},
        "defined": _pack(sorted(lock.defined)),
        "common": _pack(sorted(lock.common)),
    }
    lines_file.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))


def read_lock(lock_file: Path = LOCK_FILE, lines_file: Path = LINES_FILE) -> Lock:
    """Read both files. Raises InputError if they are missing, damaged, or not of the same version."""
    try:
        symbols = json.loads(lock_file.read_text(encoding="utf-8"))
        lines = json.loads(gzip.decompress(lines_file.read_bytes()))
        entries = {
            (path, name): Entry(
                path, name, it["kind"], it["lines"][0], it.get("def", it["lines"][0]), it["lines"][1], it["sha256"]
            )
            for path, names in symbols["symbols"].items()
            for name, it in names.items()
        }
        runs = {path: [(first, _unpack(keys)) for first, keys in runs] for path, runs in lines["lines"].items()}
        defined, common = (frozenset(_unpack(lines[name])) for name in ("defined", "common"))
        lock = Lock(symbols["vllm"], entries, runs, defined, common)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"The lock ({lock_file.name} and {lines_file.name}) can't be read: {error!r}. Make it again: "
            f"minivllm refs lock --vllm {PINNED}"
        ) from error
    if lines["vllm"] != lock.version:
        raise InputError(f"{lines_file.name} is of vLLM {lines['vllm']}, but {lock_file.name} is of {lock.version}.")
    return lock


def _pack(keys: Iterable[int]) -> str:
    return base64.b64encode(b"".join(key.to_bytes(KEY_BYTES, "big") for key in keys)).decode()


def _unpack(packed: str) -> list[int]:
    raw = base64.b64decode(packed)
    return [int.from_bytes(raw[at : at + KEY_BYTES], "big") for at in range(0, len(raw), KEY_BYTES)]
