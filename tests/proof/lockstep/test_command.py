"""`minivllm lockstep`: what it prints and how it ends, for good files, bad files and differences."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from proof.lockstep.recordings import FOLDER, KNOWN_BUG, files, recording

from minivllm.__main__ import main
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.proof.lockstep.recording import LIST_KEYS, Recording, load, save
from minivllm.proof.lockstep.scenarios import FAMILIES as SCENARIO_FAMILIES
from minivllm.proof.lockstep.workloads import FAMILIES
from minivllm.sample import sampler

SCHEDULER = FOLDER / "vllm-0.22.0-scheduler.json.gz"
HARD = FOLDER / "vllm-0.22.0-scheduler-hard.json.gz"
SAMPLER = FOLDER / "vllm-0.22.0-sampler.json.gz"
ENGINE = FOLDER / "vllm-0.22.0-engine.json"


class Told:
    """Runs the command; keeps its status and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: Any) -> int:
        self.status = main(["lockstep", *map(str, arguments)])
        self.out, self.err = self.capsys.readouterr()
        return self.status


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


def test_an_equal_file_ends_with_0(told: Told) -> None:
    assert told(HARD) == 0
    assert ["hard", "19/19", "1400/1400"] in [line.split() for line in told.out.splitlines()]
    assert told.out.endswith("All equal.\n")


def test_workloads_and_steps_are_counted_by_family(told: Told) -> None:
    assert told(SCHEDULER) == 0
    lines = [line.split() for line in told.out.splitlines()[2:-1]]
    families = ["chunked", "prefix", "preempt", "priority", "nocache", "nochunk", "stops", "mixed"]
    assert [line[0] for line in lines] == [*families, "all"]
    assert lines[-1][1:] == ["64/64", "3772/3772"]


def test_one_workload_one_family_or_a_few_can_be_chosen(told: Told) -> None:
    assert told(SCHEDULER, "--only", "preempt-3") == 0 and "1/1" in told.out
    assert told(SCHEDULER, "--only", "preempt", "--limit", "2") == 0 and "2/2" in told.out
    assert told(SAMPLER, "--limit", "3") == 0 and "3/3" in told.out
    assert told(SAMPLER, "--only", "case-7") == 0 and "1/1" in told.out
    assert told(ENGINE, "--only", "single-short") == 0 and "1/1" in told.out


def test_the_known_bug_is_told_as_a_deliberate_difference(told: Told) -> None:
    assert told(FOLDER / KNOWN_BUG) == 1
    assert "bug-651, step 6, event schedule:" in told.out
    assert "cached[1].num_computed_tokens" in told.out
    assert "This is a deliberate difference" in told.out
    assert "docs/differences.md" in told.out


