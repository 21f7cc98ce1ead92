"""The engine with backend `triton` gives the tokens that the real vLLM 0.22.0 gave.

In the interpreter the shortest recorded scenario is run here, a prefill and 7 decodes of 30 layers; chunked-batch and
prefix-shared take minutes, so they are left to `make kernels-full`. On a GPU all three are run.
"""

import json
import os
from pathlib import Path

import pytest

from minivllm.lockstep import replay_engine
from minivllm_kernels.interpreter import is_interpreting

RECORDING = Path(__file__).parents[2] / "traces/vllm-0.22.0/vllm-0.22.0-engine.json"
SHORT = ["single-short"]
LONG = ["chunked-batch", "prefix-shared"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SHORT if is_interpreting() and os.environ.get("KERNELS_FULL") != "1" else SHORT + LONG)
def test_recorded_tokens(name: str, device: str, default_model_path: Path) -> None:
    scenarios = {scenario["name"]: scenario for scenario in json.loads(RECORDING.read_text())["scenarios"]}
    recorded = scenarios[name]
    settings = recorded["engine_args"] | {"attention_backend": "triton", "device": device}
    replayed = replay_engine(recorded | {"engine_args": settings}, str(default_model_path))
    assert replayed["steps"] == recorded["steps"]
    for got, expected in zip(replayed["outputs"], recorded["outputs"], strict=True):
        assert [one["token_ids"] for one in got["outputs"]] == [one["token_ids"] for one in expected["outputs"]]
        assert [one["text"] for one in got["outputs"]] == [one["text"] for one in expected["outputs"]]
