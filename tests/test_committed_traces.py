"""The traces in traces/: readable, small, listed, and what the engine would record again today."""

import random
from pathlib import Path

import pytest

from minivllm.course.scenarios import SCENARIOS, run_scenario, table_of_traces
from minivllm.proof.rerecord import first_difference
from minivllm.trace import load

FOLDER = Path(__file__).resolve().parents[1] / "traces"
LIMIT = 200_000  # bytes of one file
# A fixed sample, for each way of recording one; `minivllm record --all --check --out traces` compares them all.
PLAIN = sorted(n for n, s in SCENARIOS.items() if not (s.once or s.multiprocess or s.detail or len(s.calls) > 2))
SAMPLE = ["hello", "values-rome", "two-process-late-abort", *random.Random("traces").sample(PLAIN, 4)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_trace_that_loads(name: str) -> None:
    path = FOLDER / f"{name}.jsonl.gz"
    assert path.stat().st_size <= LIMIT
    trace = load(path)
    assert not trace.truncated
    assert trace.steps == list(range(1, len(trace.steps) + 1))
    assert not [event for event in trace if event.error or event.view_error]


def test_no_trace_without_a_scenario_and_not_too_much_of_all() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.jsonl.gz")) <= 15 * LIMIT
    assert {path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz")} == set(SCENARIOS)


def test_the_readme_lists_them_with_their_numbers() -> None:
    assert table_of_traces(FOLDER) in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_no_trace_names_a_path_of_the_machine_that_recorded_it() -> None:
    for name in SCENARIOS:
        environment = load(FOLDER / f"{name}.jsonl.gz").header.environment
        paths = [value for value in environment.values() if isinstance(value, str) and value.startswith("/")]
        assert not paths, f"{name}: {paths}"


@pytest.mark.parametrize("name", SAMPLE)
def test_recording_again_gives_the_same(name: str, tmp_path: Path) -> None:
    again = tmp_path / f"{name}.jsonl.gz"
    run_scenario(SCENARIOS[name], trace=str(again))
    assert first_difference(load(FOLDER / again.name), load(again)) is None


def test_a_difference_is_found_and_named() -> None:
    one, chunked = (load(FOLDER / f"{name}.jsonl.gz") for name in ("one", "chunk-16"))
    assert first_difference(one, one) is None
    assert "max_num_batched_tokens: 64 committed, 16 anew" in first_difference(one, chunked)
