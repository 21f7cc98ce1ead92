"""Trace files: what is written is read again, from whole files, cut ones, zipped ones, older ones; and what is wrong
with a file is said with its line."""

import gc
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_runs import record

from minivllm.trace import Trace, TraceError
from minivllm.trace import store as store_module
from minivllm.trace.events import SCHEMA, Event, Unknown
from minivllm.trace.schema import EVENTS, Header, decode, encode

FROZEN = Path(__file__).parent / "schema-1.jsonl"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trace that a test may spoil."""
    copy = tmp_path / "trace.jsonl"
    copy.write_bytes(record("plain", multiprocess=False).path.read_bytes())
    return copy


# ---------------------------------------------------------------------- round trips


def test_a_trace_that_is_saved_again_is_the_same_file(path: Path, tmp_path: Path) -> None:
    trace = Trace.load(path)
    trace.save(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_zipped_files_are_the_same_bytes_whenever_they_are_written(path: Path, tmp_path: Path) -> None:
    trace = Trace.load(path)
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        trace.save(tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.jsonl.gz", "two.jsonl.gz"))
    assert one == two
    assert gzip.decompress(one) == path.read_bytes()
    assert Trace.load(tmp_path / "one.jsonl.gz").events == trace.events


def test_the_engine_writes_zipped_files_too(tmp_path: Path) -> None:
    from traced_runs import generate, llm_of

    target = tmp_path / "new" / "folder" / "trace.jsonl.gz"
    with llm_of("plain", multiprocess=False, trace=str(target)) as llm:
        generate(llm, "plain")
    assert target.read_bytes()[:2] == b"\x1f\x8b"
    assert Trace.load(target).request_ids
    assert [file.name for file in target.parent.iterdir()] == ["trace.jsonl.gz"]


def value_of(kind: Any, rng: random.Random) -> Any:
    """Any value of a field's type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return rng.choice([1, "x", None])
    if kind is type(None):
        return None
    if origin is tuple:
        return tuple(value_of(argument, rng) for argument in arguments)
    if origin is list:
        return [value_of(arguments[0], rng) for _ in range(rng.randint(0, 3))]
    if origin is dict:
        return {value_of(arguments[0], rng): value_of(arguments[1], rng) for _ in range(rng.randint(0, 3))}
    if arguments:
        return value_of(rng.choice(arguments), rng)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: value_of(hint, rng) for name, hint in hints_of(kind).items()})
    return {
        int: rng.randint(-(2**40), 2**40),
        str: "".join(rng.choice('aé👌"\n\\ ') for _ in range(rng.randint(0, 5))),
        float: rng.choice([0.0, -1.5, 1e-9, 123456.789]),
        bool: rng.random() < 0.5,
    }[kind]


def hints_of(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in cls.__struct_fields__}


@settings(max_examples=200)
@given(kind=st.sampled_from(sorted(EVENTS)), seed=st.integers(min_value=0, max_value=2**32))
def test_any_event_comes_back_as_it_was(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    event = EVENTS[kind](**{name: value_of(hint, rng) for name, hint in hints_of(EVENTS[kind]).items()})
    line = encode(event)
    assert b"\n" not in line
    assert decode(line) == event
    assert json.loads(line)["kind"] == kind


# ---------------------------------------------------------------------- cut and damaged files


def test_a_last_line_that_lacks_its_newline_is_kept(path: Path) -> None:
    whole = Trace.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    trace = Trace.load(path)
    assert trace.events == whole.events
    assert not trace.truncated


@pytest.mark.parametrize("cut", [2, 40, 1000, 5000])
def test_a_file_that_was_cut_off_is_read_up_to_its_last_whole_line(path: Path, cut: int) -> None:
    whole = Trace.load(path)
    path.write_bytes(path.read_bytes()[:-cut])
    trace = Trace.load(path)
    assert trace.truncated
    assert not whole.truncated
    assert 0 < len(trace) < len(whole)
    assert trace.events == whole.events[: len(trace)]
    assert trace.state_at(trace.events[-1].seq) is not None


def test_a_zipped_file_that_was_cut_off_gives_what_can_be_had(path: Path, tmp_path: Path) -> None:
    whole = Trace.load(path)
    zipped = tmp_path / "cut.jsonl.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes())[:-2000])
    trace = Trace.load(zipped)
    assert trace.truncated
    assert trace.events == whole.events[: len(trace)]


def spoil(path: Path, line: int, text: str) -> None:
    lines = path.read_text().split("\n")
    lines[line - 1] = text
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "line 7: this is no event"),
        ('{"kind":"schedule"}', "line 7: this is no event"),
        ('{"kind":"schedule","seq":"x","proc":"caller","t0":0,"t1":1}', "line 7: this is no event"),
        ("[]", "line 7: this is no event"),
    ],
)
def test_a_damaged_line_is_named(path: Path, text: str, says: str) -> None:
    spoil(path, 7, text)
    with pytest.raises(TraceError, match=says):
        Trace.load(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b'{"a": 1}\n', "line 1: this is no trace of minivllm"),
        (b"PK\x03\x04 something else\n", "line 1: this is no trace of minivllm"),
        (b"\x1f\x8bbroken", "damaged gzip file"),
        (b'{"kind":"header","schema":99,"minivllm":"9.9"}\n', "schema 99, and this minivllm reads up to"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says):
        Trace.load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be read: No such file"):
        Trace.load(tmp_path / "nothing.jsonl")


