"""The life of a request as a table: it fits its width, has every boundary in order, and says the numbers."""

import pytest
from traced_runs import record

from minivllm.show.describe import quoted, ranges
from minivllm.show.table import format_life, steps_of
from minivllm.trace import TraceError

SCENARIOS = [("plain", False), ("three", True), ("chunked", False), ("prefix", False), ("preempt", False)]
SCENARIOS += [("priority", False), ("stop", True), ("seats", False), ("samples", False), ("logprobs", False)]


@pytest.mark.parametrize(("name", "across"), SCENARIOS)
@pytest.mark.parametrize("width", [70, 100])
def test_every_life_fits_and_leaves_no_boundary_out(name: str, across: bool, width: int) -> None:
    trace = record(name, multiprocess=across).trace
    for external in dict.fromkeys(trace.external_ids.values()):
        text = format_life(trace, external, width)
        assert all(len(line) <= width for line in text.splitlines())
        shown = {line.split()[0] for line in text.splitlines() if line[:1] == "B"}
        left_out = {"B12", "B14"}  # B11 and B13 say the same
        assert shown >= {e.boundary for e in trace.path(external)} - {None} - left_out
        assert "None" not in text.replace("end token None", "")


def test_the_first_step_is_told_in_order() -> None:
    text = format_life(record("three", multiprocess=True).trace, "0")
    numbers = [int(line.split()[0][1:]) for line in text.splitlines() if line[:1] == "B"]
    first_life = numbers[: numbers.index(25) + 1]
    assert first_life == sorted(first_life)


def test_the_numbers_are_those_of_the_run() -> None:
    run = record("plain", multiprocess=False)
    text = format_life(run.trace, "0")
    (output,) = run.outputs[0].outputs
    assert "Request 0 (0-" in text
    assert "4 prompt tokens, 12 output tokens, 12 steps, ended by length" in text
    assert "asked   “The dog sleeps”" in text
    assert "4 tokens, computed 0 → 4, budget 64 → 60" in text
    assert "blocks 0 → 1 [1], free 40 → 39" in text
    assert f"token {output.token_ids[0]}\n" in text
    assert "tokens 15 → 16, blocks 4 → 0, ends: length" in text


def test_steps_say_positions_and_slots() -> None:
    run = record("plain", multiprocess=False)
    lines = steps_of(run.trace, run.trace.request_ids[0])
    assert [line.step for line in lines] == list(range(1, 13))
    assert [line.computed for line in lines] == [(0, 4)] + [(n, n + 1) for n in range(4, 15)]
    assert lines[0].positions == [0, 1, 2, 3]
    assert lines[0].slots == [4, 5, 6, 7]
    assert [line.positions for line in lines[1:]] == [[n] for n in range(4, 15)]
    assert [line.token for line in lines] == [str(token) for token in run.outputs[0].outputs[0].token_ids]


def test_waiting_preemption_and_hits_have_their_words() -> None:
    preempted = format_life(record("preempt", multiprocess=False).trace, "2")
    assert "preempted, " in preempted
    assert "waits: blocks (needs " in preempted
    assert "resumed, hit " in preempted
    assert "waits: seats" in format_life(record("seats", multiprocess=False).trace, "2")
    assert "hit 12 of 16 tokens" in format_life(record("prefix", multiprocess=False).trace, "1")


def test_a_stop_string_and_its_late_abort() -> None:
    trace = record("stop", multiprocess=True).trace
    text = format_life(trace, "0")
    assert "ended by stop string “333”" in text
    assert "message 2: ABORT" in text
    assert "FINISHED_ABORTED" in text


def test_long_lives_are_folded() -> None:
    trace = record("stop", multiprocess=False).trace
    text = format_life(trace, "1")
    assert "more steps" in text
    assert len(text.splitlines()) < 80


def test_samples_are_told_one_after_the_other() -> None:
    text = format_life(record("samples", multiprocess=False).trace, "0")
    assert text.count("Request 0 (") == 3


def test_a_redacted_trace_has_a_table_too() -> None:
    text = format_life(record("stop", multiprocess=False).trace.redact(), "0")
    assert "asked   (14 characters)" in text
    assert "sleeps" not in text


def test_a_life_that_ended_in_an_error() -> None:
    trace = record("plain", multiprocess=False).trace
    whole = format_life(trace, "0")
    assert "not finished" not in whole
    cut = type(trace)(trace.header, trace.events[:40], truncated=True)
    assert "not finished" in format_life(cut, "0")


def test_an_unknown_request() -> None:
    with pytest.raises(TraceError, match="no request 'x'"):
        format_life(record("plain", multiprocess=False).trace, "x")


def test_runs_of_numbers_and_texts_are_short() -> None:
    assert ranges([16, 17, 18, 30]) == "16..18 30"
    assert ranges([1, 3, 5, 7, 9]) == "1 3 … 9"
    assert quoted("a\nb") == "“a↵b”"
    assert len(quoted("x" * 100, 20)) == 22
