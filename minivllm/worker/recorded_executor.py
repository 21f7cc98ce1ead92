"""Executors that run no model. RecordedExecutor: the tokens are known beforehand.

Owns: how many prompt tokens each request has.
Interface: what EngineCore calls, see UniProcExecutor.
Must not know: why those tokens. It imports no torch.
"""

from collections.abc import Mapping, Sequence

from minivllm.config import EngineConfig
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput


class ExecutorWithoutModel:
    """All but execute_model.

    vLLM: v1/executor/abstract.py::Executor (role)
    """

    def get_block_bytes(self) -> int:
        """Zero: there is no cache, so nothing of it is allocated or checked."""
        return 0

    def determine_available_memory(self) -> int:
        return 0

    def initialize_from_config(self, config: EngineConfig, num_blocks: int) -> None:
        """There is no cache."""

    def describe(self) -> dict[str, str]:
        return {"dtype": "none", "device": "none", "attention_backend": "none"}

    def sample_tokens(self) -> ModelRunnerOutput:
        raise RuntimeError("execute_model() has given the tokens already")

    def shutdown(self) -> None:
        """There is nothing to give back."""


class RecordedExecutor(ExecutorWithoutModel):
    """outputs: request id -> the token that is sampled at each place of its output.

    vLLM: v1/executor/abstract.py::Executor (role)
    """

    def __init__(self, outputs: Mapping[str, Sequence[int]]) -> None:
        self.outputs = outputs
        self.num_prompt_tokens: dict[str, int] = {}

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """A token for every request whose tokens are all computed after this step."""
        known, before = plan.scheduled_cached_reqs, {}
        for new in plan.scheduled_new_reqs:
            self.num_prompt_tokens[new.req_id] = len(new.prompt_token_ids)
            before[new.req_id] = (new.num_computed_tokens, 0)
        for req_id, computed, outputs in zip(
            known.req_ids, known.num_computed_tokens, known.num_output_tokens, strict=True
        ):
            before[req_id] = (computed, outputs)
        req_ids, sampled = list(plan.num_scheduled_tokens), []
        for req_id, num_tokens in plan.num_scheduled_tokens.items():
            num_computed, num_outputs = before[req_id]
            complete = num_computed + num_tokens >= self.num_prompt_tokens[req_id] + num_outputs
            sampled.append([self.outputs[req_id][num_outputs]] if complete else [])
        return ModelRunnerOutput(req_ids, {req_id: row for row, req_id in enumerate(req_ids)}, sampled)
