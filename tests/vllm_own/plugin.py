"""What vLLM's own conftest gives its tests, with the default model's tokenizer; and which cases of a test are run."""

import copy
import json
from functools import cache
from typing import Any

import pytest
import transformers

from minivllm.models.default_model import default_model_path
from vllm_own import shim

LLAMA = "meta-llama/Llama-3.2-1B"
LLAMA_ENDS = {"<|end_of_text|>": 128001, "<|eot_id|>": 128009}  # two ids that a test has by heart
ONE_TOKENIZER = "gpt2"  # of the names in test_detokenize: all would be the default model's here


@cache
def tokenizer_of(name: str, **_: Any) -> Any:
    """The default model's tokenizer, whatever is asked for; with Llama's two ends where a test names them."""
    folder = default_model_path()
    if name != LLAMA:
        return transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    described = json.loads((folder / "tokenizer.json").read_text())
    described["model"]["vocab"] |= LLAMA_ENDS
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=shim.tokenizer_from(described), eos_token="<|end_of_text|>", pad_token="<|end_of_text|>"
    )
    made.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    made.name_or_path = LLAMA
    return made


transformers.AutoTokenizer.from_pretrained = staticmethod(tokenizer_of)


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    def is_wanted(item: pytest.Item) -> bool:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        return parameters.get("tokenizer_name", ONE_TOKENIZER) == ONE_TOKENIZER

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = [item for item in items if is_wanted(item)]


@pytest.fixture(scope="session")
def vllm_runner() -> Any:
    return shim.VllmRunner


@pytest.fixture(scope="session")
def hf_runner() -> Any:
    return shim.HfRunner


@pytest.fixture
def example_prompts() -> list[str]:
    return [
        "The steam engine was invented by",
        "Compare and contrast the sun and the moon.",
        "Write a short story about a robot that dreams for the first time.",
        "1, 2, 3, 5, 8,",
    ]


@pytest.fixture
def dummy_test_vectors() -> Any:
    """The prompts and answers of vLLM's fixture of this name, in the default model's tokens."""
    made = test_vectors()
    return copy.deepcopy(made, {id(made.tokenizer): made.tokenizer})


@cache
def test_vectors() -> Any:
    from tests.v1.engine import utils

    tokenizer = tokenizer_of(LLAMA)
    all_ids = [tokenizer(text).input_ids for text in utils.FULL_STRINGS]
    prompts, answers = [ids[: utils.PROMPT_LEN] for ids in all_ids], [ids[utils.PROMPT_LEN :] for ids in all_ids]
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in prompts]
    return utils.DummyOutputProcessorTestVectors(
        tokenizer=tokenizer,
        vllm_config=None,
        full_tokens=all_ids,
        prompt_tokens=prompts,
        generation_tokens=answers,
        prompt_strings=texts,
        prompt_strings_len=[len(text) for text in texts],
        generation_strings=[whole[len(text) :] for whole, text in zip(utils.FULL_STRINGS, texts, strict=True)],
        generation_logprobs=[
            utils.generate_dummy_sample_logprobs(ids, utils.NUM_SAMPLE_LOGPROBS_UNDER_TEST, tokenizer)
            for ids in answers
        ],
        prompt_logprobs=[
            utils.generate_dummy_prompt_logprobs_tensors(ids, utils.NUM_PROMPT_LOGPROBS_UNDER_TEST, tokenizer)
            for ids in prompts
        ],
    )
