"""Which class runs the model, and that looking does not change it."""

import pytest
import torch
from tiny_models import tiny_model

from minivllm import LLM
from minivllm.config import EngineConfig
from minivllm.models.fast_llama import FastLlama
from minivllm.models.llama import LlamaForCausalLM
from minivllm.models.model_config import load_model_config
from minivllm.worker.worker import Worker


def worker_of(**settings: object) -> Worker:
    config = EngineConfig(model=str(tiny_model()), device="cpu", max_model_len=64, **settings)
    worker = Worker(config, load_model_config(tiny_model()))
    worker.load_model()
    worker.initialize_from_config(config.resolved(64), 8)
    return worker


@pytest.mark.parametrize(
    ("backend", "model_class", "reason"),
    [
        ("fast", FastLlama, "compiled kernels"),
        ("torch", LlamaForCausalLM, "torch brings no kernels"),
        ("reference", LlamaForCausalLM, "reference brings no kernels"),
    ],
)
def test_the_backend_chooses_the_class(backend: str, model_class: type, reason: str) -> None:
    worker = worker_of(attention_backend=backend)
    assert type(worker.model_runner.model) is model_class and reason in worker.model_reason


@pytest.mark.parametrize("detail", [0, 1, 2])
def test_the_model_is_the_same_at_every_detail(detail: int, tmp_path) -> None:
    settings = {"attention_backend": "fast", "multiprocess": False, "trace": str(tmp_path / "t.jsonl")}
    with LLM(str(tiny_model()), trace_detail=detail, **settings) as llm:
        runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner
        assert type(runner.model) is FastLlama


def test_tables_have_the_rows_of_the_engine_not_of_the_model() -> None:
    model = worker_of(attention_backend="fast").model_runner.model
    assert {layer.cos.shape for layer in model.layers} == {torch.Size([64, 8])}
    assert model.config.max_model_len > 64
