"""Our scheduler and cache decide what vLLM's do: every field of every recorded step."""

import pytest
from proof.lockstep.recordings import assert_equal, files, recording


def test_the_two_first_recordings_are_whole() -> None:
    sizes = {}
    for name in ("vllm-0.22.0-scheduler.json.gz", "vllm-0.22.0-scheduler-hard.json.gz"):
        workloads = recording(name).workloads
        sizes[name] = len(workloads), sum(len(workload["steps"]) for workload in workloads)
    assert list(sizes.values()) == [(64, 3772), (19, 1400)]


@pytest.mark.parametrize("name", files("scheduler"))
def test_every_step_is_equal(name: str) -> None:
    recorded = recording(name)
    for workload, workload_name in zip(recorded.workloads, recorded.names(), strict=True):
        assert_equal("scheduler", workload, workload_name)


@pytest.mark.parametrize(
    ("what", "happens"),
    [
        ("preemptions", lambda step: step["preempted"]),
        ("cache hits", lambda step: any(new["num_computed_tokens"] for new in step["new"])),
        ("chunked prompts", lambda step: any(not tokens for _, tokens in step["sampled"])),
        ("aborts", lambda step: step["aborted"]),
        ("aborts while the model runs", lambda step: step.get("aborted_in_flight")),
        ("cache resets that succeed", lambda step: step.get("reset") is True),
        ("cache resets that fail", lambda step: step.get("reset") is False),
        ("ends by a stop token", lambda step: any(output["stop_reason"] for output in step["outputs"])),
    ],
)
def test_the_recordings_hold_what_they_are_for(what: str, happens) -> None:
    steps = [step for name in files("scheduler") for work in recording(name).workloads for step in work["steps"]]
    assert sum(bool(happens(step)) for step in steps) >= 5, what
