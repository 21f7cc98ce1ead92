"""Two traces: the first difference, what follows from it, and when they are the same."""

import argparse
from pathlib import Path
from typing import Any

import msgspec
import pytest
from told_scenarios import scenario_path, scenario_trace
from traced_runs import record

from minivllm.errors import InputError
from minivllm.show.commands import add_diff_arguments, run_diff
from minivllm.show.diff import Diff, diff, format_diff
from minivllm.trace import Trace


def differ(a: str, b: str) -> Diff:
    return diff(scenario_trace(a), scenario_trace(b))


def figure(found: Diff, what: str) -> tuple[Any, Any]:
    return next((row.a, row.b) for row in found.figures if row.what == what)


def output(found: Diff, request: str, what: str) -> tuple[Any, Any]:
    return next((row.a, row.b) for row in found.outputs[request] if row.what == what)


def copy_with(trace: Trace, seq: int, **fields: Any) -> Trace:
    """The same trace with other values in one event."""
    events = [msgspec.structs.replace(event, **(fields if event.seq == seq else {})) for event in trace]
    return Trace(trace.header, events)


# ---------------------------------------------------------------------- the same


@pytest.mark.parametrize("scenario", ["one", "pool-8", "n2", "poison"])
def test_a_trace_is_the_same_as_itself(scenario: str) -> None:
    found = differ(scenario, scenario)
    assert found.same
    assert found.first is None
    assert not found.settings
    assert format_diff(found).startswith("The same: ")


def test_times_ids_and_hashes_make_no_difference() -> None:
    """The same requests later in another engine's life, with other ids, another hash seed and another clock."""
    one = record("prefix", multiprocess=False).trace
    other = record("prefix", multiprocess=False, hash_seed="another").trace
    assert one.request_ids != other.request_ids
    found = diff(one, other)
    assert found.same
    assert found.num_differences == 0
    assert [row.what for row in found.settings] == ["hash_seed"]
    assert found.ratios[0][0] == "the whole run"
    assert all(ratio > 0 for _, ratio in found.ratios)


def test_a_redacted_trace_is_the_same_as_the_open_one() -> None:
    trace = scenario_trace("stop-string")
    found = diff(trace, trace.redact())
    assert found.same
    assert found.settings == []


def test_requests_are_paired_by_arrival_where_no_id_is_common(tmp_path: Path) -> None:
    """An engine that has answered five requests before calls the next one 5."""
    text = scenario_path("one").read_text().replace("0-00000000", "5-00000005")
    later = tmp_path / "later.jsonl"
    later.write_text(
        text.replace('"external_req_id":"0"', '"external_req_id":"5"').replace('"request_id":"0"', '"request_id":"5"')
    )
    found = diff(scenario_trace("one"), Trace.load(later))
    assert found.same
    assert list(found.outputs) == ["0"]


# ---------------------------------------------------------------------- different


def test_another_budget() -> None:
    found = differ("one", "chunk-16")
    first = found.first
    assert [row.what for row in found.settings] == ["max_num_batched_tokens"]
    assert (first.step, first.boundary, first.field, first.a, first.b) == (1, "B10", "num_scheduled_tokens.0", 41, 16)
    assert found.first_decision is first
    assert figure(found, "steps") == (15, 17)
    assert figure(found, "tokens computed") == (55, 55)
    assert output(found, "0", "first token in step") == (1, 3)
    text, same_text = output(found, "0", "text")
    assert text == same_text


def test_another_block_size() -> None:
    found = differ("one", "block-32")
    first = found.first
    assert (first.step, first.kind, first.field) == (1, "schedule", "scheduled_new_reqs.0.block_ids")
    assert (first.a, first.b) == ([1, 2, 3], [1, 2])
    assert (found.unpaired_a, found.unpaired_b) == ([], ["1"])  # that scenario asks twice


