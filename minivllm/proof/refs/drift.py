"""What became of each symbol of the pinned version in another version, and which places of ours rest on it.

Owns: the verdicts. `same`: at its place with the same text. `changed`: at its place with another text. `moved`: in
another file or class. `renamed`: under another name, the best guess with its score. `gone`: nowhere to be found.
Must not know: how verdicts are shown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minivllm.proof.refs.follow import WORTH_NAMING, Follower, Place
from minivllm.proof.refs.index import TreeIndex, likeness
from minivllm.proof.refs.lock import Entry, Lock
from minivllm.proof.refs.resolve import BLANK
from minivllm.proof.refs.source import Tree
from minivllm.proof.refs.uses import Use

STATUSES = ("same", "changed", "moved", "renamed", "gone")
HOLLOW = 0.4  # a text that kept less than this is looked for elsewhere
HOLLOW_LINES = 10
FEW_NAMESAKES = 2  # more of them say nothing


@dataclass(frozen=True, slots=True)
class Verdict:
    """One symbol in one other version."""

    entry: Entry
    status: str  # one of STATUSES
    path: str = ""  # where it is now; empty if gone
    name: str = ""
    first: int = 0  # its lines there, decorators included
    last: int = 0
    removed: int = 0  # lines of the pinned text that are not in the new one, blank lines and order left out
    added: int = 0
    score: float = 1.0  # likeness of the two texts, 0 to 1
    note: str = ""

    @property
    def target(self) -> str:
        """Where it is now, as a reference; empty if gone."""
        return f"{self.path}::{self.name}" if self.path else ""


def drift(lock: Lock, tree: Tree, entries: Iterable[Entry] | None = None) -> list[Verdict]:
    """The verdict on each entry (by default on all that the lock holds), in their order."""
    index = TreeIndex(tree, lock)
    follower = Follower(index)
    return [_judge(entry, index, follower) for entry in (lock.entries.values() if entries is None else entries)]


def _judge(entry: Entry, index: TreeIndex, follower: Follower) -> Verdict:
    keys = index.lock.keys_of(entry)
    source = index.source(entry.path)
    symbol = source.symbols.get(entry.name) if source else None
    if source and symbol:
        if source.sha256_of(symbol) == entry.sha256:
            return Verdict(entry, "same", entry.path, entry.name, symbol.first, symbol.last)
        note = _hollow(entry, keys, source.keys_of(symbol), follower)
        return _moved(entry, "changed", index, Place(entry.path, entry.name, 0, 0, note))
    place = follower.follow(entry)
    if place is not None:
        same_name = place.name.rpartition(".")[2] == entry.name.rpartition(".")[2]
        return _moved(entry, "moved" if same_name else "renamed", index, place)
    return Verdict(entry, "gone", score=0.0, note=_farewell(entry, keys, index, follower))


def _moved(entry: Entry, status: str, index: TreeIndex, place: Place) -> Verdict:
    symbol = index.symbol(place.path, place.name)
    assert symbol is not None
    old = [key for key in index.lock.keys_of(entry) if key != BLANK]
    new = [key for key in index.keys(place.path, place.name) if key != BLANK]
    removed = (Counter(old) - Counter(new)).total()
    added = (Counter(new) - Counter(old)).total()
    return Verdict(
        entry, status, place.path, place.name, symbol.first, symbol.last, removed, added, likeness(old, new), place.how
    )


def _hollow(entry: Entry, old: Sequence[int], new: Sequence[int], follower: Follower) -> str:
    """Where the text went, if the name stayed but little of its text did."""
    before = Counter(key for key in old if key > 1)
    kept = (before & Counter(new)).total()
    if before.total() < HOLLOW_LINES or kept >= HOLLOW * before.total():
        return ""
    best = next(iter(follower.guesses(entry, list(old))), None)
    if best is None or best.score <= likeness(old, new):
        return ""
    return f"more of its text is in {best.path}::{best.name} ({best.score:.2f})"


def _farewell(entry: Entry, keys: list[int], index: TreeIndex, follower: Follower) -> str:
    """For a symbol that is gone: what stands in for it, is nearest to it, or still has its name."""
    parent, _, member = entry.name.rpartition(".")
    base = index.inherited(entry.path, parent, member) if parent else None
    if base is not None:
        return f"{parent} inherits it from {base[0]}::{base[1]}"
    best = next(iter(follower.guesses(entry, keys)), None)
    if best is not None and best.telling >= WORTH_NAMING:
        return f"nearest: {best.path}::{best.name} ({best.score:.2f})"
    named = [
        f"{path}::{name}"
        for path in sorted(index.files_naming(member))
        if (source := index.source(path)) is not None
        for name in source.symbols
        if name.rpartition(".")[2] == member
    ]
    return f"the name is still in {' and '.join(named)}" if 0 < len(named) <= FEW_NAMESAKES else ""


def resting_on(uses: Sequence[Use]) -> dict[tuple[str, str], list[Use]]:
    """The places of ours by the symbol that they rest on."""
    places: dict[tuple[str, str], list[Use]] = {}
    for use in uses:
        if use.name:
            places.setdefault((use.path, use.name), []).append(use)
    return places
