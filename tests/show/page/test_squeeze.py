"""What deflate makes is undone by zlib, and is the same on every machine."""

import hashlib
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.show.page.squeeze import LONGEST, WINDOW, deflate


def undone(data: bytes) -> bytes:
    return zlib.decompress(data, wbits=-15)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        b"abc",
        b"a" * (LONGEST + 5),
        bytes(range(256)) * 3,
        b"abcdef" + b"-" * 40_000 + b"abcdef",  # the second is out of reach
        b"abcdef" + b"-" * (WINDOW - 6) + b"abcdef",  # and here it is just within
        "Zwölf Boxkämpfer 👌".encode() * 20,
    ],
)
def test_what_was_packed_comes_back(data: bytes) -> None:
    assert undone(deflate(data)) == data


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"ab", b"abc", b"\x00", b"\xff\x90", b"trace"]), max_size=400))
def test_any_mixture_comes_back(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert undone(deflate(data)) == data


def test_it_gets_smaller() -> None:
    text = b'{"kind": "schedule", "num_free_blocks": [31, 28]}\n' * 200
    assert len(deflate(text)) < len(text) / 20


def test_the_bytes_are_always_the_same() -> None:
    packed = deflate(b"the same bytes on every machine, the same bytes in every run")
    assert hashlib.sha256(packed).hexdigest()[:16] == "1269881927485a27"
