"""ParentRequest: n > 1 answers to one prompt, as n requests that know nothing of each other.

They share the prompt's blocks through the prefix cache alone. The core never hears of a parent.
"""

from dataclasses import replace

from minivllm.engine.logprobs import copy_logprobs
from minivllm.outputs import CompletionOutput
from minivllm.sampling_params import SamplingParams


class ParentRequest:
    """vLLM: v1/engine/parallel_sampling.py::ParentRequest"""

    def __init__(self, request_id: str, external_req_id: str, sampling_params: SamplingParams) -> None:
        self.request_id = request_id
        self.external_req_id = external_req_id
        self.sampling_params = sampling_params
        self.child_requests: set[str] = set()  # those that still run
        self.output_aggregator: list[CompletionOutput | None] = [None] * sampling_params.n

    def get_child_info(self, index: int) -> tuple[str, SamplingParams]:
        """The id and the parameters of child `index`. With a seed, each child has its own: seed + index.

        vLLM: v1/engine/parallel_sampling.py::ParentRequest.get_child_info
        """
        child_id = f"{index}_{self.request_id}"
        self.child_requests.add(child_id)
        params = self.sampling_params.clone()
        params.n = 1
        if params.seed is not None:
            params.seed += index
        return child_id, params

    def get_outputs(self, child_request_id: str, completion: CompletionOutput) -> tuple[list[CompletionOutput], bool]:
        """Take a child's output in. Returns (the outputs so far in order, whether all children have finished).

        vLLM: v1/engine/parallel_sampling.py::ParentRequest.get_outputs (collects partial outputs too)
        """
        self.output_aggregator[completion.index] = completion
        if completion.finished():
            self.child_requests.discard(child_request_id)
        outputs = [output for output in self.output_aggregator if output is not None]
        if self.child_requests:  # we shall hand them out again, whatever the caller does to these
            outputs = [
                replace(output, token_ids=list(output.token_ids), logprobs=copy_logprobs(output.logprobs))
                for output in outputs
            ]
        return outputs, not self.child_requests
