"""Where an LLM can be used: a script without a main guard, a script on stdin, a notebook, another folder."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from engine.helpers import SETTINGS, Surroundings, greedy
from engine.scripts import environment
from nbclient import NotebookClient

from minivllm import LLM

SCRIPT = """
from minivllm import LLM, SamplingParams
llm = LLM({folder!r}, multiprocess=True, **{settings!r})
(output,) = llm.generate([5, 6, 7], SamplingParams(temperature=0, max_tokens=4))
print("ANSWER", output.outputs[0].token_ids)
"""

# What a Jupyter kernel does: cells are compiled one by one into a __main__ that has no file, an event loop runs in the
# main thread, and stdout and stderr are objects without a file descriptor.
KERNEL = """
import asyncio, io, json, sys

class Stream(io.TextIOBase):
    def __init__(self): self.text = ""
    def write(self, text): self.text += text; return len(text)

async def main():
    cells = json.load(sys.stdin)
    real = sys.stdout
    sys.stdout, sys.stderr = Stream(), Stream()
    namespace = sys.modules["__main__"].__dict__
    namespace.pop("__file__", None)
    for number, cell in enumerate(cells):
        exec(compile(cell, f"<cell {number}>", "exec"), namespace)
    real.write(sys.stdout.text)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wanted(local_llm: LLM) -> str:
    return f"ANSWER {greedy(local_llm, [[5, 6, 7]], 4)[0]}"


def script(folder: str) -> str:
    return SCRIPT.format(folder=folder, settings=SETTINGS)


def check(result: subprocess.CompletedProcess[str], wanted: str, surroundings: Surroundings) -> None:
    assert result.returncode == 0, result.stderr
    assert wanted in result.stdout.splitlines()
    assert "Traceback" not in result.stderr
    assert not list(surroundings.home.iterdir())


def test_a_script_without_a_main_guard(
    tiny_folder: str, tmp_path: Path, surroundings: Surroundings, wanted: str
) -> None:
    """And in a folder whose files are named like modules that the core needs."""
    (tmp_path / "script.py").write_text(script(tiny_folder))
    for name in ("tokenize.py", "core.py", "zmq.py"):
        (tmp_path / "elsewhere" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "elsewhere" / name).write_text("raise SystemError('the wrong module')")
    result = subprocess.run(
        [sys.executable, "../script.py"],
        cwd=tmp_path / "elsewhere",
        env=environment(surroundings.home),
        capture_output=True,
        text=True,
        timeout=120,
    )
    check(result, wanted, surroundings)


def test_a_script_on_stdin(tiny_folder: str, surroundings: Surroundings, wanted: str) -> None:
    result = subprocess.run(
        [sys.executable, "-"],
        input=script(tiny_folder),
        env=environment(surroundings.home),
        capture_output=True,
        text=True,
        timeout=120,
    )
    check(result, wanted, surroundings)


def test_cells_of_a_notebook(tiny_folder: str, surroundings: Surroundings, wanted: str) -> None:
    cells = [line for line in script(tiny_folder).splitlines() if line]
    result = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(cells),
        env=environment(surroundings.home),
        capture_output=True,
        text=True,
        timeout=120,
    )
    check(result, wanted, surroundings)


def test_a_real_notebook(
    tiny_folder: str, surroundings: Surroundings, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(surroundings.home).items():
        monkeypatch.setenv(name, value)
    cells = [nbformat.v4.new_code_cell(line) for line in [*script(tiny_folder).splitlines(), "llm.shutdown()"] if line]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    texts = [output.text for cell in notebook.cells for output in cell.outputs if output.output_type == "stream"]
    assert wanted in "".join(texts).splitlines()