def test_two_traces_joined_are_refused(path: Path) -> None:
    length = len(path.read_text().splitlines())
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(TraceError, match=f"line {length + 1}: a second header"):
        Trace.load(path)


def test_a_receive_before_its_send_is_refused(tmp_path: Path) -> None:
    trace = record("stop", multiprocess=True).trace
    trace = Trace(trace.header, map(msgspec.structs.replace, trace))
    receive = trace.filter(kind="core.receive")[0]
    receive.t0 -= 10**9
    trace.save(tmp_path / "wrong.jsonl")
    with pytest.raises(TraceError, match=rf"Event {receive.seq} \(core.receive, message 0\).*core_client.send"):
        Trace.load(tmp_path / "wrong.jsonl")


# ---------------------------------------------------------------------- versions


def test_kinds_of_a_newer_version_are_kept(path: Path, tmp_path: Path) -> None:
    known = Trace.load(path)
    raw = {"kind": "a.kind.to.come", "seq": 9000, "proc": "caller", "t0": 1, "t1": 2, "step": 1, "grid": [1, 2]}
    with path.open("a") as file:
        file.write(json.dumps(raw) + "\n")
    trace = Trace.load(path)
    (event,) = trace.filter(kind="a.kind.to.come")
    assert isinstance(event, Unknown)
    assert (event.raw, event.seq, event.step, event.boundary) == (raw, 9000, 1, None)
    assert len(trace) == len(known) + 1
    trace.save(tmp_path / "again.jsonl")
    assert Trace.load(tmp_path / "again.jsonl").events == trace.events


def test_fields_of_a_newer_version_are_ignored(path: Path) -> None:
    known = Trace.load(path)
    lines = path.read_text().splitlines()
    spoil(path, 2, json.dumps({**json.loads(lines[1]), "a_new_field": {"x": 1}}))
    assert Trace.load(path).events == known.events


