"""The whole engine with the real model does what vLLM does: every flat batch, every answer."""

from pathlib import Path
from typing import Any

import pytest
from lockstep.recordings import assert_equal, files, recording
from lockstep.scripted import TokenizerCache, replay_scripted, without_logprobs

from minivllm.lockstep.compare import first_difference

FIRST_RECORDING = "vllm-0.22.0-engine.json"
SCENARIOS: dict[str, dict[str, Any]] = {
    scenario["name"]: scenario for file in files("engine") for scenario in recording(file).workloads
}
# With the real model, one scenario of each family: its first.
WITH_THE_MODEL = [
    name for name in SCENARIOS if not name.endswith(("-1", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9"))
]


@pytest.fixture(scope="module")
def tokenizer_cache(default_model_path: Path) -> TokenizerCache:
    return TokenizerCache(str(default_model_path))


def test_the_first_recording_is_whole() -> None:
    assert len(recording(FIRST_RECORDING).workloads) == 11
    assert {scenario["name"] for scenario in recording(FIRST_RECORDING).workloads} <= set(WITH_THE_MODEL)


@pytest.mark.parametrize("name", WITH_THE_MODEL)
def test_batches_and_answers_are_equal(name: str, default_model_path: Path) -> None:
    assert_equal("engine", SCENARIOS[name], name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_batches_and_texts_are_equal_with_the_recorded_tokens(name: str, tokenizer_cache: TokenizerCache) -> None:
    scenario = SCENARIOS[name]
    expected = scenario | {"outputs": without_logprobs(scenario["outputs"])}
    assert first_difference("engine", expected, replay_scripted(scenario, tokenizer_cache)) is None
