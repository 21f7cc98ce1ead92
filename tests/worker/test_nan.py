"""Weights that hold NaN: the answer is worthless, and that is said, once."""

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import write_tiny_model

from minivllm import LLM, SamplingParams

SETTINGS = {"dtype": "float32", "max_model_len": 32, "num_gpu_blocks_override": 20, "multiprocess": False}


PLACES = ("model.norm.weight", "model.layers.0.mlp.up_proj.weight", "model.embed_tokens.weight")


@pytest.mark.parametrize("place", PLACES)
def test_nan_in_the_weights_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str) -> None:
    """One NaN is enough, in the head's weights too, where it shows in the logit of one token alone."""
    write_tiny_model(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights[place].view(-1)[-1] = torch.nan
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with LLM(str(tmp_path), **SETTINGS) as llm, caplog.at_level(logging.WARNING):
        params = [SamplingParams(temperature=t, seed=s, max_tokens=4) for t, s in ((0, None), (1, 5), (1, None))]
        llm.generate([[5, 6, 7]] * 3, params, use_tqdm=False)
    (record,) = [record for record in caplog.records if "NaN" in record.getMessage()]
    assert "0-" in record.getMessage() and "2-" in record.getMessage() and "float32" in record.getMessage()


def test_masks_are_no_nan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LLM(str(write_tiny_model(tmp_path)), **SETTINGS) as llm, caplog.at_level(logging.WARNING):
        llm.generate([[5, 6, 7]], SamplingParams(allowed_token_ids=[7], logit_bias={8: -float("inf")}), use_tqdm=False)
    assert not caplog.records
