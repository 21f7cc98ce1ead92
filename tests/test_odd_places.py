"""Odd places to start a command in: it works, or one sentence says what is odd and what to do about it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import fault
from tiny_models import tiny_model
from traced_runs import record

WORKS = ""
GONE = "The current folder has been removed. Change to one that exists"
COMMANDS = ("generate", "doctor", "all that only reads")
READS = ("why", "export", "view", "diff", "model")
ONE = "import sys; from minivllm.__main__ import main; sys.exit(main(sys.argv[1:]))"
SEVERAL = "import json, sys; from minivllm.__main__ import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"
NO_USERS = "import pwd\ndef getpwuid(uid):\n    raise KeyError(uid)\npwd.getpwuid = getpwuid\n"
LIMITED = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2)
os.execv(sys.executable, [sys.executable, "-B", "-c", *sys.argv[3:]])
"""


def arguments(command: str, folder: Path) -> list[str]:
    """What stands behind `python -c`."""
    if command == COMMANDS[2]:
        return [SEVERAL, json.dumps([line_of(name, folder) for name in READS])]
    return [ONE, *line_of(command, folder)]


def line_of(command: str, folder: Path) -> list[str]:
    trace = str(record("plain", multiprocess=True).path)
    return {
        "generate": ["generate", "hi", "--raw", "--max-tokens", "2", "--model", str(tiny_model())],
        "why": ["why", trace, "0"],
        "export": ["export", trace, "--to", "csv", "--out", str(folder / "out.csv")],
        "view": ["view", trace, "--out", str(folder / "out.html")],
        "diff": ["diff", trace, trace],
        "model": ["model"],
        "doctor": ["doctor"],
    }[command]


def run(
    line: list[str], prefix: tuple[str, ...] = ("-c",), env: dict[str, str | None] | None = None
) -> subprocess.CompletedProcess[str]:
    changed = {**os.environ, **(env or {})}
    return subprocess.run(
        [sys.executable, *prefix, *line],
        env={name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str], says: str) -> None:
    """It worked, or said `says` in one line."""
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    if says == WORKS:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode in (1, 2)
        assert says in done.stdout + done.stderr
        assert all(line.startswith("minivllm: ") for line in lines)
        assert len(lines) <= len(READS)


@fault(
    "Surroundings",
    "a user without HOME and without an entry in the list of users",
    how="HOME unset, `pwd.getpwuid` raises KeyError in all processes; every command",
    then="all work, with a cache of the user's own in the temporary folder",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_without_a_home(tmp_path: Path, command: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_USERS)
    nothing = {"HOME": None, "MINIVLLM_CACHE": None, "XDG_CACHE_HOME": None, "HF_HOME": None}
    (tmp_path / "tmp").mkdir()
    env = {**nothing, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    check(run(arguments(command, tmp_path), env=env), WORKS)


@fault(
    "Surroundings",
    "the current folder has been removed",
    how="rmdir of the working folder before the command starts",
    then="one sentence, status 2",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_gone(tmp_path: Path, command: str) -> None:
    leave = f"import os; os.chdir({str(tmp_path)!r}); os.mkdir('gone'); os.chdir('gone'); os.rmdir(os.getcwd()); "
    code, *line = arguments(command, tmp_path)
    check(run([leave + code, *line]), GONE)


@fault(
    "Surroundings",
    "a temporary folder whose name the locale has no letters for",
    how="LC_ALL=C without UTF-8 mode, TMPDIR=größe",
    then="reading traces works; an engine of two processes says to point TMPDIR elsewhere; in process it works",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_ascii_locale(tmp_path: Path, command: str) -> None:
    (tmp_path / "größe").mkdir()
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TMPDIR": str(tmp_path / "größe")}
    odd = {"generate": "Point TMPDIR at another folder", "doctor": "point TMPDIR at a folder"}
    check(run(arguments(command, tmp_path), env=ascii_only), odd.get(command, WORKS))
    if command == "generate":
        check(run([*arguments(command, tmp_path), "--in-process"], env=ascii_only), WORKS)


@fault(
    "Surroundings",
    "no room anywhere for a temporary file",
    how="a limit of 0 bytes on every file; every command",
    then="what needs no file works; else one sentence that says so, status 1 or 2",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_room_at_all(tmp_path: Path, command: str) -> None:
    done = run(["RLIMIT_FSIZE", "0", *arguments(command, tmp_path)], ("-c", LIMITED))
    odd = {"generate": "There is no room for the sockets", "doctor": "No usable temporary directory"}
    check(done, odd.get(command, "can't be written to"))


@fault(
    "Surroundings",
    "few open files",
    how="ulimit -n 16; every command",
    then="reading traces works; an engine of two processes says to allow more (ulimit -n)",
)
@pytest.mark.parametrize("command", COMMANDS)
def test_few_descriptors(tmp_path: Path, command: str) -> None:
    done = run(["RLIMIT_NOFILE", "16", *arguments(command, tmp_path)], ("-c", LIMITED))
    check(done, "Allow more open files (ulimit -n)" if command == "generate" else WORKS)
