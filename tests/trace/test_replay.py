"""Walking through a trace: by request, step, kind, up and down, forwards and backwards; and traces for bug reports."""

import itertools
import json
import subprocess
import sys

import pytest
from traced_runs import PROMPTS, record

from minivllm.trace import Trace, TraceError, load
from minivllm.trace.merge import merge
from minivllm.trace.schema import Process, new_header
from minivllm.trace.store import Part


@pytest.fixture(scope="module")
def trace() -> Trace:
    return record("three", multiprocess=True).trace


# ---------------------------------------------------------------------- looking


def test_filters_can_be_joined(trace: Trace) -> None:
    everything = list(trace)
    assert trace.filter() == everything
    assert trace.filter(kind="schedule") == [e for e in everything if e.kind == "schedule"]
    assert trace.filter(kind=("schedule", "free"), step=1) == [e for e in trace.filter(kind="schedule") if e.step == 1]
    assert trace.filter(boundary="B7", proc="core") == trace.filter(kind="core.receive")
    mine = trace.filter(request="1", kind="detokenize")
    assert mine
    assert all(event.reqs == trace.internal_ids("1") for event in mine)
    assert trace.filter(step=10_000) == []


def test_requests_are_found_by_either_id(trace: Trace) -> None:
    assert list(trace.external_ids.values()) == ["0", "1", "2"]
    for internal, external in trace.external_ids.items():
        assert trace.internal_ids(external) == trace.internal_ids(internal) == [internal]
        assert trace.path(external) == trace.path(internal)


def test_an_unknown_request_is_refused_and_the_known_ones_are_named(trace: Trace) -> None:
    with pytest.raises(TraceError, match=r"no request '7'\. Its requests: 0, 1, 2\."):
        trace.path("7")


def test_a_path_leads_from_the_question_to_the_answer(trace: Trace) -> None:
    path = trace.path("0")
    assert [event.boundary for event in path[:8]] == ["B1", "B2", "B3", "B4", "B4", "B5", "B6", "B7"]
    assert [event.seq for event in path] == sorted(event.seq for event in path)
    others = set(trace.request_ids[1:])
    assert not any(others >= set(event.reqs) for event in path)


def test_a_request_that_waits_is_in_no_event_of_the_batch() -> None:
    trace = record("seats", multiprocess=False).trace
    first, second, _ = trace.request_ids
    (skipped,) = [s for s in trace.filter(kind="schedule", step=1)[0].skipped if s.req_id == second]
    assert skipped.reason == "seats"
    assert {event.kind for event in trace.filter(step=1, request=second)} <= {"generate", "run_engine", "get_output"}
    assert trace.filter(step=1, request=first, kind="model_forward")


def test_the_tree_holds_every_event_once(trace: Trace) -> None:
    walked = [(depth, event.seq) for depth, event in trace.walk()]
    assert sorted(seq for _, seq in walked) == [event.seq for event in trace]
    assert {depth for depth, _ in walked} >= {0, 1, 2, 3}
    for event in trace:
        for child in trace.children(event):
            assert trace.parent(child) is event
    assert all(trace.parent(root) is None for root in trace.roots)
    step = trace.filter(kind="step")[0]
    assert next(iter(trace.walk(step))) == (0, step)


def test_next_and_previous(trace: Trace) -> None:
    schedules = trace.filter(kind="schedule")
    assert trace.next(-1 + schedules[0].seq) is schedules[0]
    assert trace.next(schedules[0].seq, kind="schedule") is schedules[1]
    assert trace.previous(schedules[1].seq, kind="schedule") is schedules[0]
    assert trace.previous(schedules[0].seq, kind="schedule") is None
    assert trace.next(trace.events[-1].seq) is None
    assert list(reversed(trace)) == trace.events[::-1]


def test_a_cursor_goes_everywhere_and_comes_back(trace: Trace) -> None:
    cursor = trace.cursor()
    visited = [cursor.seq]
    while cursor.forward():
        visited.append(cursor.seq)
    assert visited == [event.seq for event in trace]
    back = [cursor.seq]
    while cursor.back():
        back.append(cursor.seq)
    assert back == visited[::-1]

    assert cursor.step_forward()
    first = cursor.event
    assert (first.kind, first.step) == ("schedule", 1)
    assert cursor.state.step == 1
    assert cursor.state_before.step == 0
    assert cursor.step_forward()
    assert cursor.step_back()
    assert cursor.event is first
    assert not cursor.step_back()
    assert cursor.up()
    assert cursor.event.kind == "step"
    assert cursor.down()
    assert cursor.event is first
    assert cursor.forward(request="1", kind="detokenize")
    assert cursor.event.reqs == trace.internal_ids("1")


def test_steps_are_numbered_from_1(trace: Trace) -> None:
    assert trace.steps == list(range(1, len(trace.filter(kind="schedule")) + 1))


