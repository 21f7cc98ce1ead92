"""The tokenizer of a model folder: transformers' fast tokenizer."""

from typing import Any

from minivllm.errors import ModelError


def load_tokenizer(path: str) -> Any:
    """Load the tokenizer that lies in a folder (or on the hub). Raises ModelError when there is none that works.

    vLLM: tokenizers/registry.py::get_tokenizer (simplified: fast tokenizers only)
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:  # transformers raises many types for a tokenizer that is missing or broken
        raise ModelError(
            f"No tokenizer could be loaded from {path} ({type(error).__name__}: {error}). Point tokenizer= at a folder "
            "that has tokenizer.json, or use skip_tokenizer_init=True and token ids."
        ) from error
    if not tokenizer.is_fast:
        raise ModelError(f"The tokenizer in {path} has no tokenizer.json, which is needed to decode as tokens come.")
    return tokenizer
