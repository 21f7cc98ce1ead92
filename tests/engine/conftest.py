"""Engines that the tests of this folder share, made once a session. A test that breaks an engine makes its own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.helpers import MODES, SETTINGS, Surroundings
from tiny_models import tiny_model

from minivllm import LLM


@pytest.fixture(scope="session")
def tiny_folder() -> str:
    """A tiny random Llama with a byte-level tokenizer."""
    return str(tiny_model("llama"))


@pytest.fixture(scope="session")
def local_llm(tiny_folder: str) -> Iterator[LLM]:
    """The tiny model in this process."""
    with LLM(tiny_folder, multiprocess=False, **SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="session")
def remote_llm(tiny_folder: str) -> Iterator[LLM]:
    """The tiny model across two processes."""
    with LLM(tiny_folder, multiprocess=True, **SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="session", params=MODES)
def llm(request: pytest.FixtureRequest) -> LLM:
    """One after the other: what holds, holds in both."""
    return request.getfixturevalue("local_llm" if request.param == "in_process" else "remote_llm")


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    """To see what is left behind. All temporary folders are made in one with a short path, since a socket's may not be
    long."""
    with tempfile.TemporaryDirectory(prefix="mv-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        monkeypatch.setenv("TMPDIR", home)  # for child processes
        yield Surroundings(Path(home))
