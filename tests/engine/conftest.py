"""Engines that the tests of this folder share, made once a session. A test that breaks an engine makes its own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.helpers import MODES, SETTINGS
from tiny_models import tiny_model

from minivllm import LLM


@pytest.fixture(scope="session")
def tiny_folder() -> str:
    """A tiny random Llama with a byte-level tokenizer."""
    return str(tiny_model("llama"))


@pytest.fixture(scope="session", params=MODES)
def llm(request: pytest.FixtureRequest, tiny_folder: str) -> Iterator[LLM]:
    """The tiny model, in this process and across two: what holds, holds in both."""
    with LLM(tiny_folder, multiprocess=request.param == "two_processes", **SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="session")
def local_llm(tiny_folder: str) -> Iterator[LLM]:
    """The tiny model in this process alone, for what does not depend on the process boundary."""
    with LLM(tiny_folder, multiprocess=False, **SETTINGS) as engine:
        yield engine


@pytest.fixture
def temporary_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which all temporary folders of the test are made: one sees what is left. Its path is short, since
    a socket's path may not be long."""
    with tempfile.TemporaryDirectory(prefix="mv-") as home:
        monkeypatch.setattr(tempfile, "tempdir", home)
        monkeypatch.setenv("TMPDIR", home)  # for child processes
        yield Path(home)
