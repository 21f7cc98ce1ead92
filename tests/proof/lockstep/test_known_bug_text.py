"""Where vLLM's text goes wrong: when a prompt ends within a character, it begins with the whole prompt.

The library's stream, primed with a prompt that decodes to no whole text, gives everything out once the character is
complete. Ours gives out that character (docs/differences.md).
"""

from pathlib import Path

import pytest
from proof.lockstep.recordings import KNOWN_BUG_TEXT, recording
from proof.lockstep.scripted import TokenizerCache, replay_scripted

SCENARIOS = {scenario["name"]: scenario for scenario in recording(KNOWN_BUG_TEXT).workloads}


@pytest.fixture(scope="module")
def tokenizer_cache(default_model_path: Path) -> TokenizerCache:
    return TokenizerCache(str(default_model_path))


@pytest.mark.parametrize("name", SCENARIOS)
def test_ours_begins_with_the_character_that_the_prompt_left_half(name: str, tokenizer_cache: TokenizerCache) -> None:
    scenario = SCENARIOS[name]
    replayed = replay_scripted(scenario, tokenizer_cache)
    assert replayed["steps"] == scenario["steps"]
    different = 0
    for request, output, ours in zip(scenario["requests"], scenario["outputs"], replayed["outputs"], strict=True):
        theirs, mine = output["outputs"][0]["text"], ours["outputs"][0]["text"]
        prompt = tokenizer_cache.tokenizer.decode(request["prompt_token_ids"])
        if not prompt.endswith("\ufffd"):
            assert mine == theirs
            continue
        different += 1
        whole_characters = prompt.rstrip("\ufffd")
        assert theirs.startswith(whole_characters) and theirs.endswith(mine)
        assert not mine.startswith(whole_characters)
    assert different == 1
