"""The logical clock: two recordings of one run are the same file, and a receive is later than its send."""

from pathlib import Path

import msgspec
import pytest
from traced_runs import generate, llm_of

from minivllm.trace import Trace
from minivllm.trace.clock import LOGICAL_TICK_NS, LogicalClock, MonotonicClock, Offset, measure_offset
from minivllm.trace.events_cache import GetCachedBlock
from minivllm.trace.events_ipc import CoreClientReceive, CoreClientSend, CoreReceive, CoreSend
from minivllm.trace.merge import merge, message_pairs
from minivllm.trace.schema import Process, new_header
from minivllm.trace.store import Part


def logical(name: str, path: Path, **settings: object) -> Trace:
    with llm_of(name, trace=str(path), trace_clock="logical", **settings) as llm:
        generate(llm, name)
    return Trace.load(path)


@pytest.mark.parametrize("detail", [0, 1])
@pytest.mark.parametrize("name", ["three", "preempt", "priority", "stop", "samples"])
def test_two_recordings_are_the_same_bytes(tmp_path: Path, name: str, detail: int) -> None:
    texts = []
    for turn in ("one", "two"):
        trace = logical(name, tmp_path / f"{turn}.jsonl", multiprocess=False, trace_detail=detail)
        lines = (tmp_path / f"{turn}.jsonl").read_bytes().split(b"\n", 1)
        header = msgspec.structs.replace(trace.header, environment={})
        texts.append((msgspec.json.encode(header), lines[1]))
    assert texts[0] == texts[1]


def test_ids_times_and_hashes_are_counted(tmp_path: Path) -> None:
    trace = logical("three", tmp_path / "t.jsonl", multiprocess=False)
    assert trace.request_ids == ["0-00000000", "1-00000001", "2-00000002"]
    assert [event.arrival_time for event in trace.filter(kind="render_cmpl")] == [0.0, 1.0, 2.0]
    stamps = [stamp for event in trace for stamp in (event.t0, event.t1)]
    assert all(stamp % LOGICAL_TICK_NS == 0 for stamp in stamps)
    assert len(set(stamps)) == len(stamps)


def test_across_processes_a_receive_is_later_than_its_send(tmp_path: Path) -> None:
    trace = logical("stop", tmp_path / "t.jsonl", multiprocess=True)
    pairs = list(message_pairs(trace))
    assert pairs
    assert all(receive.t0 > send.t0 for send, receive in pairs)
    for event in trace:
        parent = trace.parent(event)
        assert event.t0 < event.t1
        assert parent is None or parent.t0 < event.t0 <= event.t1 < parent.t1


def test_lamport_pushes_only_what_must_wait() -> None:
    def part(name: str, *lines: object) -> Part:
        return Part(new_header("logical", 0, Process(name), "test"), list(lines), True, False)

    caller = part(
        "caller",
        CoreClientSend(0, "caller", 5000, 6000, msg=0, message_type="ADD"),
        CoreClientReceive(1, "caller", 7000, 8000, msg=0, message_type="OUTPUTS"),
    )
    core = part(
        "core",
        GetCachedBlock(0, "core", 0, 1000),
        CoreReceive(1, "core", 2000, 3000, msg=0, message_type="ADD"),
        CoreSend(2, "core", 9000, 10000, msg=0, message_type="OUTPUTS"),
    )
    _, events = merge([core, caller])
    times = {event.kind: (event.t0, event.t1) for event in events}
    assert times["get_cached_block"] == (0, 1000)
    assert times["core_client.send"] == (5000, 6000)
    assert times["core.receive"] == (6000, 7000)
    assert times["core.send"] == (13000, 14000)
    assert times["core_client.receive"] == (14000, 15000)


# ---------------------------------------------------------------------- real clocks


def test_a_logical_clock_ticks_at_every_look_but_not_between() -> None:
    clock = LogicalClock()
    assert [clock(), clock(), clock()] == [0, 1000, 2000]
    assert clock.seconds() == clock.seconds() == 2e-6


def test_an_offset_is_found_within_its_bound() -> None:
    ahead = 5_000_000_000
    here = iter(range(0, 10**9, 1000))  # each look costs 1 µs
    found = measure_offset(lambda: (next(here) + ahead, next(here) + ahead), lambda: next(here))
    assert abs(found.offset_ns - ahead) <= found.error_bound_ns
    assert found.error_bound_ns < 5000


def test_an_offset_within_its_own_error_is_none() -> None:
    here = iter(range(0, 10**9, 1000))
    assert measure_offset(lambda: (next(here), next(here)), lambda: next(here)).offset_ns == 0


def test_the_quickest_round_counts() -> None:
    now = 0
    delays = iter([900, 900, 30, 30, 500, 500])

    def ask() -> tuple[int, int]:
        nonlocal now
        now += next(delays)
        stamp = now
        now += next(delays)
        return stamp, stamp

    assert measure_offset(ask, lambda: now, rounds=3) == Offset(0, 30)


def test_the_real_clock_never_goes_back() -> None:
    clock = MonotonicClock()
    stamps = [clock() for _ in range(1000)]
    assert stamps == sorted(stamps)
