"""In which dtype a model runs, if nobody names one: as vLLM 0.22.0 decides."""

import pytest
import torch
from tiny_models import tiny_model

from minivllm import LLM
from minivllm.worker.worker import _choose_dtype


@pytest.mark.parametrize(
    ("name", "weights", "device", "capability", "wanted"),
    [
        ("auto", "float32", "cpu", None, torch.bfloat16),
        ("auto", "bfloat16", "cpu", None, torch.bfloat16),
        ("auto", "float16", "cpu", None, torch.float16),
        ("auto", "float32", "cuda", (9, 0), torch.bfloat16),
        ("auto", "float32", "cuda", (7, 5), torch.float16),
        ("auto", "bfloat16", "cuda", (7, 5), torch.float16),
        ("float32", "bfloat16", "cpu", None, torch.float32),
        ("bfloat16", "float32", "cuda", (7, 5), torch.bfloat16),
    ],
)
def test_auto(
    name: str,
    weights: str,
    device: str,
    capability: tuple[int, int],
    wanted: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """float32 weights are computed in bfloat16, in float16 on GPUs that have none."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert _choose_dtype(name, weights, torch.device(device)) is wanted


def test_the_engine_says_which() -> None:
    with LLM(str(tiny_model("llama")), multiprocess=False, max_model_len=32, num_gpu_blocks_override=9) as llm:
        assert llm.llm_engine.engine_core.ready.dtype == "bfloat16"