def test_a_difference_is_told_with_the_state_before_it(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_order(self: KVCacheManager, request: Any) -> None:
        self.num_cached_block.pop(request.request_id, None)
        self.block_pool.free_blocks(self.req_to_blocks.pop(request.request_id, []))

    monkeypatch.setattr(KVCacheManager, "free", in_order)
    assert told(SCHEDULER, "--only", "preempt-1") == 1
    assert "0/1" in told.out
    assert "The first difference is in preempt-1, step " in told.out
    for part in ("    ours   ", "    vLLM   ", "running[0] r", "waiting", "free blocks, the next first:", "computed,"):
        assert part in told.out
    assert "deliberate" not in told.out


def test_an_engine_that_breaks_down_is_told_as_a_difference(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: KVCacheManager, request: Any) -> None:
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr(KVCacheManager, "free", broken)
    assert told(SCHEDULER, "--only", "chunked-1") == 1
    assert "ZeroDivisionError: oh no (in broken, " in told.out
    assert told(ENGINE, "--only", "len-cap") == 1
    assert "len-cap, step 0, event none: our engine breaks down:" in told.out
    assert "ZeroDivisionError: oh no (in broken, " in told.out


def test_a_sampler_difference_is_told_with_its_row(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "apply_min_p", lambda logits, min_p: logits)
    assert told(SAMPLER) == 1
    assert "event sampler.forward" in told.out
    assert "← this one" in told.out and "min_p" in told.out
    assert "Tokens that differ (id: logit, ours, vLLM's):" in told.out


def changed(path: Path, tmp_path: Path, scenario: str, change: Any) -> Path:
    """A copy of one scenario with something else in it."""
    recorded = load(path).select(only=scenario)
    copy = json.loads(json.dumps(recorded.workloads[0]))
    change(copy)
    save(tmp_path / "changed.json", Recording("engine", recorded.source, [copy]))
    return tmp_path / "changed.json"


def test_an_engine_difference_is_told_with_the_plan_of_its_step(told: Told, tmp_path: Path) -> None:
    def other_slot(scenario: dict[str, Any]) -> None:
        scenario["steps"][1]["slot_mapping"][0] += 1

    assert told(changed(ENGINE, tmp_path, "len-cap", other_slot)) == 1
    assert "len-cap, step 1, event prepare_inputs:" in told.out
    assert "  slot_mapping" in told.out
    assert "running[0]" in told.out and "The plan, tokens of each request: 0: 1" in told.out


def test_an_output_difference_is_told_with_its_request(told: Told, tmp_path: Path) -> None:
    def other_text(scenario: dict[str, Any]) -> None:
        scenario["outputs"][0]["outputs"][0]["text"] += "!"

    assert told(changed(ENGINE, tmp_path, "len-cap", other_text)) == 1
    assert "len-cap, output 0, event process_outputs:" in told.out
    assert "Its parameters: {'max_tokens': 1000, 'ignore_eos': True}" in told.out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON, or is cut off"),
        (b"hello", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[1, 2]", "is no recording"),
        (b'{"a": 1}', "is no recording"),
        (b'{"workloads": 3}', "is no recording"),
        (b'{"workloads": []}', "empty"),
        (b'{"workloads": [], "cases": []}', "is no recording"),
        (b'{"workloads": [{"name": "a"}]}', "has no config"),
        (b'{"workloads": [{"name": "a", "config": {}, "eos_token_id": 2, "requests": []}]}', "no config.block_size"),
        (b'{"cases": [{"rows": [3]}]}', "has no rows"),
        (b'{"cases": [{"rows": [{"sampling": {}}]}]}', "has no rows.prompt_token_ids"),
        (b'{"cases": [5]}', "has no rows"),
        (b'{"scenarios": [{"name": "a", "engine_args": {}}]}', "has no requests"),
        (HARD.read_bytes()[:2000], "cut off"),
        (HARD.read_bytes()[:200] + b"xxxx" + HARD.read_bytes()[204:], "damaged"),
        (ENGINE.read_bytes()[:2000], "cut off"),
        (gzip.compress(b"[]"), "is no recording"),
    ],
)
def test_what_is_no_recording_is_one_line_and_status_2(told: Told, tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert told(path) == 2
    assert says in told.err and str(path) in told.err
    assert told.err.count("\n") == 1


def test_wrong_names_and_limits_are_refused(told: Told, tmp_path: Path) -> None:
    assert told(tmp_path / "missing.json") == 2 and "can't be read" in told.err
    assert told(SCHEDULER, "--only", "nobody") == 2 and "chunked, prefix" in told.err
    assert told(SCHEDULER, "--limit", "0") == 2 and "at least 1" in told.err
    assert told() == 2 and "traces/vllm-0.22.0/" in told.err
    assert told(ENGINE, "--limit", "1", "--model", tmp_path / "none") == 2


@pytest.mark.parametrize(
    ("level", "count"), [("scheduler", 4 * len(FAMILIES)), ("sampler", 100), ("engine", len(SCENARIO_FAMILIES))]
)
def test_generate_writes_workloads_that_can_be_recorded(told: Told, tmp_path: Path, level: str, count: int) -> None:
    path = tmp_path / "made.json.gz"
    assert told("--generate", 7, "--level", level, path) == 0
    recorded = load(path)
    assert (recorded.level, len(recorded.workloads)) == (level, count)
    assert told(path) == 2 and "Record it with --record" in told.err


def test_generate_needs_no_name(told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told("--generate", 3, "--count", 1) == 0
    assert "scheduler-3.json" in told.out
    assert len(load(tmp_path / "scheduler-3.json").workloads) == len(FAMILIES)


def test_record_without_vllm_says_how_to_get_it(told: Told, tmp_path: Path) -> None:
    assert told("--record", tmp_path / "out.json", SCHEDULER) == 2
    assert "make vllm-env" in told.err
    assert not list(tmp_path.iterdir())
    assert "vllm" not in sys.modules


# what minivllm/proof/lockstep replays; the recorded calls of LLM have a format and a test of their own
RECORDINGS = sorted(path for path in FOLDER.glob("*.json*") if not path.name.endswith("-calls.json.gz"))


def test_the_name_of_a_recording_says_its_level() -> None:
    for level in LIST_KEYS:
        assert files(level) and all(recording(name).level == level for name in files(level))
    assert sum(len(files(level)) for level in LIST_KEYS) == len(RECORDINGS) - 2  # known bugs


def test_the_recordings_can_all_be_recorded_again() -> None:
    for path in RECORDINGS:
        recorded = recording(path.name)
        bare = recorded.without_results()
        assert bare.names() == recorded.names()
        assert not any("steps" in workload or "outputs" in workload for workload in bare.workloads)
