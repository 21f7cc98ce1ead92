"""What is written gets its name when it is whole; what is no file is never replaced."""

import os
import select
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from faults import fault
from traced_runs import generate, llm_of, record

from minivllm.__main__ import main
from minivllm.files import write_file
from minivllm.trace import Trace

NULL = (1, 3)  # the numbers of /dev/null


def special(folder: Path, kind: str) -> Path:
    """A path that leads to no file."""
    path = folder / "target.jsonl"
    if kind == "a device":
        if os.getuid() == 0:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*NULL))
        else:
            path.symlink_to("/dev/null")
    elif kind == "a link to a device":
        path.symlink_to("/dev/null")
    elif kind == "a pipe that nobody reads":
        os.mkfifo(path)
    else:
        path.mkdir()
    return path


KINDS = ("a device", "a link to a device", "a pipe that nobody reads", "a folder")


def what_is_at(path: Path) -> tuple[int, int, bool]:
    return (os.stat(path).st_mode, os.stat(path).st_ino, path.is_symlink())


@fault(
    "Traces and other files",
    "the target of a page or an export is no file",
    how="a device node, a link to /dev/null, a pipe that nobody reads, a folder",
    then="a device is written to, the others are refused in one line; nothing is replaced",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["view", "export"])
def test_an_export_and_a_page_replace_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, command: str
) -> None:
    trace = record("plain", multiprocess=False).path
    capsys.readouterr()  # of the recording
    target = special(tmp_path, kind)
    before = what_is_at(target), what_is_at(Path("/dev/null"))
    more = ["--to", "csv"] if command == "export" else []
    status = main([command, str(trace), *more, "--out", str(target)])
    assert (what_is_at(target), what_is_at(Path("/dev/null"))) == before
    told = capsys.readouterr()
    if "device" in kind:
        assert (status, told.err) == (0, "")
    else:
        assert status == 2
        assert f"can't be written to {target}" in told.err
        assert told.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [target]


@fault(
    "Traces and other files",
    "the target of a trace is a device, a pipe or a folder",
    how="a device node, a link to /dev/null, a pipe that nobody reads",
    then="one warning, the engine answers, the target is what it was",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("across", [False, True])
def test_a_trace_replaces_no_device(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, across: bool) -> None:
    target = special(tmp_path, kind)
    before = what_is_at(target), what_is_at(Path("/dev/null"))
    with llm_of("plain", multiprocess=across, trace=str(target)) as llm:
        assert generate(llm, "plain")[0].finished
    assert (what_is_at(target), what_is_at(Path("/dev/null"))) == before
    assert caplog.text.count(f"The trace can't be written to {target} (it is a ") == 1
    assert list(tmp_path.iterdir()) == [target]


def test_a_command_asks_before_it_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = special(tmp_path, "a device")
    assert main(["trace", "hello", "--model", str(tmp_path / "none"), "--out", str(target)]) == 2
    assert capsys.readouterr().err == (
        f"minivllm: The trace can't be written to {target} (it is a device). Give another --out.\n"
    )


def test_a_pipe_that_somebody_reads_gets_all(tmp_path: Path) -> None:
    pipe = special(tmp_path, "a pipe that nobody reads")
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    data = b"x" * 300_000  # more than a pipe holds
    writer = threading.Thread(target=write_file, args=(pipe, data))
    writer.start()
    with open(descriptor, "rb") as file:
        select.select([file], [], [])  # until the writer is there: before, reading gives an end at once
        assert file.read() == data
    writer.join()


def test_a_link_is_followed_and_the_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder/real.jsonl"
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link.jsonl"
    link.symlink_to("folder/real.jsonl")
    trace = record("plain", multiprocess=False).trace
    trace.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert Trace.load(real).events == trace.events
    dangling = tmp_path / "dangling.jsonl"
    dangling.symlink_to("new/deep.jsonl")
    trace.save(dangling)
    assert (tmp_path / "new/deep.jsonl").is_file()


def test_nothing_is_written_through_a_link_that_was_put_there(tmp_path: Path) -> None:
    """The unfinished file has a name that can be guessed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"page.html.{os.getpid()}.tmp").symlink_to(victim)
    write_file(tmp_path / "page.html", b"new")
    assert victim.read_text() == "mine"
    assert (tmp_path / "page.html").read_bytes() == b"new"


ON_A_FULL_DISK = """
import resource, signal, sys
from minivllm.__main__ import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
sys.exit(main(sys.argv[1:]))
"""


@fault(
    "Traces and other files",
    "the disk is full under a page or an export",
    how="a limit on the size of files",
    then="one line, status 2; what was there before is there, and no half file",
)
@pytest.mark.parametrize("there", ["nothing", "an older one"])
@pytest.mark.parametrize("command", ["view", "export"])
def test_a_full_disk_leaves_no_half_file(tmp_path: Path, command: str, there: str) -> None:
    target = tmp_path / "out"
    if there == "an older one":
        target.write_text("older")
    more = ["--to", "csv"] if command == "export" else []
    line = [command, record("plain", multiprocess=False).path, *more, "--out", target]
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, *map(str, line)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"can't be written to {target}: File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.read_text() for path in tmp_path.iterdir()] == (["older"] if there == "an older one" else [])
