"""The attention selector: which backend an engine gets.

Owns: nothing.
Interface: get_attn_backend; auto_backend says what that comes to on this machine.
Must not know: what a backend does. Each is imported when it is chosen: triton and the compiled kernels cost time.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.triton_mode import check_triton
from minivllm.config import AttentionBackendName
from minivllm.errors import InputError

logger = logging.getLogger(__name__)


def get_attn_backend(
    name: AttentionBackendName,
    device: torch.device | str,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: torch.dtype = torch.float32,
    part: Callable[[str], Any] | None = None,
) -> AttentionBackend:
    """The backend called `name`. "auto" takes the fastest that works here: triton on a GPU of NVIDIA, fast on a CPU
    with a C compiler, torch elsewhere. Where the kernels can't be had on a CPU, one line says why.

    part: gives the kernel or function of a seam (parts.py); None: our own.

    Raises InputError if it can't run here.

    vLLM: v1/attention/selector.py::get_attn_backend (simplified: four backends, no validation of features)
    """
    device_type = torch.device(device).type
    shapes = (num_heads, num_kv_heads, head_size, block_size)
    if name == "triton" or (name == "auto" and device_type == "cuda"):
        check_triton(device_type)
        from minivllm.attention.triton_backend import TritonBackend

        return TritonBackend(*shapes, part=part)
    fallback = None
    if name == "fast" or (name == "auto" and device_type == "cpu"):
        from minivllm.attention.fast_backend import make_fast_backend

        backend = make_fast_backend(*shapes, dtype) if device_type == "cpu" else f"the device is {device_type}, no cpu"
        if isinstance(backend, AttentionBackend):
            return backend
        if name == "fast":
            raise InputError(f"attention_backend='fast' can't run here: {backend}. Use 'torch' or 'auto'.")
        fallback = backend
        logger.warning("attention_backend='auto' takes torch, which is slower than 'fast': %s.", fallback)
    if name == "reference":
        from minivllm.attention.reference_backend import ReferenceBackend

        return ReferenceBackend(*shapes, part=part)
    from minivllm.attention.torch_backend import TorchBackend

    backend = TorchBackend(*shapes)
    backend.fallback = fallback
    return backend


def auto_backend() -> str:
    """What "auto" would be for the default model on this machine: a name, and why if it is a fallback.

    vLLM: none, vLLM logs its choice
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = {"num_heads": 9, "num_kv_heads": 3, "head_size": 64, "block_size": 16}
    try:
        backend = get_attn_backend("auto", device, **shapes, dtype=torch.bfloat16)
    except InputError as error:
        return f"none ({error})"
    return backend.name if backend.fallback is None else f"{backend.name} ({backend.fallback})"
