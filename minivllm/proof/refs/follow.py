"""Where a symbol of the pinned version is in another version's tree, when it is no longer at its place.

Owns: the search. What is followed first: an import that the old file left behind; the class that a method belongs to,
where that went; the bases of that class. Then any definition of the same name, or of another name with a similar text,
is a guess. For guesses, lines that many files hold do not count. A definition that the pinned version had already is
nobody's new place, nor is the method of a sibling: of a class with the same base.
Must not know: who refers to the symbol.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from minivllm.proof.refs.index import TreeIndex, likeness
from minivllm.proof.refs.lock import Entry

SAME_NAME = 0.4  # a definition of the same name with so similar a text is the symbol, moved
SAME_QUALIFIED_NAME = 0.25  # the same with its class's name
OTHER_NAME = 0.5  # a definition of another name with so similar a text is the symbol, renamed
WORTH_NAMING = 0.25  # less similar than that is no hint
FEW_LINES = 4  # too few to know a text by without its name

GROUPS = {
    **dict.fromkeys(("function", "method", "kernel"), "function"),
    "class": "class",
    **dict.fromkeys(("constant", "field", "attribute"), "value"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a symbol is now, and how that is known."""

    path: str
    name: str
    score: float  # likeness of the texts, 0 to 1
    telling: float  # the same without the lines that many files hold
    how: str  # for the reader: an import, its class, likeness, …


class Follower:
    """Follows locked symbols into one tree."""

    def __init__(self, index: TreeIndex) -> None:
        self.index = index
        self.lock = index.lock
        self.found: dict[tuple[str, str], Place | None] = {}

    def follow(self, entry: Entry) -> Place | None:
        """The new place of a symbol that is not at its old one, or None: it is gone."""
        if entry.target not in self.found:
            self.found[entry.target] = None  # while it is looked for
            self.found[entry.target] = self._follow(entry)
        return self.found[entry.target]

    def _follow(self, entry: Entry) -> Place | None:
        keys = self.lock.keys_of(entry)
        led = next((place for place in self._led(entry, keys) if place is not None), None)
        if led is not None:
            return led
        guesses = [guess for guess in self.guesses(entry, keys) if guess.telling >= _needed(entry, guess)]
        best = max(
            guesses, key=lambda guess: guess.telling + 0.1 * (_last(guess.name) == _last(entry.name)), default=None
        )
        return best or self._only_one(entry, keys)

    def _led(self, entry: Entry, keys: list[int]) -> Iterator[Place | None]:
        """Places that the code itself leads to."""
        parent, _, member = entry.name.rpartition(".")
        at = self.index.follow_import(entry.path, entry.name.partition(".")[0])
        if at and at[0] != entry.path:
            name = ".".join([at[1], *entry.name.split(".")[1:]])
            yield self._place(at[0], name, keys, "the old file imports it from there")
        if not parent:
            return
        home = self._home(entry.path, parent)
        if home is None:
            return
        if home != (entry.path, parent):
            yield self._place(home[0], f"{home[1]}.{member}", keys, f"with {parent}")
        base = self.index.inherited(*home, member)
        if base:
            place = self._place(*base, keys, f"{home[1]} inherits it from there")
            if place and (not self.lock.was_defined(*base) or place.score >= SAME_NAME):
                yield place

    def _home(self, path: str, parent: str) -> tuple[str, str] | None:
        """Where the class of a method is now."""
        if self.index.symbol(path, parent):
            return path, parent
        entry = self.lock.entries.get((path, parent))
        if entry is not None:
            place = self.follow(entry)
            return (place.path, place.name) if place else None
        return self.index.follow_import(path, parent)

    def _place(self, path: str, name: str, keys: list[int], how: str) -> Place | None:
        if self.index.symbol(path, name) is None:
            return None
        score = likeness(keys, self.index.keys(path, name))
        return Place(path, name, score, score, how)

    def guesses(self, entry: Entry, keys: list[int]) -> list[Place]:
        """Definitions that are new since the pinned version and like the symbol; the likest first."""
        telling = self.index.without_common(keys)
        by_text = len(telling) >= FEW_LINES
        files = self.index.files_naming(_last(entry.name))
        if by_text:
            files = files.union(self.index.files_sharing(telling))
        guesses = []
        for path in sorted(files):
            source = self.index.source(path)
            for symbol in source.symbols.values() if source else ():
                if GROUPS[symbol.kind] != GROUPS[entry.kind] or not self._is_new(path, symbol.name):
                    continue
                if not by_text and _last(symbol.name) != _last(entry.name):
                    continue
                if self._is_siblings(entry, path, symbol.name):
                    continue
                found = source.keys_of(symbol)
                score = likeness(keys, found)
                if score >= WORTH_NAMING:
                    likely = likeness(telling, self.index.without_common(found))
                    guesses.append(Place(path, symbol.name, score, likely, f"likeness {score:.2f}"))
        return sorted(guesses, key=lambda guess: (-guess.telling, guess.path, guess.name))

    def _only_one(self, entry: Entry, keys: list[int]) -> Place | None:
        """The definition of the same name, if there is but one now, and that is new."""
        last = _last(entry.name)
        found = [
            (path, symbol)
            for path in sorted(self.index.files_naming(last))
            if (source := self.index.source(path)) is not None
            for symbol in source.symbols.values()
            if _last(symbol.name) == last and GROUPS[symbol.kind] == GROUPS[entry.kind] != "value"
        ]
        if len(found) != 1:
            return None
        path, symbol = found[0]
        if not self._is_new(path, symbol.name) or self._is_siblings(entry, path, symbol.name):
            return None
        score = likeness(keys, self.index.keys(path, symbol.name))
        if score < WORTH_NAMING and len(self.index.without_common(keys)) >= FEW_LINES:
            return None
        return Place(path, symbol.name, score, score, "the only definition of that name")

    def _is_new(self, path: str, name: str) -> bool:
        return not self.lock.was_defined(path, name) and (path, name) not in self.lock.entries

    def _is_siblings(self, entry: Entry, path: str, name: str) -> bool:
        """Whether `name` is a method of another class with a base that the symbol's class has, where that still is."""
        parent, other = entry.name.rpartition(".")[0], name.rpartition(".")[0]
        if not parent or not other or (path, other) == (entry.path, parent):
            return False
        return bool(self.index.ancestors(entry.path, parent) & self.index.ancestors(path, other))


def _needed(entry: Entry, guess: Place) -> float:
    if guess.name == entry.name:
        return SAME_QUALIFIED_NAME
    return SAME_NAME if _last(guess.name) == _last(entry.name) else OTHER_NAME


def _last(name: str) -> str:
    return name.rpartition(".")[2]
