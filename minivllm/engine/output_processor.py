"""OutputProcessor: what the core says, turned into what the caller gets.

Owns: a RequestState for every open request, with its text, logprobs and metrics. This table, not the core's, decides
when `generate` is done.
Interface: add_request (before the core hears of it), process_outputs, abort_requests, stop_requests.
Must not know: how messages travel.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any

from minivllm.boundary import boundary
from minivllm.engine.detokenizer import IncrementalDetokenizer, TextStream
from minivllm.engine.logprobs import LogprobsProcessor
from minivllm.engine.messages import EngineCoreEventType, EngineCoreOutput, EngineCoreRequest, FinishReason
from minivllm.engine.parallel_sampling import ParentRequest
from minivllm.outputs import CompletionOutput, RequestMetrics, RequestOutput
from minivllm.sampling_params import RequestOutputKind


@dataclass(slots=True)
class RequestState:
    """One open request, as the caller's side knows it.

    vLLM: v1/engine/output_processor.py::RequestState
    """

    request_id: str
    external_req_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    output_kind: RequestOutputKind
    detokenizer: IncrementalDetokenizer
    logprobs_processor: LogprobsProcessor
    metrics: RequestMetrics
    parent_req: ParentRequest | None = None
    request_index: int = 0  # among the parent's children
    num_cached_tokens: int | None = None

    def make_request_output(
        self, finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> RequestOutput | None:
        """The caller's view of now; None where the caller wants only the end and this isn't it. All in it is the
        caller's own to change: lists are copies.

        vLLM: v1/engine/output_processor.py::RequestState.make_request_output
        """
        finished = finish_reason is not None
        if finished:
            self.metrics.finished_time = time.time()
        only_final = self.output_kind is RequestOutputKind.FINAL_ONLY
        if only_final and not finished:
            return None
        completion = CompletionOutput(
            index=self.request_index,
            text=self.detokenizer.get_next_output_text(finished, delta=False),
            token_ids=list(self.detokenizer.token_ids),
            cumulative_logprob=self.logprobs_processor.cumulative_logprob,
            logprobs=self.logprobs_processor.get_logprobs(),
            finish_reason=str(finish_reason) if finished else None,
            stop_reason=stop_reason if finished else None,
        )
        outputs = [completion]
        if self.parent_req is not None:
            outputs, finished = self.parent_req.get_outputs(self.request_id, completion)
            if only_final and not finished:
                return None
        return RequestOutput(
            request_id=self.external_req_id,
            prompt=self.prompt,
            prompt_token_ids=list(self.prompt_token_ids),
            prompt_logprobs=self.logprobs_processor.get_prompt_logprobs(),
            outputs=outputs,
            finished=finished,
            metrics=replace(self.metrics),
            num_cached_tokens=self.num_cached_tokens,
        )


@dataclass(slots=True)
class OutputProcessorOutput:
    """vLLM: v1/engine/output_processor.py::OutputProcessorOutput"""

    request_outputs: list[RequestOutput] = field(default_factory=list)
    reqs_to_abort: list[str] = field(default_factory=list)  # ended here, by a stop string; the core doesn't know yet


class OutputProcessor:
    """vLLM: v1/engine/output_processor.py::OutputProcessor"""

    def __init__(
        self,
        tokenizer: Any | None,
        detokenizer_class: type[IncrementalDetokenizer] = IncrementalDetokenizer,
        text_stream_class: type[TextStream] = TextStream,
    ) -> None:
        self.tokenizer = tokenizer
        self.detokenizer_class = detokenizer_class
        self.text_stream_class = text_stream_class
        self.request_states: dict[str, RequestState] = {}

    def has_unfinished_requests(self) -> bool:
        return bool(self.request_states)

    @boundary("output_processor.add_request")
    def add_request(
        self,
        request: EngineCoreRequest,
        prompt: str | None,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
    ) -> None:
        """Open a request. This must come before the core gets it, or a fast answer would find nobody.

        vLLM: v1/engine/output_processor.py::OutputProcessor.add_request
        """
        tokenizer = self.tokenizer if request.sampling_params.detokenize else None  # no text at all, of candidates too
        self.request_states[request.request_id] = RequestState(
            request_id=request.request_id,
            external_req_id=request.external_req_id,
            prompt=prompt,
            prompt_token_ids=request.prompt_token_ids,
            output_kind=request.sampling_params.output_kind,
            detokenizer=self.detokenizer_class.from_new_request(tokenizer, request, self.text_stream_class),
            logprobs_processor=LogprobsProcessor.from_new_request(tokenizer, request),
            metrics=RequestMetrics(arrival_time=request.arrival_time),
            parent_req=parent_req,
            request_index=request_index,
        )

    @boundary("process_outputs")
    def process_outputs(self, outputs: list[EngineCoreOutput], timestamp: float) -> OutputProcessorOutput:
        """Take one message of the core in. An output of a request that has ended here is ignored.

        timestamp: the core's monotonic clock when the message was made, seconds.

        vLLM: v1/engine/output_processor.py::OutputProcessor.process_outputs
        """
        result = OutputProcessorOutput()
        for output in outputs:
            # >>> lab 12.4 text, reason, the caller's view; the end, and who must hear of it
            state = self.request_states.get(output.request_id)
            if state is None:
                continue
            self._update_numbers(state, output, timestamp)
            finish_reason, stop_reason = output.finish_reason, output.stop_reason
            stop_string = self.detokenize(state, output.new_token_ids, finish_reason is FinishReason.STOP)
            if stop_string is not None:
                finish_reason, stop_reason = FinishReason.STOP, stop_string
            request_output = state.make_request_output(finish_reason, stop_reason)
            if request_output is not None:
                result.request_outputs.append(request_output)
            if finish_reason is not None:
                del self.request_states[output.request_id]
                if not output.finished:
                    result.reqs_to_abort.append(output.request_id)
            # <<< lab 12.4
        return result

    @boundary("detokenize")
    def detokenize(self, state: RequestState, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """New tokens to text; returns the stop string that ends the request here, or None.

        vLLM: v1/engine/detokenizer.py::BaseIncrementalDetokenizer.update
        """
        return state.detokenizer.update(new_token_ids, stop_terminated)

    def abort_requests(self, request_ids: list[str]) -> list[str]:
        """Close requests, by internal or external id; returns the internal ids that were open.

        vLLM: v1/engine/output_processor.py::OutputProcessor.abort_requests
        """
        wanted = set(request_ids)
        closed = [i for i, state in self.request_states.items() if i in wanted or state.external_req_id in wanted]
        for request_id in closed:
            del self.request_states[request_id]
        return closed

    def stop_requests(self, request_ids: list[str]) -> OutputProcessorOutput:
        """Close requests, by internal or external id, with what they have so far as their last output.

        vLLM: v1/engine/output_processor.py::OutputProcessor.abort_requests (its output of FinishReason.ABORT)
        """
        result = OutputProcessorOutput()
        wanted = set(request_ids)
        for request_id, state in self.request_states.items():
            if request_id in wanted or state.external_req_id in wanted:
                result.reqs_to_abort.append(request_id)
                request_output = state.make_request_output(FinishReason.ABORT, None)
                if request_output is not None:
                    result.request_outputs.append(request_output)
        self.abort_requests(result.reqs_to_abort)
        return result

    @staticmethod
    def _update_numbers(state: RequestState, output: EngineCoreOutput, timestamp: float) -> None:
        """Logprobs, and the request's metrics.

        vLLM: v1/metrics/stats.py::IterationStats.update_from_output (and LogprobsProcessor.update_from_output)
        """
        state.logprobs_processor.update_from_output(output)
        metrics = state.metrics
        if output.prefill_stats is not None:
            state.num_cached_tokens = output.prefill_stats.num_cached_tokens
        for event in output.events or ():
            if event.type is EngineCoreEventType.QUEUED:
                metrics.queued_ts = event.timestamp
            elif event.type is EngineCoreEventType.SCHEDULED and metrics.scheduled_ts == 0.0:
                metrics.scheduled_ts = event.timestamp
            elif event.type is EngineCoreEventType.PREEMPTED:
                metrics.num_preemptions += 1
        if output.new_token_ids:
            if metrics.num_generation_tokens == 0:
                metrics.first_token_ts = timestamp
                metrics.first_token_latency = time.time() - metrics.arrival_time
            metrics.last_token_ts = timestamp
            metrics.num_generation_tokens += len(output.new_token_ids)
