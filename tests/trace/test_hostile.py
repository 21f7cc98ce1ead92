"""Traces that are cut, edited or made up: whoever reads them gets one line, no traceback, no wrong answer, and never
more memory than there is.

A trace is what people attach to bug reports: it is somebody else's file.
"""

import copy
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import fault
from traced_runs import record

from minivllm.__main__ import main
from minivllm.trace import Trace, TraceError, store
from minivllm.trace.check import MAX_BLOCKS, MAX_DEPTH

Lines = list[dict[str, Any]]
COMMANDS = ("why", "view", "export", "diff")


@pytest.fixture(scope="module")
def lines() -> Lines:
    """The lines of a trace of two processes, with a stop string."""
    return [json.loads(line) for line in record("stop", multiprocess=True).path.read_text().splitlines()]


def written(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def arguments(command: str, path: Path) -> list[str]:
    more = {
        "why": ["0"],
        "view": ["--out", str(path.with_suffix(".html"))],
        "export": ["--to", "csv", "--out", str(path.with_suffix(".csv"))],
        "diff": [str(record("stop", multiprocess=True).path)],
    }
    return [command, str(path), *more[command]]


def first(lines: Lines, kind: str) -> dict[str, Any]:
    return next(line for line in lines if line["kind"] == kind)


# ---------------------------------------------------------------------- made up


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def parents_in_a_row(lines: Lines) -> None:
    start = len(lines) - 1
    for seq in range(start, start + MAX_DEPTH + 3):
        lines.append({"kind": "step", "seq": seq, "proc": "core", "t0": 10**12, "t1": 10**12, "parent": seq - 1})


SPOILED: dict[str, tuple[Callable[[Lines], Any], str]] = {
    "a parent that is not there": (lambda ls: ls[-1].update(parent=10**6), "is inside event 1000000, which is not"),
    "its own parent": (lambda ls: ls[-1].update(parent=ls[-1]["seq"]), "which is not before it"),
    "a parent that comes later": (lambda ls: ls[3].update(parent=ls[9]["seq"]), "which is not before it"),
    "too many in one another": (parents_in_a_row, "is inside more than 100 others"),
    "a number twice": (lambda ls: ls[9].update(seq=ls[8]["seq"]), "numbers must rise"),
    "a huge number": (lambda ls: ls[9].update(seq=ls[9]["seq"] + 2**62), "numbers must rise"),
    "a number below zero": (lambda ls: ls[1].update(seq=-5), "numbers must rise"),
    "it ends before it begins": (lambda ls: first(ls, "schedule").update(t1=3), "goes from [0-9]+ to 3 ns"),
    "times of 10**30": (lambda ls: first(ls, "schedule").update(t1=10**30), "this is no event|goes from"),
    "a step below zero": (lambda ls: first(ls, "step").update(step=-1), "is of step -1"),
    "no requests": (lambda ls: first(ls, "scheduler.add_request").pop("reqs"), "lacks reqs"),
    "a field that is missing": (lambda ls: first(ls, "schedule").pop("num_free_blocks"), "lacks num_free_blocks"),
    "an unknown finish_reason": (
        lambda ls: [u.update(finish_reason="odd") for u in first(ls, "update_from_output")["updates"]],
        "has finish_reason 'odd'; known: stop, length, abort, error",
    ),
    "num_requests 1e308": (lambda ls: first(ls, "generate").update(num_requests=1e308), "this is no event"),
    "a kind that is no text": (lambda ls: ls[9].update(kind=[1]), "this is no event"),
    "a pool without end": (lambda ls: ls[0].update(num_gpu_blocks=10**8), f"from 0 to {MAX_BLOCKS} can"),
    "a detail that is no number": (lambda ls: ls[0].update(detail="x"), "the header can't be right"),
    "schema true": (lambda ls: ls[0].update(schema=True), "has a schema, a number from 1 up"),
    "schema 0": (lambda ls: ls[0].update(schema=0), "has a schema, a number from 1 up"),
    "schema -3": (lambda ls: ls[0].update(schema=-3), "has a schema, a number from 1 up"),
    "processes that are none": (lambda ls: ls[0].update(processes=[1]), "the header can't be right"),
}


@fault(
    "Traces and other files",
    "a trace with something that can not be",
    how="21 of them: unknown and own parents, a number twice, 10**30 ns, missing fields, 10**8 blocks",
    then="why, view, export and diff: one line with the event's number, status 2",
)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", SPOILED)
def test_what_can_not_be_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: Lines, name: str, command: str
) -> None:
    spoil, says = SPOILED[name]
    spoiled = copy.deepcopy(lines)
    spoil(spoiled)
    path = written(tmp_path / "spoiled.jsonl", spoiled)
    with pytest.raises(TraceError, match=says):
        Trace.load(path)
    assert main(arguments(command, path)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("minivllm: ")
    assert told.err.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@fault(
    "Traces and other files",
    "a trace nested a million deep",
    how="in the header, an event, an unknown kind, the cut last line",
    then="TraceError names the line",
)
@pytest.mark.parametrize("place", ["the header", "an event", "an unknown kind", "the last line, cut off"])
def test_deep_nesting_is_no_recursion_without_end(tmp_path: Path, lines: Lines, place: str) -> None:
    texts = [json.dumps(line) for line in lines]
    common = '"seq":99999,"proc":"core","t0":999999999999,"t1":999999999999'
    nested = deep(1_000_000)
    if place == "the header":
        texts[0] = texts[0][:-1] + f',"environment":{{"a":{nested}}}}}'
    elif place == "an event":
        texts.append(f'{{"kind":"step",{common},"executed":{nested}}}')
    else:
        texts.append(f'{{"kind":"to.come",{common},"executed":{nested}}}')
    path = tmp_path / "deep.jsonl"
    path.write_text("\n".join(texts) + ("" if "cut" in place else "\n"))
    if "cut" in place:
        assert Trace.load(path).truncated
        return
    with pytest.raises(TraceError, match="line 1: this is no trace" if place == "the header" else "this is no event"):
        Trace.load(path)


VALUES = [None, -1, 0, 2**62, 10**30, 1e308, "x", "\x1b]0;\x07", [], {}, [[]], True, [1], [1, 2]]


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The way to every value inside a line."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, inner in items for way in [(*path, key), *places(inner, (*path, key))]]


def changed(lines: Lines, rng: random.Random) -> Lines:
    """One line is lost, is there twice, or has one value that is another or none."""
    place, what = rng.randrange(len(lines)), rng.random()
    lines = list(lines)
    if what < 0.05:
        del lines[place]
    elif what < 0.1:
        lines.insert(rng.randrange(1, len(lines)), lines[place])
    else:
        line = lines[place] = copy.deepcopy(lines[place])
        *way, name = rng.choice(places(line))
        for key in way:
            line = line[key]
        if rng.random() < 0.25:
            del line[name]
        else:
            line[name] = rng.choice(VALUES)
    return lines


@fault(
    "Traces and other files",
    "one value of a trace is another, or a line is lost or there twice",
    how="200 at random, the four commands",
    then="an answer, or one line; never a traceback, never a raw ESC",
)
def test_small_lies_give_answers_or_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: Lines
) -> None:
    rng = random.Random(16)
    statuses = set()
    for _ in range(200):
        path = written(tmp_path / "changed.jsonl", changed(lines, rng))
        status = main(arguments(rng.choice(COMMANDS), path))
        told = capsys.readouterr()
        assert status in (0, 1, 2)
        assert told.err.count("\n") <= 1
        assert (told.err == "") == (status != 2) or "was cut off" in told.err
        assert "\x1b" not in told.out + told.err
        statuses.add(status)
    assert statuses == {0, 1, 2}


