"""UniProcExecutor: how the core reaches its one worker, in the same process.

Owns: the worker.
Interface: what EngineCore calls. A second kind of executor (worker processes) would have the same methods.
Must not know: what the worker does.
"""

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.models.model_config import ModelConfig
from minivllm.worker.worker import Worker


class UniProcExecutor:
    """vLLM: v1/executor/uniproc_executor.py::UniProcExecutor"""

    def __init__(self, config: EngineConfig, model_config: ModelConfig) -> None:
        self.model_config = model_config
        self.driver_worker = Worker(config, model_config)
        self.driver_worker.load_model()

    def describe(self) -> dict[str, str | None]:
        """What it runs on, as EngineCoreReadyResponse names it."""
        worker = self.driver_worker
        return {
            "dtype": str(worker.dtype).removeprefix("torch."),
            "device": str(worker.device),
            "attention_backend": worker.backend.name,
            "attention_fallback": worker.backend.fallback,
        }

    def get_block_bytes(self) -> int:
        """Bytes of one KV cache block over all layers. vLLM: v1/executor/abstract.py::Executor.get_kv_cache_specs"""
        return self.driver_worker.get_block_bytes()

    def determine_available_memory(self) -> int:
        """Bytes for the KV cache. vLLM: v1/executor/abstract.py::Executor.determine_available_memory"""
        return self.driver_worker.determine_available_memory()

    def initialize_from_config(self, config: EngineConfig, num_blocks: int) -> None:
        """vLLM: v1/executor/abstract.py::Executor.initialize_from_config"""
        self.driver_worker.initialize_from_config(config, num_blocks)

    @boundary("executor.execute_model")
    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Start a step. None: the logits wait in the worker, call sample_tokens.

        vLLM: v1/executor/uniproc_executor.py::UniProcExecutor.execute_model
        """
        return self.driver_worker.execute_model(plan)

    @boundary("sample_tokens")
    def sample_tokens(self) -> ModelRunnerOutput:
        """vLLM: v1/executor/uniproc_executor.py::UniProcExecutor.sample_tokens"""
        return self.driver_worker.sample_tokens()

    def shutdown(self) -> None:
        """There is no process to end, and memory goes with the worker."""
