"""Where a symbol is, and what its text is."""

import hashlib
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm.proof.refs.index import likeness
from minivllm.proof.refs.resolve import BLANK, TRIVIAL, Source, line_key

TEXT = textwrap.dedent(
    '''\
    import os
    from typing import overload

    SIZE: int = 4
    LOW, HIGH = 1, 2

    if SIZE:
        def choose(): return 1
    else:
        def choose(): return 2

    try:
        import fast
    except ImportError:
        class Fast:
            pass

    @overload
    def convert(x: int) -> int: ...
    @overload
    def convert(x: str) -> str: ...
    @cached(
        size=3,
    )
    def convert(x):
        def inner():
            local = 1
            return local
        return inner()

    @dataclass
    class Request(Base, Generic[T]):
        name: str
        """Its name."""
        length: int = 0

        def __init__(self):
            self.state: str = "new"
            self.first, self.second = 1, 2

        def run(self):
            self.state = "running"
            self.late = True

        @property
        def size(self):
            return 1

        @size.setter
        def size(self, value):
            pass

        class Status:
            WAITING = 1

        async def wait(self):
            pass

    @triton.jit
    def kernel(x):
        pass
    '''
)


@pytest.mark.parametrize(
    ("name", "kind", "first", "line", "last"),
    [
        ("SIZE", "constant", 4, 4, 4),
        ("HIGH", "constant", 5, 5, 5),
        ("choose", "function", 8, 8, 8),
        ("Fast", "class", 15, 15, 16),
        ("convert", "function", 22, 25, 29),
        ("convert.inner", "function", 26, 26, 28),
        ("Request", "class", 31, 32, 57),
        ("Request.name", "field", 33, 33, 33),
        ("Request.length", "field", 35, 35, 35),
        ("Request.state", "attribute", 38, 38, 38),
        ("Request.second", "attribute", 39, 39, 39),
        ("Request.late", "attribute", 43, 43, 43),
        ("Request.size", "method", 45, 46, 47),
        ("Request.Status", "class", 53, 53, 54),
        ("Request.Status.WAITING", "field", 54, 54, 54),
        ("Request.wait", "method", 56, 56, 57),
        ("kernel", "kernel", 59, 60, 61),
    ],
)
def test_symbol_is_found(name: str, kind: str, first: int, line: int, last: int) -> None:
    symbol = Source(TEXT).symbols[name]
    assert (symbol.kind, symbol.first, symbol.line, symbol.last) == (kind, first, line, last)


@pytest.mark.parametrize("name", ["fast", "os", "overload", "convert.inner.local", "Request.value", "Request.nothing"])
def test_what_is_not_defined_here_is_not_found(name: str) -> None:
    assert name not in Source(TEXT).symbols


def test_imports_and_bases_are_remembered() -> None:
    source = Source(TEXT)
    assert source.imports["overload"] == ("typing", "overload")
    assert source.bases["Request"] == ["Base", "Generic[T]"]


def test_text_is_what_sed_prints() -> None:
    source = Source(TEXT)
    symbol = source.symbols["convert"]
    lines = TEXT.splitlines(keepends=True)[symbol.first - 1 : symbol.last]
    assert source.text_of(symbol) == "".join(lines)
    assert source.sha256_of(symbol) == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert lines[0].startswith("@cached")


def test_nothing_is_normalised() -> None:
    def sha(text: str) -> str:
        return Source(text).sha256_of(Source(text).symbols["f"])

    plain = sha("def f():\n    return 1\n")
    assert plain == sha("\n\ndef f():\n    return 1")
    assert len({plain, sha("def f():\n    return 1 \n"), sha("def f():\n    return 1  # one\n")}) == 3


def test_line_keys() -> None:
    assert line_key("   ") == BLANK
    assert line_key(" ) ") == line_key('"""') == TRIVIAL
    assert line_key("    return value") == line_key("return value") > TRIVIAL
    assert line_key("return value") != line_key("return values")


lines = st.lists(st.sampled_from(["return one", "self.count += 1", "if blocks:", ")", ""]), max_size=12)


@given(lines, lines)
def test_likeness_is_a_symmetric_share(one: list[str], other: list[str]) -> None:
    first, second = [line_key(line) for line in one], [line_key(line) for line in other]
    assert 0 <= likeness(first, second) == likeness(second, first) <= 1
    telling = [key for key in first if key > TRIVIAL]
    assert likeness(first, list(reversed(first))) == (1.0 if telling else 0.0)
