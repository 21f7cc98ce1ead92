"""What the two processes say to each other before the first request. Imports no torch: the caller's side needs none."""

import msgspec

from minivllm.config import EngineConfig
from minivllm.models.model_config import ModelConfig

ENGINE_IDENTITY = b"\x00\x00"  # engine 0, as two bytes little-endian


class EngineHandshakeMetadata(msgspec.Struct):
    """What the caller's process answers to HELLO: where to connect, and what to build.

    vLLM: v1/engine/utils.py::EngineHandshakeMetadata
    """

    input_address: str
    output_address: str
    config: EngineConfig
    model_config: ModelConfig
