"""Each recorded row of logits gives the distribution, or the greedy token, that the real vLLM 0.22.0 gave."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from minivllm.proof.lockstep import replay_sampler

RECORDING = Path(__file__).parents[2] / "traces/vllm-0.22.0/vllm-0.22.0-sampler.json.gz"
CASES = json.loads(gzip.decompress(RECORDING.read_bytes()))["cases"]
# a probability that float32 can't hold: the real sampler masks it or not, depending on the company it keeps
NOTHING = -60.0


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range(len(CASES))])
def test_recorded_batch(case: dict[str, Any]) -> None:
    for row, replayed in zip(case["rows"], replay_sampler(case), strict=True):
        assert replayed["greedy_token"] == row["greedy_token"]
        if row["greedy_token"] is None:
            wanted = [_value(logprob) for logprob in row["processed_logprobs"]]
            got = [_value(logprob) for logprob in replayed["processed_logprobs"]]
            assert got == pytest.approx(wanted, abs=2e-4, nan_ok=True)


def _value(logprob: float | None) -> float:
    if logprob is not None and math.isnan(logprob):
        return logprob
    return NOTHING if logprob is None or logprob < NOTHING else logprob
