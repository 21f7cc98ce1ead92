"""What commands print goes to any stdout, also to one that can't have every character."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACES = Path(__file__).parent.parent / "traces"
COMMANDS = {
    "why": ["why", TRACES / "abort.jsonl.gz", "0"],
    "diff": ["diff", TRACES / "chunk-1.jsonl.gz", TRACES / "again.jsonl.gz"],
    "lab": ["lab", "list"],
    "record": ["record"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_stdout_that_is_not_utf_8(name: str) -> None:
    """The same lines; what the encoding lacks is written as its escape."""
    told = {encoding: _run(name, encoding) for encoding in ("utf-8", "ascii")}
    assert told["ascii"] == told["utf-8"].encode("ascii", "backslashreplace").decode("ascii")


def _run(name: str, encoding: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "minivllm", *map(str, COMMANDS[name])],
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert "Traceback" not in done.stderr.decode(encoding) and done.returncode in (0, 1), done.stderr
    return done.stdout.decode(encoding)
