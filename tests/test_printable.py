"""No character that is an order to a terminal reaches one, whatever prompts, ids and files hold."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from faults import fault
from tiny_models import tiny_model
from traced_runs import record

from minivllm.__main__ import main
from minivllm.printable import PrintableStream, one_line, printable

# clears the screen; sets the title; the end of a C string; turns the direction; isolates; C1's order; half a character
EVIL = "\x1b[2J\x1b]0;pwn\x07\0\u202ertl\u2066\u2069\x9b31m\rover"
SEEN = "\\x1b[2J\\x1b]0;pwn\\x07\\x00\\u202ertl\\u2066\\u2069\\x9b31m\\rover"


def test_what_is_not_seen_is_written_out() -> None:
    assert printable(EVIL) == SEEN
    assert printable("a\n\tb é 漢 👍🏽 ok") == "a\n\tb é 漢 👍🏽 ok"
    assert printable("\ud800\u2028") == "\\ud800\\u2028"
    assert one_line(ValueError("a\n  b\x1b")) == "a b\\x1b"
    assert len(one_line(ValueError("x" * 10_000))) < 310


def test_a_stream_is_the_one_behind_it_but_for_what_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    stream = PrintableStream(sys.stdout)
    print("a\x1b", file=stream, flush=True)
    assert stream.encoding == sys.stdout.encoding
    assert capsys.readouterr().out == "a\\x1b\n"


def replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {replaced(key, old, new): replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, old, new) for inner in value]
    return new if value == old else value


@pytest.fixture(scope="module")
def evil_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace in which an id, a text, a stop string, the model and an unknown kind hold such characters."""
    run = record("stop", multiprocess=True)
    path = tmp_path_factory.mktemp("evil") / "evil.jsonl"
    lines = []
    for line in map(json.loads, run.path.read_text().splitlines()):
        line = replaced(line, run.trace.request_ids[0], f"={EVIL}")
        line = replaced(line, "333", EVIL)
        if line["kind"] == "header":
            line["environment"]["model"] = EVIL
        if line.get("external_req_id") == "0":
            line["external_req_id"] = f"={EVIL}"
        if "new_text" in line:
            line["new_text"] = EVIL + str(line["new_text"])
        if line["kind"] == "attention":
            line["kind"] = EVIL
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def check(text: str) -> None:
    assert text
    assert printable(text) == text.replace("\r\n", "\n")


@fault(
    "Traces and other files",
    "characters that are orders to a terminal in a trace's ids, texts and kinds",
    how="ESC, NUL, OSC, C1, carriage return, bidi marks; why, diff, export, view, an unknown request",
    then="each is shown as an escape, \\\\x1b; in CSV too, where no cell begins like a formula",
)
@pytest.mark.parametrize("command", ["why", "why by id", "why nobody", "diff", "csv", "csv to stdout", "view"])
def test_a_trace_gives_no_orders(
    evil_trace: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], command: str
) -> None:
    out = tmp_path / f"{EVIL.replace(chr(0), '')}.csv"
    line = {
        "why": ["why", str(evil_trace), "1"],
        "why by id": ["why", str(evil_trace), f"={EVIL}"],
        "why nobody": ["why", str(evil_trace), f"nobody{EVIL}"],
        "diff": ["diff", str(evil_trace), str(record("stop", multiprocess=True).path)],
        "csv": ["export", str(evil_trace), "--to", "csv", "--out", str(out)],
        "csv to stdout": ["export", str(evil_trace), "--to", "csv", "--out", "-"],
        "view": ["view", str(evil_trace), "--out", str(out)],
    }[command]
    capsysbinary.readouterr()
    assert main(line) in (0, 1, 2)
    told = capsysbinary.readouterr()
    check((told.out + told.err).decode())
    if command == "csv":
        text = out.read_text()
        check(text)
        cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
        assert any(SEEN in cell for cell in cells)
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


@pytest.mark.parametrize("command", ["trace", "generate"])
def test_a_prompt_gives_no_orders(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], command: str) -> None:
    (tmp_path / "prompt").write_bytes(f"fox {EVIL}".encode())
    line = [command, "--prompt-file", str(tmp_path / "prompt"), "--model", str(tiny_model()), "--max-tokens", "30"]
    line += ["--raw", "--temperature", "2", "--seed", "4", "--in-process"]
    assert main([*line, "--out", str(tmp_path / "t.jsonl")] if command == "trace" else line) == 0
    told = capsysbinary.readouterr()
    check(told.out.decode())
    if command == "trace":
        assert SEEN[:20] in told.out.decode()


@pytest.mark.parametrize(
    "line",
    [
        ["generate", "hi", "--model", EVIL.replace("\0", "")],
        ["generate", "hi", "--dtype", EVIL],
        ["generate", "--prompt-file", EVIL.replace("\0", "")],
        ["view", EVIL.replace("\0", "")],
        ["export", "x", "--to", EVIL],
        [EVIL],
        ["record", EVIL],
        ["lab", "check", EVIL.replace("\0", "")],
        ["lab", "start", "01", "--dir", "/dev/null/" + EVIL.replace("\0", "")],
        ["lockstep", EVIL.replace("\0", "")],
        ["refs", "where", EVIL],
    ],
    ids=lambda line: " ".join(line[:2]).encode("ascii", "backslashreplace").decode(),
)
def test_a_mistake_is_told_without_orders(line: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    try:
        status = main(line)
    except SystemExit as end:  # argparse
        status = end.code
    assert status not in (0, None)
    told = capsysbinary.readouterr()
    check((told.out + told.err).decode())
