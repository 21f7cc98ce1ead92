"""The engine with backend `triton` gives the tokens that the real vLLM 0.22.0 gave.

In the interpreter a step of 30 layers takes seconds. So of the longer scenarios only the first steps are run here: in
chunked-batch prompts in chunks, with decodes beside them; in prefix-shared a step in which three requests read what a
fourth has written in it, and two decodes. `make kernels-full`, and a GPU, run all of them to their ends.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from minivllm.proof.lockstep import replay_engine
from minivllm_kernels.interpreter import is_interpreting

RECORDING = Path(__file__).parents[2] / "traces/vllm-0.22.0/vllm-0.22.0-engine.json"
WHOLE = not is_interpreting() or os.environ.get("KERNELS_FULL") == "1"
STEPS = {"single-short": 8, "chunked-batch": 4, "prefix-shared": 3}  # that are run where not everything is


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STEPS)
def test_recorded_tokens(name: str, device: str, default_model_path: Path) -> None:
    scenarios = {scenario["name"]: scenario for scenario in json.loads(RECORDING.read_text())["scenarios"]}
    recorded = scenarios[name]
    num_steps = len(recorded["steps"]) if WHOLE else STEPS[name]
    num_tokens = tokens_after(recorded, num_steps)
    settings = recorded["engine_args"] | {"attention_backend": "triton", "device": device}
    requests = [
        request | {"sampling": request["sampling"] | {"max_tokens": num_tokens[index]}}
        for index, request in enumerate(recorded["requests"])
        if index in num_tokens
    ]
    replayed = replay_engine(recorded | {"engine_args": settings, "requests": requests}, str(default_model_path))
    assert replayed["steps"] == recorded["steps"][:num_steps]
    for index, got in zip(num_tokens, replayed["outputs"], strict=True):
        (got,), (expected,) = got["outputs"], recorded["outputs"][index]["outputs"]
        assert got["token_ids"] == expected["token_ids"][: num_tokens[index]]
        assert expected["text"].startswith(got["text"])


def tokens_after(recorded: dict[str, Any], num_steps: int) -> dict[int, int]:
    """How many tokens each request has after so many steps; those that have not begun by then wait for a seat."""
    found: dict[int, int] = {}
    for step in recorded["steps"][:num_steps]:
        for name, seq_len in zip(step["req_order"], step["seq_lens"], strict=True):
            index = int(name)
            found[index] = found.get(index, 0) + (seq_len >= len(recorded["requests"][index]["prompt_token_ids"]))
    return dict(sorted(found.items()))
