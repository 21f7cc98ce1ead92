"""minivllm: the life of one request of vLLM 0.22.0, in a small but complete engine that can be traced.

The public names are loaded at first use, so `import minivllm.trace` needs neither torch nor transformers.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minivllm.config import EngineConfig
    from minivllm.llm import LLM
    from minivllm.outputs import CompletionOutput, RequestOutput
    from minivllm.sampling_params import SamplingParams

__version__ = "0.1.0"

__all__ = ["LLM", "CompletionOutput", "EngineConfig", "RequestOutput", "SamplingParams", "__version__"]

_HOMES = {
    "LLM": "minivllm.llm",
    "SamplingParams": "minivllm.sampling_params",
    "RequestOutput": "minivllm.outputs",
    "CompletionOutput": "minivllm.outputs",
    "EngineConfig": "minivllm.config",
}


def __getattr__(name: str) -> Any:
    """The public name, imported from its home. Without the engine's packages, says how to get them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'minivllm' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "minivllm":
            raise
        raise ModuleNotFoundError(
            f"minivllm.{name} needs the package {error.name!r}, which is not installed. "
            "Install the engine's packages: pip install 'minivllm[engine]'",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
