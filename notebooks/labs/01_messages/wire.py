"""The messages of lab 01, declared once more: what is on the wire is in the declaration.

The engine's own declarations are in minivllm/engine/messages.py and minivllm/sampling_params.py. The checks write what
is expected by hand, from the engine's fields, so these can't drift from those.
"""

import msgspec

from minivllm.engine.messages import EngineCoreEvent, FinishReason, LogprobsLists, PrefillStats


def message_types() -> tuple[type, type, type]:
    """Declare three types of messages, and return them: (SamplingParams, EngineCoreRequest, EngineCoreOutput).

    A request and an output are written as arrays of all their fields, in this order; sampling parameters as a map of
    those that differ from their defaults. Fields, in order, with defaults:

    SamplingParams: temperature: float = 1.0, top_p: float = 1.0, seed: int | None = None, max_tokens: int | None = 16,
    min_tokens: int = 0, ignore_eos: bool = False.
    EngineCoreRequest: request_id: str, prompt_token_ids: list[int], sampling_params: SamplingParams,
    arrival_time: float, cache_salt: str | None = None, priority: int = 0, external_req_id: str | None = None.
    EngineCoreOutput: request_id: str, new_token_ids: list[int]; then each of these, or None, which is the default:
    new_logprobs: LogprobsLists, new_prompt_logprobs: LogprobsLists, finish_reason: FinishReason,
    stop_reason: int | str, events: list[EngineCoreEvent], prefill_stats: PrefillStats.

    vLLM: v1/engine/__init__.py::EngineCoreRequest (and EngineCoreOutput)
    """

    class SamplingParams(msgspec.Struct, omit_defaults=True, kw_only=True):
        temperature: float = 1.0
        top_p: float = 1.0
        seed: int | None = None
        max_tokens: int | None = 16
        min_tokens: int = 0
        ignore_eos: bool = False

    class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True):
        request_id: str
        prompt_token_ids: list[int]
        sampling_params: SamplingParams
        arrival_time: float
        cache_salt: str | None = None
        priority: int = 0
        external_req_id: str | None = None

    class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True):
        request_id: str
        new_token_ids: list[int]
        new_logprobs: LogprobsLists | None = None
        new_prompt_logprobs: LogprobsLists | None = None
        finish_reason: FinishReason | None = None
        stop_reason: int | str | None = None
        events: list[EngineCoreEvent] | None = None
        prefill_stats: PrefillStats | None = None

    return SamplingParams, EngineCoreRequest, EngineCoreOutput