# ---------------------------------------------------------------------- too much


ROW = '{{"kind":"step","seq":{0},"proc":"core","t0":{0},"t1":{0}}}\n'
BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (750 << 20, resource.RLIM_INFINITY))
from minivllm.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def run_bounded(*command: object) -> subprocess.CompletedProcess[str]:
    """minivllm in a process that gets no more than 750 MiB, of which its libraries' files take 250."""
    line = [sys.executable, "-c", BOUNDED, *map(str, command)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@fault(
    "Traces and other files",
    "a trace that is too large, or a small .gz that unpacks to much",
    how="300 MiB of zeros or of events, in a .gz of some 2 MB or in a plain file, in a process that may have 750 MiB",
    then="one line: more than 56 MiB of text, and how to read it all the same",
)
@pytest.mark.parametrize("inside", ["nothing but zeros", "lines that are events", "lines that are events, plain"])
def test_a_file_of_too_much_text_is_refused(tmp_path: Path, lines: Lines, inside: str) -> None:
    plain = "plain" in inside
    path = tmp_path / ("large.jsonl" if plain else "bomb.jsonl.gz")
    block = b"\0" * (1 << 20) if "zeros" in inside else ROW.format(7).encode() * 20_000
    with path.open("wb") if plain else gzip.open(path, "wb", compresslevel=1) as file:
        file.write((json.dumps(lines[0]) + "\n").encode())
        for _ in range((300 << 20) // len(block)):
            file.write(block)
    assert plain or path.stat().st_size < 4 << 20
    done = run_bounded("why", path, "0")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr[-500:]
    assert "has more than 56 MiB of text, the limit here" in done.stderr
    assert "set MINIVLLM_TRACE_MIB to a larger number" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_limit_is_the_users(tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "two.jsonl", [lines[0], *([{**lines[1], "note": "x" * 1_000_000}] * 2)])
    monkeypatch.setenv("MINIVLLM_TRACE_MIB", "1")
    with pytest.raises(TraceError, match="more than 1 MiB of text"):
        Trace.load(path)
    for wrong in ("0", "-3", "much", "1.5", ""):
        monkeypatch.setenv("MINIVLLM_TRACE_MIB", wrong)
        with pytest.raises(TraceError, match="is no limit for traces"):
            Trace.load(path)


def test_what_is_no_trace_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "image.bin"
    with path.open("wb") as file:
        file.truncate(3 << 30)  # no disk is needed for it
    done = run_bounded("why", path, "0")
    assert done.returncode == 2
    assert "this is no trace of minivllm" in done.stderr
    done = run_bounded("why", "/dev/zero", "0")
    assert done.returncode == 2
    assert "this is no trace of minivllm" in done.stderr


def test_a_large_pool_is_not_kept_many_times(tmp_path: Path, lines: Lines) -> None:
    large = copy.deepcopy(lines)
    large[0]["num_gpu_blocks"] = MAX_BLOCKS
    path = written(tmp_path / "large.jsonl", large)
    done = run_bounded("diff", path, path)
    assert done.returncode == 0, done.stderr[-500:]


# ---------------------------------------------------------------------- gzip members


@fault(
    "Traces and other files",
    "a .gz of several members",
    how="`cat a.gz b.gz`, with padding",
    then="all of it is read",
)
def test_a_file_of_several_gzip_members_is_read_to_its_end(tmp_path: Path, lines: Lines) -> None:
    """As `cat a.gz b.gz` makes them."""
    texts = [(json.dumps(line) + "\n").encode() for line in lines]
    path = tmp_path / "members.jsonl.gz"
    members = [gzip.compress(b"".join(texts[start : start + 7])) for start in range(0, len(texts), 7)]
    path.write_bytes(b"".join(members[:2]) + b"\0" * 100 + b"".join(members[2:]))
    trace = Trace.load(path)
    assert len(trace) == len(lines) - 1
    assert not trace.truncated
    path.write_bytes(b"".join(members)[:-4])  # the last one lacks its length
    assert Trace.load(path).truncated
    path.write_bytes(b"".join(members) + b"something else")
    with pytest.raises(TraceError, match="damaged gzip"):
        Trace.load(path)


# ---------------------------------------------------------------------- cut off


@fault(
    "Traces and other files",
    "a trace that was cut off",
    how="in a line, behind a line, in the zip",
    then="the part that is there is shown; one line on stderr says so, and the page's data",
)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("cut", ["in a line", "after a line", "in the zip"])
def test_a_file_that_was_cut_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: Lines, command: str, cut: str
) -> None:
    half = len(lines) * 2 // 3
    data = written(tmp_path / "cut.jsonl", lines[:half]).read_bytes()
    if cut == "in a line":
        (tmp_path / "cut.jsonl").write_bytes(data[:-9])
    elif cut == "in the zip":
        (tmp_path / "cut.jsonl").write_bytes(gzip.compress(written(tmp_path / "all", lines).read_bytes())[:-1500])
    status = main(arguments(command, tmp_path / "cut.jsonl"))
    told = capsys.readouterr()
    assert status == (1 if command == "diff" else 0)
    assert told.err.count("\n") == 1
    assert f"{tmp_path / 'cut.jsonl'} was cut off" in told.err
    if command == "view":
        assert '"truncated":true' in (tmp_path / "cut.html").read_text()


def test_whole_traces_are_not_called_cut(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("stop", "three", "samples", "preempt"):
        assert not record(name, multiprocess=False).trace.truncated
    assert main(arguments("why", record("stop", multiprocess=True).path)[:3]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("which", [0, 1])
def test_one_part_that_was_cut_makes_the_trace_a_cut_one(tmp_path: Path, which: int) -> None:
    trace = record("stop", multiprocess=True).trace
    paths = []
    for process in trace.header.processes:
        header = {**json.loads(store.encode_lines([trace.header])), "processes": [{"name": process.name}], "part": True}
        events = [json.loads(store.encode_lines([event])) for event in trace if event.proc == process.name]
        paths.append(written(tmp_path / f"run.jsonl.1-0.{process.name}.part", [header, *events]))
    assert not Trace.load(*paths).truncated
    paths[which].write_bytes(paths[which].read_bytes()[:-9])
    assert Trace.load(*paths).truncated
    assert Trace.load(tmp_path / "run.jsonl").truncated
