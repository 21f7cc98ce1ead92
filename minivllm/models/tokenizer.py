"""The tokenizer of a model folder: transformers' fast tokenizer."""

import json
from pathlib import Path
from typing import Any

from minivllm.errors import ModelError
from minivllm.models.config_check import check_no_code
from minivllm.printable import one_line


def load_tokenizer(path: str) -> Any:
    """Load the tokenizer that lies in a folder (or on the hub). Raises ModelError when there is none that works.

    vLLM: tokenizers/registry.py::get_tokenizer (simplified: fast tokenizers only)
    """
    try:
        if _needs_no_class(path):  # spares the import of torch and of every model's classes
            from transformers import PreTrainedTokenizerFast as TokenizerClass
        else:
            from transformers import AutoTokenizer as TokenizerClass

        tokenizer = TokenizerClass.from_pretrained(path, trust_remote_code=False)
    except ModelError:
        raise
    except Exception as error:  # transformers raises many types for a tokenizer that is missing or broken
        raise ModelError(
            f"No tokenizer could be loaded from {path} ({type(error).__name__}: {one_line(error)}). Point "
            "tokenizer= at a folder that has tokenizer.json, or use skip_tokenizer_init=True and token ids."
        ) from error
    if not tokenizer.is_fast:
        raise ModelError(f"The tokenizer in {path} has no tokenizer.json, which is needed to decode as tokens come.")
    return tokenizer


def _needs_no_class(path: str) -> bool:
    """Whether the folder's tokenizer.json says all there is to say, and no class of transformers adds to it."""
    folder = Path(path)
    if not (folder / "tokenizer.json").is_file() or not (folder / "tokenizer_config.json").is_file():
        return False
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    check_no_code(config, folder / "tokenizer_config.json")
    return config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
