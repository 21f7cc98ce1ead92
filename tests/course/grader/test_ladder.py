"""The ladder: its text, its recording, and the engine say the same."""

from pathlib import Path

import pytest

from minivllm.course.grader import evidence
from minivllm.course.grader.ladder import parse_ladder, parse_rung
from minivllm.course.places import repo_path
from minivllm.proof.lockstep.recording import load, without_results
from minivllm.proof.lockstep.scheduler import replay_scheduler

NUM_RUNGS = 61
NUM_STEPS = 249  # that the real vLLM 0.22.0 took


@pytest.mark.parametrize("path", [evidence.LADDER, evidence.LADDER_MORE], ids=lambda path: path.name)
def test_the_recording_is_of_the_text(path: Path) -> None:
    recording = load(repo_path(path))
    asked = [without_results("scheduler", workload) for workload in recording.workloads]
    text = path.with_name(path.name.removesuffix(".json.gz") + ".txt")
    assert asked == parse_ladder(repo_path(text).read_text())
    assert recording.source.startswith("vllm 0.22.0")


def test_the_first_rungs_are_61_of_249_steps() -> None:
    workloads = load(repo_path(evidence.LADDER)).workloads
    assert len(workloads) == NUM_RUNGS
    assert sum(len(workload["steps"]) for workload in workloads) == NUM_STEPS


def test_the_engine_decides_as_vllm_did() -> None:
    for workload in evidence.ladder():
        assert replay_scheduler(without_results("scheduler", workload)) == workload["steps"], workload["notation"]


@pytest.mark.parametrize("line", ["L00 B1 N4 Q1: a>1", "L00 B1 N4: a", "L00 B1 N4: a>1 sometimes"])
def test_what_is_no_rung_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="L00"):
        parse_rung(line)
