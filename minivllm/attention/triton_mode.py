"""Triton on a GPU or in its interpreter: chosen before anything imports triton, since that is when it takes effect.

Interface: prepare_triton, at the start of whatever will build an engine; check_triton, where kernels are needed.
Must not know: any kernel. torch is imported only to ask for a GPU.
"""

import importlib.util
import os
import sys

from minivllm.config import AttentionBackendName, Device
from minivllm.errors import InputError


def prepare_triton(attention_backend: AttentionBackendName, device: Device) -> None:
    """Set TRITON_INTERPRET=1 if the backend `triton` will run without a GPU; a core process inherits it.

    Does nothing otherwise. Comes too late, without an error, if triton has been imported: check_triton notices.

    vLLM: none, vLLM runs Triton on GPUs alone
    """
    if attention_backend != "triton" or device == "cuda":
        return
    if device == "auto":
        import torch

        if torch.cuda.is_available():
            return
    os.environ["TRITON_INTERPRET"] = "1"


def check_triton(device_type: str) -> None:
    """Raise InputError if kernels can't run on a device of this type in this process.

    vLLM: none, see `prepare_triton`
    """
    if importlib.util.find_spec("triton") is None:
        raise InputError(
            "attention_backend='triton' needs the package triton, which is not installed; it exists for Linux only. "
            "Use attention_backend='torch'."
        )
    if device_type == "cuda":
        return
    if device_type != "cpu":
        raise InputError(
            f"attention_backend='triton' runs on cuda and cpu, not on {device_type}. Use attention_backend='torch'."
        )
    if "triton" not in sys.modules:
        prepare_triton("triton", "cpu")
    from minivllm_kernels.interpreter import is_interpreting

    if not is_interpreting():
        raise InputError(
            "attention_backend='triton' on a CPU runs in Triton's interpreter, which must be chosen before triton is "
            "imported; in this process something (transformers does it too) has imported triton already. Make the LLM "
            "before that, or start Python with TRITON_INTERPRET=1, or use multiprocess=True: the core process chooses "
            "by itself."
        )
