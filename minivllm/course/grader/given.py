"""What the labs give: the engine's own classes, for a starter to build on.

A starter's `class BlockPool(given.BlockPool)` has everything that the engine's class has, except what the lab asks for.
Names are loaded when they are asked for, so labs without tensors need no torch.
"""

import importlib
from typing import Any

CLASSES = {
    "MsgpackEncoder": "minivllm.engine.serial",
    "MsgpackDecoder": "minivllm.engine.serial",
    "BlockPool": "minivllm.core.block_pool",
    "KVCacheManager": "minivllm.core.kv_cache_manager",
    "Scheduler": "minivllm.core.scheduler",
    "InputBatch": "minivllm.worker.input_batch",
    "Sampler": "minivllm.sample.sampler",
    "OutputProcessor": "minivllm.engine.output_processor",
    "IncrementalDetokenizer": "minivllm.engine.detokenizer",
    "TextStream": "minivllm.engine.detokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in CLASSES:
        raise AttributeError(f"minivllm.course.grader.given has no {name}; it has {', '.join(CLASSES)}")
    return getattr(importlib.import_module(CLASSES[name]), name)
