"""LLMEngine: the caller's side of the engine: requests in, outputs out, a step at a time.

Owns: the input processor, the output processor, the client of the core.
Interface: add_request, step, abort_request, stop_request, has_unfinished_requests, shutdown.
Must not know: prompts' lists, progress bars (llm.py), or where the core runs.
"""

import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.engine.core_client import EngineCoreClient, make_client
from minivllm.engine.input_processor import EngineInput, InputProcessor
from minivllm.engine.messages import EngineCoreRequest
from minivllm.engine.output_processor import OutputProcessor
from minivllm.engine.parallel_sampling import ParentRequest
from minivllm.models import tokenizer
from minivllm.models.model_config import ModelConfig, load_model_config
from minivllm.outputs import RequestOutput
from minivllm.parts import check_parts, load_part
from minivllm.sampling_params import SamplingParams


class LLMEngine:
    """vLLM: v1/engine/llm_engine.py::LLMEngine"""

    def __init__(self, config: EngineConfig) -> None:
        """Raises InputError for a setting, ModelError for a model that can't be used."""
        self.trace = None
        if config.trace:
            from minivllm.trace.attach import CallerTrace

            self.trace = CallerTrace(config)
            config = self.trace.config
        sources = self.trace.input_sources() if self.trace else {}
        check_parts(config.parts)
        # first of all: the core's process imports what it needs while this one reads the model's files
        part = partial(load_part, parts=config.parts)  # the engine's own, unless the config names another
        self.engine_core: EngineCoreClient = make_client(config, part)
        try:
            self.model_config: ModelConfig = load_model_config(config.model)
            self.tokenizer: Any | None = None
            if not config.skip_tokenizer_init:
                self.tokenizer = tokenizer.load_tokenizer(config.tokenizer or self.model_config.path)
            self.output_processor: OutputProcessor = part("output_processor")(
                self.tokenizer, part("detokenizer"), part("text_stream")
            )
            self.engine_core.connect(self.model_config)
            self.input_processor = InputProcessor(
                config, self.model_config, self.engine_core.ready.max_model_len, self.tokenizer, **sources
            )
            self._ids_to_stop: SimpleQueue[str] = SimpleQueue()  # filled by any thread, read by the one that steps
            self._stepping_thread: int | None = None
            if self.trace:
                self.trace.attach(self, self.model_config)
        except BaseException:  # Ctrl-C too
            self.engine_core.shutdown()
            if self.trace:
                self.trace.discard()
            raise

    def has_unfinished_requests(self) -> bool:
        """Whether the caller still waits for something: the caller's own table decides, not the core.

        vLLM: v1/engine/llm_engine.py::LLMEngine.has_unfinished_requests
        """
        return self.output_processor.has_unfinished_requests()

    @boundary("llm_engine.add_request")
    def add_request(self, request_id: str, engine_input: EngineInput, params: SamplingParams, priority: int = 0) -> str:
        """Check a request, open it here, hand it to the core; returns its internal id.

        vLLM: v1/engine/llm_engine.py::LLMEngine.add_request
        """
        request = self.input_processor.process_inputs(request_id, engine_input, params, priority)
        self.input_processor.assign_request_id(request)
        if request.sampling_params.n == 1:
            self.output_processor.add_request(request, engine_input.prompt)
            self.engine_core.add_request(request)
            return request.request_id
        parent = ParentRequest(request.request_id, request.external_req_id, request.sampling_params)
        for index in range(request.sampling_params.n):
            child_id, child_params = parent.get_child_info(index)
            child = EngineCoreRequest(
                request_id=child_id,
                prompt_token_ids=request.prompt_token_ids,
                sampling_params=child_params,
                arrival_time=request.arrival_time,
                cache_salt=request.cache_salt,
                priority=request.priority,
                external_req_id=request.external_req_id,
            )
            self.output_processor.add_request(child, engine_input.prompt, parent, index)
            self.engine_core.add_request(child)
        return request.request_id

    def step(self) -> list[RequestOutput]:
        """Take one message of the core in. In this process that computes a step; across processes it waits for one
        that the core has computed by itself.

        vLLM: v1/engine/llm_engine.py::LLMEngine.step
        """
        self._stepping_thread = threading.get_ident()
        if not self._ids_to_stop.empty():
            return self._stop_requests()
        outputs = self.engine_core.get_output()
        processed = self.output_processor.process_outputs(outputs.outputs, outputs.timestamp)
        if processed.reqs_to_abort:
            self.engine_core.abort_requests(processed.reqs_to_abort)
        return processed.request_outputs

    def abort_request(self, request_ids: list[str]) -> None:
        """Give requests up, by external or internal id; unknown ones are ignored.

        vLLM: v1/engine/llm_engine.py::LLMEngine.abort_request
        """
        internal_ids = self.output_processor.abort_requests(request_ids)
        if internal_ids:
            self.engine_core.abort_requests(internal_ids)

    def stop_request(self, request_id: str) -> None:
        """End a request with what it has so far, by external id: its last output, of finish_reason "abort", comes with
        a later step. From any thread; an id that is not open is ignored.

        vLLM: v1/engine/async_llm.py::AsyncLLM.abort
        """
        states = list(self.output_processor.request_states.values())  # at once: they change while the engine steps
        if not any(state.external_req_id == request_id for state in states):
            return
        self._ids_to_stop.put(request_id)
        if threading.get_ident() != self._stepping_thread:
            self.engine_core.wake()  # it may wait for an output, and there may be none any more

    def _stop_requests(self) -> list[RequestOutput]:
        ids = [self._ids_to_stop.get() for _ in range(self._ids_to_stop.qsize())]  # one thread steps, and takes
        stopped = self.output_processor.stop_requests(ids)
        if stopped.reqs_to_abort:
            self.engine_core.abort_requests(stopped.reqs_to_abort)
        return stopped.request_outputs

    def reset_prefix_cache(self) -> bool:
        """vLLM: v1/engine/llm_engine.py::LLMEngine.reset_prefix_cache"""
        return self.engine_core.call_utility("reset_prefix_cache")

    def shutdown(self) -> None:
        """End the core, and the trace. Does nothing in a forked child. May be called again, and from any thread.

        vLLM: none, vLLM's engine ends with its client's finalizer
        """
        if self.engine_core.is_forked():
            return
        self.engine_core.shutdown()
        if self.trace:
            self.trace.close()
