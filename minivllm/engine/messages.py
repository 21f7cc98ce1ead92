"""Every message that crosses the process boundary, on one page.

All are msgspec Structs written as arrays (`array_like`), so the order of the fields is the wire format: an optional
field may be added at the end and nowhere else.
Must not know: sockets, or how the bytes are made (serial.py).
"""

import time
from enum import Enum, IntEnum
from typing import Any

import msgspec
import numpy as np

from minivllm.sampling_params import SamplingParams


class EngineCoreRequestType(bytes, Enum):
    """The first frame of every message to the core: one byte. WAKEUP never leaves the core process.

    vLLM: v1/engine/__init__.py::EngineCoreRequestType
    """

    ADD = b"\x00"
    ABORT = b"\x01"
    UTILITY = b"\x03"
    WAKEUP = b"\x05"


ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"  # a single raw frame: the core is about to end


class FinishReason(IntEnum):
    """Why a request ended. str() gives the word that the caller sees.

    vLLM: v1/engine/__init__.py::FinishReason
    """

    STOP = 0
    LENGTH = 1
    ABORT = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class EngineCoreEventType(IntEnum):
    """vLLM: v1/engine/__init__.py::EngineCoreEventType"""

    QUEUED = 1
    SCHEDULED = 2
    PREEMPTED = 3


class EngineCoreEvent(msgspec.Struct, array_like=True, gc=False):
    """Something that happened to a request, in seconds on the core's monotonic clock.

    vLLM: v1/engine/__init__.py::EngineCoreEvent
    """

    type: EngineCoreEventType
    timestamp: float


class PrefillStats(msgspec.Struct, array_like=True, gc=False):
    """How a prompt was filled: tokens computed and tokens taken from the prefix cache.

    vLLM: v1/metrics/stats.py::PrefillStats (simplified: no external cache)
    """

    num_prompt_tokens: int
    num_computed_tokens: int
    num_cached_tokens: int


class LogprobsLists(msgspec.Struct, array_like=True, gc=False):
    """Candidates of some places in a row, k a place; column 0 is the token that was chosen (or stood in the prompt).

    vLLM: v1/outputs.py::LogprobsLists
    """

    logprob_token_ids: np.ndarray  # int32[places, k + 1]
    logprobs: np.ndarray  # float32[places, k + 1]
    sampled_token_ranks: np.ndarray  # int64[places], 1 is the likeliest

    def slice_request(self, row: int) -> "LogprobsLists":
        """The candidates of one place."""
        place = slice(row, row + 1)
        return LogprobsLists(self.logprob_token_ids[place], self.logprobs[place], self.sampled_token_ranks[place])


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A request on its way to the core.

    vLLM: v1/engine/__init__.py::EngineCoreRequest (simplified: text only, one client)
    """

    request_id: str  # internal: the external id and eight hex digits
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time: float  # wall clock of the caller's process, seconds
    cache_salt: str | None = None
    priority: int = 0  # smaller goes first, under scheduling_policy="priority"
    external_req_id: str | None = None


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step brought for one request.

    vLLM: v1/engine/__init__.py::EngineCoreOutput
    """

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    new_prompt_logprobs: LogprobsLists | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    events: list[EngineCoreEvent] | None = None
    prefill_stats: PrefillStats | None = None  # once in a request's life, with its first token

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


class UtilityOutput(msgspec.Struct, array_like=True, gc=False):
    """The answer to a utility call.

    vLLM: v1/engine/__init__.py::UtilityOutput
    """

    call_id: int
    failure_message: str | None = None
    result: Any = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The message of one step, or the answer to a utility call.

    vLLM: v1/engine/__init__.py::EngineCoreOutputs
    """

    outputs: list[EngineCoreOutput] = []
    timestamp: float = 0.0  # the core's monotonic clock, seconds
    utility_output: UtilityOutput | None = None

    def __post_init__(self) -> None:
        if self.timestamp == 0.0:
            self.timestamp = time.monotonic()


class EngineCoreReadyResponse(msgspec.Struct):
    """The first thing the core says on the input socket: what it has made of the config.

    vLLM: v1/engine/__init__.py::EngineCoreReadyResponse
    """

    max_model_len: int
    num_gpu_blocks: int
    dtype: str
    device: str
    attention_backend: str
    attention_fallback: str | None = None  # why it is not the fastest for this device
