"""EngineCore: the loop that turns requests into tokens, a step at a time.

Owns: the scheduler and the executor, and the order of a step.
Interface: preprocess_add_request, add_request, abort_requests, step; utility calls (reset_prefix_cache, …).
Must not know: text, the caller, or whether it runs in a process of its own (core_proc.py).
"""

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.block_hash import get_request_block_hasher, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request, RequestStatus
from minivllm.core.scheduler import Scheduler
from minivllm.engine.messages import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest
from minivllm.errors import InputError
from minivllm.models.model_config import ModelConfig, check_max_model_len
from minivllm.parts import check_parts, load_part


class EngineCore:
    """executor_class: what runs the model; None: UniProcExecutor.

    vLLM: v1/engine/core.py::EngineCore (simplified: synchronous scheduling only)
    """

    def __init__(
        self,
        config: EngineConfig,
        model_config: ModelConfig,
        executor_class: Callable[[EngineConfig, ModelConfig], Any] | None = None,
    ) -> None:
        check_parts(config.parts)
        if executor_class is None:
            from minivllm.worker.executor import UniProcExecutor as executor_class  # brings torch
        self.model_executor = executor_class(config, model_config)
        self.config, self.num_gpu_blocks = self._initialize_kv_caches(config, model_config)
        part = partial(load_part, parts=config.parts)  # the engine's own, unless the config names another
        pool: BlockPool = part("block_pool")(
            self.num_gpu_blocks, self.config.enable_prefix_caching, free_queue=part("free_queue")
        )
        manager: KVCacheManager = part("kv_cache_manager")(self.config, pool)
        self.scheduler: Scheduler = part("scheduler")(self.config, manager, check_stop=part("check_stop"))
        self.request_block_hasher = None
        if self.config.enable_prefix_caching:
            none_hash = init_none_hash(self.config.hash_seed)
            self.request_block_hasher = get_request_block_hasher(
                self.config.block_size, none_hash, part("extend_block_hashes")
            )
        self.aborts_queue: SimpleQueue[list[str]] = SimpleQueue()  # filled while a step runs

    # ------------------------------------------------------------------ the step

    @boundary("step")
    def step(self) -> tuple[EngineCoreOutputs | None, bool]:
        """One step: plan, compute, sample, take the tokens in.

        Returns (what to tell the caller, None if nothing; whether the model ran).

        vLLM: v1/engine/core.py::EngineCore.step
        """
        if not self.scheduler.has_requests():
            return None, False
        plan = self.scheduler.schedule()
        result = self.model_executor.execute_model(plan)
        if result is None:
            result = self.model_executor.sample_tokens()
        self.process_aborts()  # those that arrived meanwhile
        outputs = self.scheduler.update_from_output(plan, result)
        executed = plan.total_num_scheduled_tokens > 0
        return (EngineCoreOutputs(outputs) if outputs else None), executed

    # ------------------------------------------------------------------ requests

    @boundary("preprocess_add_request")
    def preprocess_add_request(self, request: EngineCoreRequest) -> Request:
        """The message as a Request, its full blocks hashed. Runs in the input thread, beside the model.

        vLLM: v1/engine/core.py::EngineCore.preprocess_add_request
        """
        return Request.from_engine_core_request(request, self.request_block_hasher)

    def add_request(self, request: Request) -> None:
        """vLLM: v1/engine/core.py::EngineCore.add_request"""
        self.scheduler.add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """End requests that the caller has given up. Ids that are not known any more are ignored.

        vLLM: v1/engine/core.py::EngineCore.abort_requests
        """
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def process_aborts(self) -> None:
        """vLLM: v1/engine/core.py::EngineCore._process_aborts_queue"""
        request_ids: list[str] = []
        while True:
            try:
                request_ids += self.aborts_queue.get_nowait()
            except Empty:
                break
        if request_ids:
            self.abort_requests(request_ids)

    # ------------------------------------------------------------------ utility calls

    def reset_prefix_cache(self) -> bool:
        """vLLM: v1/engine/core.py::EngineCore.reset_prefix_cache"""
        return self.scheduler.reset_prefix_cache()

    def ready_response(self) -> EngineCoreReadyResponse:
        """What became of the config."""
        worker = self.model_executor.driver_worker
        return EngineCoreReadyResponse(
            max_model_len=self.config.max_model_len,
            num_gpu_blocks=self.num_gpu_blocks,
            dtype=str(worker.dtype).removeprefix("torch."),
            device=str(worker.device),
            attention_backend=worker.backend.name,
            attention_fallback=worker.backend.fallback,
        )

    # ------------------------------------------------------------------ start-up

    def _initialize_kv_caches(self, config: EngineConfig, model_config: ModelConfig) -> tuple[EngineConfig, int]:
        """Decide how many blocks there are and how long a request may be, and allocate the cache.

        vLLM: v1/engine/core.py::EngineCore._initialize_kv_caches
        """
        block_bytes = self.model_executor.get_block_bytes()
        available = self.model_executor.determine_available_memory()
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
        self.model_executor.initialize_from_config(config, num_blocks)
        return config, num_blocks
