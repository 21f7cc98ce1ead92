"""EngineCore: the loop that turns requests into tokens, a step at a time.

Owns: the scheduler and the executor, and the order of a step.
Interface: preprocess_add_request, add_request, abort_requests, step; utility calls (reset_prefix_cache, …).
Must not know: text, the caller, or whether it runs in a process of its own (core_proc.py).
"""

from queue import Empty, SimpleQueue
from typing import Any

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.block_hash import BlockHasher
from minivllm.core.request import Request, RequestStatus
from minivllm.core.scheduler import Scheduler
from minivllm.engine.messages import EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest


class EngineCore:
    """Put together by assemble().

    executor: what computes. It has execute_model(plan) -> a result, or None: sample_tokens() gives it; the numbers that
    assemble() asks for; and describe(), what it runs on.

    vLLM: v1/engine/core.py::EngineCore (simplified: synchronous scheduling only)
    """

    def __init__(
        self,
        config: EngineConfig,
        num_gpu_blocks: int,
        executor: Any,
        scheduler: Scheduler,
        request_block_hasher: BlockHasher | None,
    ) -> None:
        self.config = config
        self.num_gpu_blocks = num_gpu_blocks
        self.model_executor = executor
        self.scheduler = scheduler
        self.request_block_hasher = request_block_hasher
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

    def shutdown(self) -> None:
        """vLLM: v1/engine/core.py::EngineCore.shutdown"""
        self.model_executor.shutdown()

    # ------------------------------------------------------------------ utility calls

    def reset_prefix_cache(self) -> bool:
        """vLLM: v1/engine/core.py::EngineCore.reset_prefix_cache"""
        return self.scheduler.reset_prefix_cache()

    def ready_response(self) -> EngineCoreReadyResponse:
        """What became of the config."""
        return EngineCoreReadyResponse(
            max_model_len=self.config.max_model_len,
            num_gpu_blocks=self.num_gpu_blocks,
            **self.model_executor.describe(),
        )