def test_rows_are_plain_data(trace: Trace) -> None:
    rows = trace.rows()
    assert len(rows) == len(trace)
    assert json.loads(json.dumps(rows))[0]["boundary"] == "B1"


# ---------------------------------------------------------------------- big traces, light imports


def test_a_big_trace_is_stepped_through_in_both_directions() -> None:
    """A run of 60 steps many times over: states come from key frames, not from the beginning."""
    small = record("preempt", multiprocess=False).trace
    copies = []
    length = small.events[-1].t1 + max(event.t1 for event in small)
    seqs = itertools.count()
    for turn in range(20):
        for event in small:
            copy = event.__copy__()
            copy.t0, copy.t1, copy.seq = event.t0 + turn * length, event.t1 + turn * length, next(seqs)
            copy.parent = None
            copies.append(copy)
    header = new_header("monotonic", 0, Process("caller"), "test", num_gpu_blocks=small.header.num_gpu_blocks)
    big = Trace(*merge([Part(header, copies, True, False)]))
    places = [e.seq for e in big.filter(kind="update_from_output")][::7]
    expected = {}
    at = {big[seq].t1: seq for seq in places}
    for event, state in big.states():
        if event.t1 in at:
            expected[at[event.t1]] = state.copy()
    assert all(big.state_at(seq) == expected[seq] for seq in reversed(places))


IMPORTS = """
import sys
import minivllm.trace
from minivllm.trace import KINDS, Cursor, Event, Recorder, State, Trace, TraceError, load
from minivllm.show.table import format_life
trace = load(sys.argv[1])
LOOKING = ("minivllm.trace", "minivllm.show")
format_life(trace, "0"); trace.final_state(); trace.redact()
heavy = {"torch", "transformers", "tokenizers", "zmq", "numpy"} & set(sys.modules)
engine = [name for name in sys.modules if name.startswith("minivllm.") and not name.startswith(LOOKING)]
print(sorted(heavy), sorted(engine))
"""


def test_reading_a_trace_needs_neither_torch_nor_the_engine() -> None:
    command = [sys.executable, "-c", IMPORTS, str(record("three", multiprocess=True).path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] ['minivllm.boundary', 'minivllm.errors', 'minivllm.files']"


def test_a_name_that_the_package_does_not_have() -> None:
    import minivllm.trace

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        minivllm.trace.nothing  # noqa: B018


def test_pandas_only_where_it_is_installed(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TraceError, match="pip install pandas"):
        trace.to_pandas()


# ---------------------------------------------------------------------- for bug reports


@pytest.mark.parametrize("name", ["three", "stop", "logprobs"])
def test_a_redacted_trace_has_no_text_and_no_token_ids(tmp_path, name: str) -> None:
    run = record(name, multiprocess=False, trace_detail=2)
    run.trace.redact().save(tmp_path / "redacted.jsonl")
    text = (tmp_path / "redacted.jsonl").read_text()
    redacted = load(tmp_path / "redacted.jsonl")
    assert redacted.header.redacted
    for secret in [*PROMPTS, "sleeps", '"333"', str(run.trace.header.environment["model"]), '"candidates":[']:
        assert secret not in text
    for event in redacted:
        for field in event.secret:
            value = getattr(event, field)
            assert not isinstance(value, str)
    hashes = [h for e in redacted.filter(kind="cache_full_blocks") for h in e.block_hashes]
    assert hashes
    assert all(h.startswith("h") for h in hashes)


def test_a_redacted_trace_still_tells_what_happened(tmp_path) -> None:
    run = record("preempt", multiprocess=False)
    run.trace.redact().save(tmp_path / "redacted.jsonl")
    redacted = load(tmp_path / "redacted.jsonl")
    assert [(e.kind, e.t0, e.reqs) for e in redacted] == [(e.kind, e.t0, e.reqs) for e in run.trace]
    render, original = redacted.filter(kind="render_cmpl")[0], run.trace.filter(kind="render_cmpl")[0]
    assert render.prompt == len(original.prompt)
    assert render.prompt_token_ids == len(original.prompt_token_ids)
    for event in run.trace.filter(kind="schedule"):
        seen, known = redacted.state_at(event.seq), run.trace.state_at(event.seq)
        assert seen.free_order == known.free_order
        assert seen.block_tables == known.block_tables
        assert [r.num_tokens for r in seen.requests.values()] == [r.num_tokens for r in known.requests.values()]
    # the original is untouched
    assert original.prompt == PROMPTS[0]


def test_a_redacted_error_keeps_its_name_only(tmp_path) -> None:
    from traced_runs import greedy, llm_of

    from minivllm.errors import InputError

    with llm_of("plain", multiprocess=False, trace=str(tmp_path / "t.jsonl")) as llm, pytest.raises(InputError):
        llm.generate({"prompt": "my secret", "wrong": 1}, greedy(), use_tqdm=False)
    redacted = load(tmp_path / "t.jsonl").redact()
    assert redacted.filter(kind="render_cmpl")[0].error == "InputError"
