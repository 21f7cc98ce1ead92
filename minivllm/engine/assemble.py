"""assemble: the one place where an engine core is put together.

Owns: the order in which its pieces are made, and which symbol stands for each of them.
Interface: assemble, get_executor_class.
Must not know: what an executor computes with, or in which process this is.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minivllm.config import EngineConfig
from minivllm.core.block_hash import get_request_block_hasher, init_none_hash
from minivllm.engine.core import EngineCore
from minivllm.errors import InputError
from minivllm.models.model_config import check_max_model_len
from minivllm.parts import load_part


def assemble(
    config: EngineConfig,
    executor: Any,
    parts: Mapping[str, Any],
    core_class: Callable[..., EngineCore] = EngineCore,
) -> EngineCore:
    """A core that plans by `config` and computes with `executor`.

    parts: seam -> a symbol's name or the symbol itself, in place of the engine's own; what is no seam of the core is
    passed over. Raises InputError when the cache is too small for one request.

    vLLM: v1/engine/core.py::EngineCore.__init__ (role)
    """
    config, num_blocks = initialize_kv_caches(config, executor)
    part = partial(load_part, parts=parts)
    pool = part("block_pool")(num_blocks, config.enable_prefix_caching, free_queue=part("free_queue"))
    manager = part("kv_cache_manager")(config, pool)
    scheduler = part("scheduler")(config, manager, check_stop=part("check_stop"))
    hasher = None
    if config.enable_prefix_caching:
        none_hash = init_none_hash(config.hash_seed)
        hasher = get_request_block_hasher(config.block_size, none_hash, part("extend_block_hashes"))
    return core_class(config, num_blocks, executor, scheduler, hasher)


def get_executor_class() -> Callable[..., Any]:
    """The executor that runs a model; called with the config and the model's. Loading it brings torch.

    vLLM: v1/executor/abstract.py::Executor.get_class
    """
    from minivllm.worker.executor import UniProcExecutor

    return UniProcExecutor


def initialize_kv_caches(config: EngineConfig, executor: Any) -> tuple[EngineConfig, int]:
    """Decide how many blocks there are and how long a request may be, and let the executor allocate the cache.

    An executor whose blocks take no memory has no model either: then the config says both.

    vLLM: v1/engine/core.py::EngineCore._initialize_kv_caches
    """
    block_bytes = executor.get_block_bytes()
    if block_bytes == 0:
        executor.initialize_from_config(config, config.num_gpu_blocks_override)
        return config, config.num_gpu_blocks_override
    model_config = executor.model_config
    available = executor.determine_available_memory()
    num_blocks = config.num_gpu_blocks_override or max(available, 0) // block_bytes
    usable_tokens = max(num_blocks - 1, 0) * config.block_size
    max_model_len = config.max_model_len
    if max_model_len is None:
        max_model_len = model_config.max_model_len
        if model_config.sliding_window is not None:
            max_model_len = min(max_model_len, model_config.sliding_window)
        if config.num_gpu_blocks_override is None and config.kv_cache_memory_bytes is None and usable_tokens > 1:
            max_model_len = min(max_model_len, usable_tokens)  # nobody asked for more
    check_max_model_len(model_config, max_model_len)
    if usable_tokens < max_model_len:
        raise InputError(
            f"The KV cache has {num_blocks} blocks of {config.block_size} tokens, one of them the null block: "
            f"{usable_tokens} tokens, which is less than one request of max_model_len={max_model_len}. "
            f"Lower max_model_len, or raise num_gpu_blocks_override or kv_cache_memory_bytes (one block over all "
            f"layers takes {block_bytes} bytes)."
        )
    config = config.resolved(max_model_len)
    executor.initialize_from_config(config, num_blocks)
    return config, num_blocks
