"""The whole engine with the real model does what vLLM does: every flat batch, every answer."""

from pathlib import Path
from typing import Any

import pytest
from proof.lockstep.recordings import assert_equal, files, recording
from proof.lockstep.scripted import TokenizerCache, replay_scripted, without_logprobs

from minivllm.proof.lockstep.compare import first_difference

FIRST_RECORDING = recording("vllm-0.22.0-engine.json")
RECORDINGS = [recording(file) for file in files("engine")]
SCENARIOS: dict[str, dict[str, Any]] = {work["name"]: work for recorded in RECORDINGS for work in recorded.workloads}
# The model takes its time: beside the first recording, it computes what only its numbers can show.
NUMBERS_MATTER = (
    "half-characters-0",
    "special-tokens-0",
    "penalties-0",
    "masks-0",
    "logprobs-0",
    "prompt-logprobs-0",
    "prefixes-0",
    "seeded-0",
    "mixed-9",
)
WITH_THE_MODEL = [*FIRST_RECORDING.names(), *NUMBERS_MATTER]


@pytest.fixture(scope="module")
def tokenizer_cache(default_model_path: Path) -> TokenizerCache:
    return TokenizerCache(str(default_model_path))


def test_the_first_recording_is_whole() -> None:
    assert len(FIRST_RECORDING.workloads) == 11


@pytest.mark.parametrize("name", WITH_THE_MODEL)
def test_batches_and_answers_are_equal(name: str, default_model_path: Path) -> None:
    assert_equal("engine", SCENARIOS[name], name)


@pytest.mark.parametrize("name", SCENARIOS)
def test_batches_and_texts_are_equal_with_the_recorded_tokens(name: str, tokenizer_cache: TokenizerCache) -> None:
    scenario = SCENARIOS[name]
    expected = scenario | {"outputs": without_logprobs(scenario["outputs"])}
    assert first_difference("engine", expected, replay_scripted(scenario, tokenizer_cache)) is None