def test_older_files_are_upgraded_line_by_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the current schema had renamed `step` and this file were from before."""
    known = Trace.load(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["schema"] = SCHEMA - 1
    for line in lines[1:]:
        if "step" in line:
            line["core_step"] = line.pop("step")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def rename(line: dict[str, Any]) -> dict[str, Any]:
        return {"step" if name == "core_step" else name: value for name, value in line.items()}

    monkeypatch.setitem(store_module.UPGRADES, SCHEMA - 1, rename)
    trace = Trace.load(path)
    assert trace.events == known.events
    assert trace.header.schema == SCHEMA


def test_the_frozen_file_of_schema_1_is_still_understood() -> None:
    """This file never changes: it was written when the schema was 1."""
    trace = Trace.load(FROZEN)
    assert len(trace) == len(FROZEN.read_text().splitlines()) - 1
    assert not any(isinstance(event, Unknown) for event in trace)
    assert [process.name for process in trace.header.processes] == ["caller", "core"]
    assert {event.boundary for event in trace.path("0")} - {None} == {f"B{n}" for n in range(1, 28)}
    schedule = trace.filter(kind="schedule", step=1)[0]
    assert list(schedule.num_scheduled_tokens.values()) == [4]
    assert schedule.num_free_blocks == (40, 39)
    end = trace.final_state()
    assert end.requests[trace.request_ids[0]].status == "FINISHED_ABORTED"
    assert len(end.free_blocks) == 40


# ---------------------------------------------------------------------- headers and parts


def test_every_upgrade_leads_to_the_present_schema() -> None:
    assert set(store_module.UPGRADES) == set(range(1, SCHEMA))


def test_parts_can_be_given_one_by_one_or_by_their_target(tmp_path: Path) -> None:
    trace = record("stop", multiprocess=True).trace
    target = tmp_path / "run.jsonl"
    paths = []
    for process in trace.header.processes:
        header = msgspec.structs.replace(trace.header, processes=[process], part=True)
        events = [msgspec.structs.replace(event) for event in trace if event.proc == process.name]
        part = tmp_path / f"run.jsonl.1-0.{process.name}.part"
        store_module.write(part, header, events)
        paths.append(part)
    for found in (Trace.load(*paths), Trace.load(target)):
        assert [(e.kind, e.t0, e.t1, e.parent, e.reqs, e.step) for e in found] == [
            (e.kind, e.t0, e.t1, e.parent, e.reqs, e.step) for e in trace
        ]
        assert not any(process.complete for process in found.header.processes)  # no last line says that it is all


def test_whole_traces_are_not_put_together(path: Path) -> None:
    with pytest.raises(TraceError, match="only the parts of one trace"):
        Trace.load(path, path)


def test_a_header_says_nothing_twice() -> None:
    header = record("plain", multiprocess=False).trace.header
    assert isinstance(decode(encode(header)), Header)
    assert not {"trace", "model", "tokenizer", "trace_clock"} & set(header.config)


def test_an_event_that_json_has_no_form_for_loses_its_fields_only() -> None:
    class Odd:
        pass

    good = EVENTS["step"](0, "caller", 0, 1)
    bad = EVENTS["free"](1, "caller", 2, 3, block_ids=[Odd()])
    lines = store_module.encode_safely([good, bad]).splitlines()
    assert decode(lines[0]) == good
    event = decode(lines[1])
    assert isinstance(event, Event)
    assert (event.kind, event.seq, event.block_ids) == ("free", 1, [])
    assert "Odd" in event.view_error


def test_a_cut_in_any_part_is_noticed(tmp_path: Path) -> None:
    trace = record("stop", multiprocess=True).trace
    for cut in ("caller", "core"):
        for process in trace.header.processes:
            header = msgspec.structs.replace(trace.header, processes=[process], part=True)
            part = tmp_path / f"{cut}.jsonl.1-0.{process.name}.part"
            store_module.write(part, header, [event for event in trace if event.proc == process.name])
            if process.name == cut:
                part.write_bytes(part.read_bytes()[:-9])
        assert Trace.load(tmp_path / f"{cut}.jsonl").truncated


def test_the_parts_of_the_latest_run_are_found_whatever_the_name(tmp_path: Path) -> None:
    target = tmp_path / "run [a] *.jsonl"
    for age, run in enumerate(["3-0", "1-0", "2-0"]):
        for process in ("core", "caller"):
            path = tmp_path / f"{target.name}.{run}.{process}.part"
            path.touch()
            os.utime(path, (10**9 - age, 10**9 - age))
    (tmp_path / "run a x.jsonl.9-0.caller.part").touch()
    found = store_module.find_parts(target)
    assert [path.name.removeprefix(target.name) for path in found] == [".3-0.caller.part", ".3-0.core.part"]


def test_joined_zipped_files_are_one(path: Path, tmp_path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    joined = tmp_path / "joined.jsonl.gz"
    joined.write_bytes(b"".join(gzip.compress(b"".join(some)) for some in (lines[:9], lines[9:])))
    assert Trace.load(joined).events == Trace.load(path).events
    Trace.load(path).save(joined)
    assert joined.read_bytes()[4:8] == bytes(4)  # RFC 1952: no time


def test_a_part_says_when_it_is_whole(path: Path, tmp_path: Path) -> None:
    """And the garbage collector is on again after reading."""
    trace = Trace.load(path)
    sink = store_module.PartFile(str(tmp_path / "a.part"), trace.header)
    sink.write(trace.events[:3])
    assert not store_module.read(tmp_path / "a.part").complete
    sink.close()
    assert store_module.read(tmp_path / "a.part").complete
    assert gc.isenabled()


def test_a_full_disk_is_told_once(tmp_path: Path, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = store_module.PartFile("/dev/full", Trace.load(path).header)
    for _ in range(3):
        sink.write([])
    sink.close()
    assert sink.failed and len(caplog.records) == 1
