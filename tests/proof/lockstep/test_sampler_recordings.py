"""Our sampler makes of recorded logits what vLLM's does, up to the random draw."""

import pytest
from proof.lockstep.recordings import assert_equal, files, recording


def test_the_first_recording_is_whole() -> None:
    assert sum(len(case["rows"]) for case in recording("vllm-0.22.0-sampler.json.gz").workloads) == 200


@pytest.mark.parametrize("name", files("sampler"))
def test_every_row_is_equal(name: str) -> None:
    recorded = recording(name)
    for case, case_name in zip(recorded.workloads, recorded.names(), strict=True):
        assert_equal("sampler", case, case_name)
