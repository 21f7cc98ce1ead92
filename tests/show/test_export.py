"""Exports: structure of the Chrome file, the CSV table, OTLP by the official protobufs, and the commands."""

import argparse
import base64
import csv
import io
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from told_scenarios import scenario_path, scenario_trace
from traced_runs import record

from minivllm.errors import InputError
from minivllm.show.commands import add_export_arguments, add_why_arguments, run_export, run_why
from minivllm.show.diff import diff
from minivllm.show.explain import Explainer, format_explanation
from minivllm.show.export import FORMATS, export
from minivllm.show.export_csv import COLUMNS
from minivllm.trace import Trace

SCENARIOS = ["one", "together", "pool-8", "poison", "n2", "stop-string", "abort"]


def two_processes() -> Trace:
    return record("three", multiprocess=True).trace


def traces() -> list[Trace]:
    runs = [record("three", multiprocess=False), record("chunked", multiprocess=False, trace_detail=1)]
    return [*map(scenario_trace, SCENARIOS), *(run.trace for run in runs), two_processes()]


def chrome(trace: Trace) -> dict[str, Any]:
    return json.loads(export(trace, "chrome"))


def rows_of(made: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [row for row in made["traceEvents"] if row["ph"] == phase]


def threads(made: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    slices = defaultdict(list)
    for row in rows_of(made, "X"):
        slices[row["pid"], row["tid"]].append(row)
    return slices


def ns(us: float) -> int:
    return round(us * 1000)


# ---------------------------------------------------------------------- Chrome


def test_slices_of_a_thread_nest() -> None:
    for trace in traces():
        for slices in threads(chrome(trace)).values():
            open_until: list[int] = []
            for row in sorted(slices, key=lambda row: (ns(row["ts"]), -ns(row["dur"]))):
                begin, end = ns(row["ts"]), ns(row["ts"]) + ns(row["dur"])
                while open_until and open_until[-1] <= begin:
                    open_until.pop()
                assert not open_until or end <= open_until[-1], row["name"]
                open_until.append(end)


def test_every_event_is_a_slice_with_its_numbers() -> None:
    trace = two_processes()
    by_seq = {row["args"]["seq"]: row for row in rows_of(chrome(trace), "X") if "seq" in row["args"]}
    assert list(by_seq) == [event.seq for event in trace]
    for event in trace:
        row = by_seq[event.seq]
        assert row["name"].split()[-1] == event.kind
        assert row["args"].get("step") == event.step
        assert (ns(row["ts"]), ns(row["dur"])) == (event.t0, event.duration)
    schedule = trace.filter(kind="schedule")[0]
    assert by_seq[schedule.seq]["args"]["total_num_scheduled_tokens"] == schedule.total_num_scheduled_tokens


def test_processes_and_threads_have_names() -> None:
    made = chrome(two_processes())
    names = [(row["name"], row["args"]["name"]) for row in rows_of(made, "M") if "name" in row["args"]]
    processes = [name for what, name in names if what == "process_name"]
    assert processes == ["minivllm caller", "minivllm core", "requests, phase by phase"]
    tracks = {name for what, name in names if what == "thread_name"}
    assert {"main", "input", "output", "request 0", "request 1", "request 2"} <= tracks
    assert "main: attention (all layers)" in tracks  # sums over layers overlap, so each has a track of its own
    named = {(row["pid"], row["tid"]) for row in rows_of(made, "M") if row["name"] == "thread_name"}
    assert set(threads(made)) <= named


def test_an_arrow_for_every_message() -> None:
    trace = two_processes()
    made = chrome(trace)
    slices = threads(made)
    starts, ends = ({row["id"]: row for row in rows_of(made, phase)} for phase in "sf")
    sent = trace.filter(kind=("core_client.send", "core.send"))
    assert len(starts) == len(rows_of(made, "s")) == len(sent) > 10
    assert set(starts) == set(ends)
    for number, start in starts.items():
        end = ends[number]
        assert start["pid"] != end["pid"]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert end["bp"] == "e"
        for arrow, kinds in (
            (start, ("core_client.send", "core.send")),
            (end, ("core.receive", "core_client.receive")),
        ):
            around = [
                row["name"].split()[-1]
                for row in slices[arrow["pid"], arrow["tid"]]
                if ns(row["ts"]) <= ns(arrow["ts"]) <= ns(row["ts"]) + ns(row["dur"])
            ]
            assert set(around) & set(kinds)


def test_no_arrow_in_one_process() -> None:
    made = chrome(scenario_trace("one"))
    assert rows_of(made, "s") == rows_of(made, "f") == []


def test_counters() -> None:
    made = chrome(scenario_trace("pool-8"))
    values = defaultdict(list)
    for row in rows_of(made, "C"):
        (value,) = row["args"].values()
        values[row["name"]].append(value)
    assert set(values) == {"free blocks", "running", "waiting", "tokens per step"}
    assert values["tokens per step"][:3] == [64, 8, 3]
    assert (max(values["free blocks"]), min(values["free blocks"])) == (7, 1)
    assert max(values["running"]) == 3
    assert values["waiting"][:3] == [1, 2, 3]
    times = [row["ts"] for row in rows_of(made, "C")]
    assert times == sorted(times)


def test_the_phases_of_a_request() -> None:
    made = chrome(scenario_trace("pool-8"))
    (pid,) = {row["pid"] for row in rows_of(made, "M") if row["args"].get("name") == "requests, phase by phase"}
    names = [row["name"] for row in rows_of(made, "X") if (row["pid"], row["tid"]) == (pid, 3)]
    assert names[0] == "request 2"
    assert [name for name in names if name in ("queue", "preempted", "recompute")] == [
        "queue",
        "preempted",
        "recompute",
    ]


def test_the_same_trace_gives_the_same_bytes() -> None:
    for form in ("chrome", "csv", "otlp-json"):
        assert export(scenario_trace("n2"), form) == export(Trace.load(scenario_path("n2")), form)


def test_a_kind_from_a_newer_version(tmp_path: Path) -> None:
    """What this version does not know is drawn under its own name."""
    line = '{"kind":"dream","seq":9999,"proc":"caller","t0":99999999,"t1":99999999,"of":"sheep"}\n'
    path = tmp_path / "newer.jsonl"
    path.write_text(scenario_path("one").read_text() + line)
    trace = Trace.load(path)
    (row,) = [row for row in rows_of(chrome(trace), "X") if row["name"] == "dream"]
    assert row["args"]["of"] == "sheep"
    assert export(trace, "csv") == export(scenario_trace("one"), "csv")
    assert diff(scenario_trace("one"), trace).only_b == {"dream": 1}


@pytest.mark.parametrize("num_lines", [1, 2, 12, 60, 200, 400, 700])
def test_a_trace_that_was_cut_off(tmp_path: Path, num_lines: int) -> None:
    """What there is can be explained, exported and compared."""
    lines = scenario_path("pool-8").read_text().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(lines[:num_lines]) + lines[num_lines][:20])
    trace = Trace.load(path)
    assert trace.truncated
    for form in FORMATS:
        assert export(trace, form)
    explainer = Explainer(trace)
    for request_id in trace.request_ids:
        for step in [None, *explainer.lives.steps]:
            assert format_explanation(explainer.explain(request_id, step))
    assert not diff(scenario_trace("pool-8"), trace).same


# ---------------------------------------------------------------------- CSV


def test_a_row_for_each_step() -> None:
    for trace in traces():
        rows = list(csv.DictReader(io.StringIO(export(trace, "csv").decode())))
        plans = trace.filter(kind="schedule")
        assert [int(row["step"]) for row in rows] == [plan.step for plan in plans]
        for row, plan in zip(rows, plans, strict=True):
            assert tuple(row) == COLUMNS
            kinds = [int(row[f"num_{phase}_tokens"]) for phase in ("prefill", "decode", "recompute")]
            assert sum(kinds) == int(row["num_tokens"]) == plan.total_num_scheduled_tokens
            assert int(row["num_free_blocks"]) == plan.num_free_blocks[1]
            assert bool(row["took_ms"]) == (trace.header.clock == "monotonic")


def test_the_step_of_a_preemption_as_a_row() -> None:
    text = export(scenario_trace("pool-8"), "csv").decode()
    rows = {row["step"]: row for row in csv.DictReader(io.StringIO(text))}
    assert (rows["1"]["scheduled"], rows["1"]["num_hit_tokens"]) == ("0:41 1:9 2:14", "48")
    assert (rows["9"]["preempted"], rows["9"]["skipped"]) == ("2", "2:preempted")
    assert rows["10"]["skipped"] == "2:blocks"
    assert (rows["16"]["num_resumed"], rows["16"]["num_recompute_tokens"]) == ("1", "11")


# ---------------------------------------------------------------------- OTLP


def parsed(trace: Trace) -> ExportTraceServiceRequest:
    """What a collector makes of it. OTLP/JSON writes ids in hex, protobuf's own JSON form in base64."""
    made = json.loads(export(trace, "otlp-json"))
    for span in spans_of(made):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    return ParseDict(made, ExportTraceServiceRequest())


def spans_of(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for one in made["resourceSpans"] for scope in one["scopeSpans"] for span in scope["spans"]]


def attributes(span: Any) -> dict[str, Any]:
    found = {}
    for attribute in span.attributes:
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        found[attribute.key] = (
            [getattr(v, v.WhichOneof("value")) for v in value.values] if kind == "array_value" else value
        )
    return found


def test_a_collector_can_read_it() -> None:
    for trace in traces():
        (resource,) = parsed(trace).resource_spans
        assert attributes(resource.resource)["service.name"] == "minivllm"
        (scope,) = resource.scope_spans
        roots = [span for span in scope.spans if not span.parent_span_id]
        assert len(roots) == len(trace.request_ids)
        assert len({root.trace_id for root in roots}) == len(roots)
        assert len({span.span_id for span in scope.spans}) == len(scope.spans)
        for root in roots:
            assert (len(root.trace_id), len(root.span_id), root.name) == (16, 8, "llm_request")
            children = [span for span in scope.spans if span.parent_span_id == root.span_id]
            assert {child.trace_id for child in children} == {root.trace_id}
            assert children[0].start_time_unix_nano == root.start_time_unix_nano
            assert children[-1].end_time_unix_nano == root.end_time_unix_nano
            for before, after in pairwise(children):
                assert before.end_time_unix_nano == after.start_time_unix_nano


def test_names_of_the_conventions_and_of_vllm() -> None:
    (resource,) = parsed(two_processes()).resource_spans
    span = next(span for span in resource.scope_spans[0].spans if not span.parent_span_id)
    said = attributes(span)
    assert span.kind == 2  # SERVER
    assert said["gen_ai.operation.name"] == "text_completion"
    assert said["gen_ai.usage.input_tokens"] == said["gen_ai.usage.prompt_tokens"] > 0
    assert said["gen_ai.usage.output_tokens"] == said["gen_ai.usage.completion_tokens"] == 12
    assert said["gen_ai.request.max_tokens"] == 12
    assert said["gen_ai.request.temperature"] == 0.0
    assert said["gen_ai.request.choice.count"] == said["gen_ai.request.n"] == 1
    assert said["gen_ai.response.id"] == said["gen_ai.request.id"] == "0"
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    latencies = [
        f"gen_ai.latency.{name}" for name in ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
    ]
    assert all(said[name] > 0 for name in latencies)
    assert said["gen_ai.latency.e2e"] > sum(said[name] for name in latencies)
    assert said["gen_ai.latency.time_to_first_token"] == said["gen_ai.response.time_to_first_chunk"]
    assert span.start_time_unix_nano > 1.7e18  # a real date


def test_a_request_as_a_span() -> None:
    (resource,) = parsed(scenario_trace("pool-8")).resource_spans
    spans = resource.scope_spans[0].spans
    root = next(span for span in spans if attributes(span).get("gen_ai.request.id") == "2")
    said = attributes(root)
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.usage.cache_read.input_tokens"] == 16
    assert (said["minivllm.num_preemptions"], said["minivllm.end"]) == (1, "max_tokens")
    assert [event.name for event in root.events] == ["QUEUED", "SCHEDULED", "FIRST_TOKEN", "PREEMPTED", "SCHEDULED"]
    assert not any("latency" in name for name in said)  # a logical clock has no durations
    phases = [span.name for span in spans if span.parent_span_id == root.span_id]
    assert phases.count("preempted") == 1
    preempted = next(span for span in spans if span.name == "preempted")
    assert attributes(preempted)["minivllm.steps"] == list(range(9, 16))


def test_stop_sequences_are_secret_in_a_redacted_trace() -> None:
    trace = scenario_trace("stop-string")
    for one, stop in ((trace, ["Paris"]), (trace.redact(), None)):
        root = parsed(one).resource_spans[0].scope_spans[0].spans[0]
        assert attributes(root).get("gen_ai.request.stop_sequences") == stop
        assert attributes(root)["gen_ai.response.finish_reasons"] == ["stop"]
        assert b"Paris" not in export(one, "otlp-json") or stop
        assert b"Paris" not in export(one, "chrome") or stop


# ---------------------------------------------------------------------- the commands


def run(add: Any, command: Any, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add(parser)
    return command(parser.parse_args(list(arguments)))


def test_export_writes_beside_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "run.jsonl.gz"
    scenario_trace("one").save(trace)
    for to, name in (("chrome", "run.chrome.json"), ("csv", "run.csv"), ("otlp-json", "run.otlp.json")):
        assert run(add_export_arguments, run_export, str(trace), "--to", to) == 0
        assert (tmp_path / name).read_bytes() == export(Trace.load(trace), to)
        assert name in capsys.readouterr().out


def test_export_to_a_file_and_to_stdout(tmp_path: Path, capfdbinary: Any) -> None:
    out = tmp_path / "new" / "steps.csv"
    assert run(add_export_arguments, run_export, str(scenario_path("one")), "--to", "csv", "--out", str(out)) == 0
    capfdbinary.readouterr()
    assert run(add_export_arguments, run_export, str(scenario_path("one")), "--to", "csv", "--out", "-") == 0
    assert capfdbinary.readouterr().out == out.read_bytes()


def test_export_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't be written"):
        run(
            add_export_arguments,
            run_export,
            str(scenario_path("one")),
            "--to",
            "csv",
            "--out",
            str(tmp_path / "file/x"),
        )
    with pytest.raises(InputError, match="no format 'svg'"):
        export(scenario_trace("one"), "svg")


def test_why_prints_every_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(add_why_arguments, run_why, str(scenario_path("together")), "2", "--step", "1") == 0
    assert "14 of the 20 tokens that it misses" in capsys.readouterr().out
    assert run(add_why_arguments, run_why, str(scenario_path("n2")), "0") == 0
    assert re.findall(r"^Request (\d)_0-\w+: eos$", capsys.readouterr().out, re.MULTILINE) == ["0", "1"]
    with pytest.raises(InputError, match="no request 'x'"):
        run(add_why_arguments, run_why, str(scenario_path("one")), "x")
