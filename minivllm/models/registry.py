"""The model registry: which class runs the model, and why.

Owns: nothing.
Interface: choose_model.
Must not know: where weights come from, or what runs the model. Whether anybody looks makes no difference.
"""

from typing import NamedTuple

from minivllm.attention.backend import AttentionBackend
from minivllm.models.llama import LlamaForCausalLM


class ModelChoice(NamedTuple):
    """A class with the methods of LlamaForCausalLM, and why it is that one, in words.

    vLLM: model_executor/models/registry.py::_RegisteredModel (role)
    """

    model_class: type
    reason: str


def choose_model(backend: AttentionBackend) -> ModelChoice:
    """The class that runs every model with this attention backend.

    vLLM chooses by `architectures` of config.json; here one class covers all of them, and a second one is laid out for
    a CPU. It takes its norms, RoPE and activations from the kernels that the backend `fast` has compiled.

    vLLM: model_executor/models/registry.py::_ModelRegistry.resolve_model_cls (role)
    """
    if backend.name != "fast":
        return ModelChoice(LlamaForCausalLM, f"the attention backend {backend.name} brings no kernels for the rest")
    from minivllm.models.fast_llama import FastLlama  # needs the kernels of kernels/cpu_kernels.py

    return ModelChoice(FastLlama, "the attention backend fast has compiled kernels for the rest too")
