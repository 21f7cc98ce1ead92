"""Recorded texts: outputs of the real vLLM, with the bytes of their tokens, so that no tokenizer is needed.

Owns: traces/labs/texts.json.gz. Interface: recorded_texts; run as a module, it writes the file anew.
Must not know: what is asked about them.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.course.grader.byte_stream import bytes_of
from minivllm.course.places import repo_path
from minivllm.proof.lockstep.recording import load

FILE = Path("traces/labs/texts.json.gz")
SOURCES = ("vllm-0.22.0-engine.json", "vllm-0.22.0-engine-more.json.gz")
FAMILIES = ("stop-string", "stop-token-min", "stop-strings", "stop-tokens", "unicode")
KEPT = ("stop", "include_stop_str_in_output", "min_tokens", "stop_token_ids")


@cache
def recorded_texts() -> tuple[dict[str, Any], ...]:
    """Each: name, sampling, prompt_bytes and output_bytes (hex, one a token), text, finish_reason, stop_reason."""
    return tuple(json.loads(gzip.decompress(repo_path(FILE).read_bytes())))


def make_texts() -> list[dict[str, Any]]:
    """The same, from the recordings and the default model's tokenizer."""
    from tokenizers import Tokenizer

    from minivllm.models.default_model import default_model_path

    tokenizer = Tokenizer.from_file(str(Path(default_model_path()) / "tokenizer.json"))
    found = []
    for source in SOURCES:
        recording = load(repo_path(f"traces/vllm-0.22.0/{source}"))
        for family, scenario in zip(recording.families(), recording.workloads, strict=True):
            if family in FAMILIES:
                pairs = zip(scenario["requests"], scenario["outputs"], strict=True)
                found += [
                    _describe(f"{scenario['name']}, request {index}", *pair, tokenizer)
                    for index, pair in enumerate(pairs)
                ]
    return found


def _describe(name: str, request: dict[str, Any], output: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    (completion,) = output["outputs"]
    return {
        "name": name,
        "sampling": {key: value for key, value in request["sampling"].items() if key in KEPT},
        "prompt_bytes": [bytes_of(tokenizer, token, True).hex() for token in request["prompt_token_ids"]],
        "output_bytes": [bytes_of(tokenizer, token, True).hex() for token in completion["token_ids"]],
        **{key: completion[key] for key in ("text", "finish_reason", "stop_reason")},
    }


if __name__ == "__main__":
    repo_path(FILE).write_bytes(gzip.compress(json.dumps(make_texts()).encode(), mtime=0))