def test_a_larger_pool() -> None:
    """The first difference is a counter; the first decision that differs comes eight steps later."""
    found = differ("pool-8", "pool-10")
    assert (found.first.step, found.first.field) == (1, "num_free_blocks")
    decision = found.first_decision
    assert (decision.step, decision.field, decision.a, decision.b) == (9, "num_scheduled_tokens.2", None, 1)
    assert found.only_a == {"forget_uncomputed_blocks": 1}
    assert figure(found, "preemptions") == (1, 0)
    assert figure(found, "steps") == (32, 25)
    assert output(found, "2", "last step") == (32, 25)
    assert output(found, "1", "last step") == (15, 15)


def test_the_poisoned_prefix() -> None:
    """With our rule and without it: another hit, and from it another answer."""
    found = differ("poison", "poison-as-vllm")
    assert (found.first.step, found.first.field, found.first.a, found.first.b) == (
        6,
        "skipped.0.num_hit_tokens",
        128,
        144,
    )
    lookup = next(one for one in found.differences if one.kind == "get_computed_blocks")
    assert (lookup.step, lookup.requests, lookup.field, lookup.a, lookup.b) == (6, ("0",), "num_hit_tokens", 128, 144)
    right, wrong = output(found, "0", "text")
    assert "Athens" in right
    assert right != wrong
    right, same = output(found, "1", "text")
    assert right == same


def test_no_prefix_cache() -> None:
    found = differ("together", "together-nc")
    assert (found.first.field, found.first.a, found.first.b) == ("num_scheduled_tokens.1", 9, 23)
    assert "touch" in found.only_a
    assert figure(found, "tokens found in the cache") == (48, 0)


def test_one_process_or_two() -> None:
    """The messages are all that two processes add."""
    found = diff(record("plain", multiprocess=False).trace, record("plain", multiprocess=True).trace)
    assert found.num_differences == 0
    assert found.only_a == {}
    assert set(found.only_b) == {"core_client.send", "core.receive", "core.send", "core_client.receive"}
    assert not found.same


def test_one_field_of_one_event() -> None:
    trace = scenario_trace("one")
    sampled = trace.filter(kind="sample_tokens", step=7)[0]
    found = diff(trace, copy_with(trace, sampled.seq, sampled_token_ids=[[28]]))
    assert found.num_differences == 1
    first = found.first
    assert (first.step, first.boundary, first.field, first.a, first.b) == (7, "B20", "sampled_token_ids[0][0]", 284, 28)
    assert first.seqs == (sampled.seq, sampled.seq)
    assert found.first_decision is first


def test_an_event_that_is_missing() -> None:
    trace = scenario_trace("one")
    gone = trace.filter(kind="cache_full_blocks", step=8)[0]
    found = diff(trace, Trace(trace.header, [event for event in trace if event.seq != gone.seq]))
    assert found.num_differences == 1
    assert (found.first.kind, found.first.step, found.first.field) == ("cache_full_blocks", 8, "")
    assert found.first.seqs == (gone.seq, None)


def test_values_may_differ_by_rounding() -> None:
    trace = scenario_trace("one")
    forward = trace.filter(kind="model_forward", step=1)[0]
    values = copy_with(trace, forward.seq, hidden_states_norms=[1.0, 2.0])
    assert diff(values, copy_with(trace, forward.seq, hidden_states_norms=[1.0, 2.0001])).num_differences == 0
    assert diff(values, copy_with(trace, forward.seq, hidden_states_norms=[1.0, 2.1])).num_differences == 1


# ---------------------------------------------------------------------- the command


def run(*paths: Path) -> int:
    parser = argparse.ArgumentParser()
    add_diff_arguments(parser)
    return run_diff(parser.parse_args([str(path) for path in paths]))


def test_command_of_equal_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scenario_path("one"), scenario_path("one")) == 0
    assert "no difference in them" in capsys.readouterr().out


def test_command_of_different_traces(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scenario_path("one"), scenario_path("chunk-16")) == 1
    said = capsys.readouterr().out
    assert "max_num_batched_tokens  64 → 16" in said
    assert "step 1, B10 schedule (event 12): num_scheduled_tokens.0 41 → 16" in said
    assert "first token in step 1 → 3" in said


def test_command_of_what_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="no trace of minivllm"):
        run(scenario_path("one"), tmp_path / "x.jsonl")
