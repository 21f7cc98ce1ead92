"""Running a script as a user does, and watching it from outside."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(home: Path) -> dict[str, str]:
    """Temporary folders go to `home`, so that one sees what is left of them."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return os.environ | {"TMPDIR": str(home), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(script: str, home: Path, folder: Path, own_handler: bool = True) -> Iterator[subprocess.Popen[str]]:
    """The script running as a file in `folder`, without a main guard; its output can be read line by line.

    own_handler: with Python's own handler of Ctrl-C.
    """
    path = folder / "script.py"
    if own_handler:  # tests that run in the background of a shell inherit that Ctrl-C is ignored
        script = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + script
    path.write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(path)], env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(process: subprocess.Popen[str], word: str) -> str:
    """Read the script's output up to the line that begins with `word`; returns what follows the word."""
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    raise AssertionError(f"the script ended without {word!r}:\n{process.stderr.read()}")
