"""The whole engine with the real model does what vLLM does: every flat batch, every answer."""

from pathlib import Path
from typing import Any

import pytest
from lockstep.recordings import assert_equal, files, recording
from lockstep.scripted import TokenizerCache, replay_scripted, without_logprobs

from minivllm.lockstep.compare import first_difference

FIRST_RECORDING = recording("vllm-0.22.0-engine.json")
RECORDINGS = [recording(file) for file in files("engine")]
SCENARIOS: dict[str, dict[str, Any]] = {work["name"]: work for recorded in RECORDINGS for work in recorded.workloads}
# The model takes its time: with it, one scenario of each family.
WITH_THE_MODEL = {
    family: scenario
    for recorded in RECORDINGS
    for family, scenario in reversed(list(zip(recorded.families(), recorded.workloads, strict=True)))
}


@pytest.fixture(scope="module")
def tokenizer_cache(default_model_path: Path) -> TokenizerCache:
    return TokenizerCache(str(default_model_path))


def test_the_first_recording_is_whole() -> None:
    assert len(FIRST_RECORDING.workloads) == 11
    assert set(FIRST_RECORDING.names()) <= set(WITH_THE_MODEL)


@pytest.mark.parametrize("family", WITH_THE_MODEL)
def test_batches_and_answers_are_equal(family: str, default_model_path: Path) -> None:
    scenario = WITH_THE_MODEL[family]
    assert_equal("engine", scenario, scenario["name"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_batches_and_texts_are_equal_with_the_recorded_tokens(name: str, tokenizer_cache: TokenizerCache) -> None:
    scenario = SCENARIOS[name]
    expected = scenario | {"outputs": without_logprobs(scenario["outputs"])}
    assert first_difference("engine", expected, replay_scripted(scenario, tokenizer_cache)) is None
