"""Worker: one device. Loads the model, says how much KV cache fits, and runs the steps.

Owns: the device, the weights, the model runner.
Interface: init_device, load_model, determine_available_memory, initialize_from_config; execute_model, sample_tokens.
Must not know: the scheduler, sockets.
"""

import logging
from functools import partial

import torch

from minivllm.attention.selector import get_attn_backend
from minivllm.boundary import boundary
from minivllm.config import CPU_KV_CACHE_BYTES, EngineConfig
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.errors import InputError
from minivllm.models.loader import load_model
from minivllm.models.model_config import ModelConfig
from minivllm.models.registry import choose_model
from minivllm.parts import load_part
from minivllm.worker.model_runner import ModelRunner
from minivllm.worker.step_check import CheckedModelRunner, needs_check

logger = logging.getLogger(__name__)


class Worker:
    """vLLM: v1/worker/gpu_worker.py::Worker"""

    def __init__(self, config: EngineConfig, model_config: ModelConfig) -> None:
        self.config = config
        self.model_config = model_config
        self.device = _choose_device(config.device)
        self.dtype = _choose_dtype(config.dtype, model_config.dtype, self.device)
        self.backend = get_attn_backend(
            config.attention_backend,
            self.device,
            num_heads=model_config.num_attention_heads,
            num_kv_heads=model_config.num_kv_heads,
            head_size=model_config.head_size,
            block_size=config.block_size,
            dtype=self.dtype,
            part=partial(load_part, parts=config.parts),
        )
        self.model_runner: ModelRunner | None = None  # after initialize_from_config
        torch.manual_seed(config.seed)

    def load_model(self) -> None:
        """vLLM: v1/worker/gpu_worker.py::Worker.load_model"""
        self.model_class, self.model_reason = choose_model(self.backend)
        self.model = load_model(self.model_config, self.dtype, self.device, self.backend)

    def get_block_bytes(self) -> int:
        """Bytes of one block over all layers: block_size * num_kv_heads * head_size, K and V.

        vLLM: v1/kv_cache_interface.py::FullAttentionSpec (its page size, times layers)
        """
        shape = self.backend.kv_cache_shape(
            1, self.config.block_size, self.model_config.num_kv_heads, self.model_config.head_size
        )
        return torch.Size(shape).numel() * self.dtype.itemsize * self.model_config.num_layers

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache.

        vLLM: v1/worker/gpu_worker.py::Worker.determine_available_memory (simplified: no profiling run on a GPU; a CPU
        takes a fixed amount)
        """
        if self.config.kv_cache_memory_bytes is not None:
            return self.config.kv_cache_memory_bytes
        if self.device.type != "cuda":
            return CPU_KV_CACHE_BYTES
        free, total = torch.cuda.mem_get_info(self.device)
        used = total - free  # the weights are loaded by now
        activations = 1 << 30  # room for a step's activations and logits
        return int(total * self.config.gpu_memory_utilization) - used - activations

    def initialize_from_config(self, config: EngineConfig, num_blocks: int) -> None:
        """Allocate KV cache and batch. `config` is resolved: it has lengths and limits. InputError if memory is short.

        vLLM: v1/worker/gpu_worker.py::Worker.initialize_from_config
        """
        part = partial(load_part, parts=config.parts)  # the engine's own, unless the config names another
        try:
            if not isinstance(self.model, self.model_class):  # here, since it has tables of max_model_len rows
                self.model = self.model_class(self.model, self.backend.kernels, config.max_model_len)
            runner_class = CheckedModelRunner if needs_check(config) else ModelRunner
            self.model_runner = runner_class(
                config,
                self.model_config,
                self.model,
                self.backend,
                num_blocks=num_blocks,
                dtype=self.dtype,
                device=self.device,
                input_batch_class=part("input_batch"),
                flatten_rows=part("flatten"),
                sampler_class=part("sampler"),
            )
        except (RuntimeError, MemoryError) as error:  # what torch and numpy raise when memory is out
            raise InputError(
                f"A KV cache of {num_blocks} blocks, {num_blocks * self.get_block_bytes()} bytes, and rows for "
                f"max_num_seqs={config.max_num_seqs} requests of {config.max_model_len} tokens can't be allocated "
                f"({error}). Lower num_gpu_blocks_override, kv_cache_memory_bytes or max_num_seqs."
            ) from error

    @boundary("worker.execute_model")
    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """vLLM: v1/worker/gpu_worker.py::Worker.execute_model"""
        return self.model_runner.execute_model(plan)

    def sample_tokens(self) -> ModelRunnerOutput:
        """vLLM: v1/worker/gpu_worker.py::Worker.sample_tokens"""
        return self.model_runner.sample_tokens()


def _choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(
            "device='cuda', but torch finds no CUDA GPU. Use device='cpu', or install a CUDA build of torch."
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise InputError("device='mps', but torch finds no Apple GPU. Use device='cpu'.")
    return torch.device(name)


def _choose_dtype(name: str, model_dtype: str, device: torch.device) -> torch.dtype:
    """auto: that of the weights, but float32 weights are computed in half of it, which is what they are served in.

    vLLM: config/model.py::_resolve_auto_dtype
    """
    if name != "auto":
        return getattr(torch, name)
    supported = ["bfloat16", "float16"]
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        supported.remove("bfloat16")
    if model_dtype not in (*supported, "float32"):
        logger.warning("This GPU can't compute in %s: %s is taken in its place.", model_dtype, supported[0])
    return getattr(torch, model_dtype if model_dtype in supported else supported[0])
