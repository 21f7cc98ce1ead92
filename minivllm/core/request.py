"""Request: all that the core knows of one request; and the rules by which it ends.

Owns: its tokens, its counters, its status, its block hashes. The scheduler changes the counters and the status.
Must not know: blocks, queues, text.

Two counters tell a request's whole state: `num_tokens`, the tokens that exist, and `num_computed_tokens`, those whose
K and V are in the cache or will be after the step that is planned. There is no prefill and no decode, only the
difference of the two.
"""

from collections.abc import Callable
from enum import IntEnum, auto

from minivllm.core.block_hash import BlockHasher, Hash
from minivllm.engine.messages import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreRequest,
    FinishReason,
    PrefillStats,
)
from minivllm.sampling_params import SamplingParams


class RequestStatus(IntEnum):
    """Everything after PREEMPTED is an end.

    vLLM: v1/request.py::RequestStatus (simplified: no grammar, remote cache or streaming input to wait for)
    """

    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED_STOPPED = auto()
    FINISHED_LENGTH_CAPPED = auto()
    FINISHED_ABORTED = auto()
    FINISHED_ERROR = auto()

    def __str__(self) -> str:
        return self.name

    @property
    def is_finished(self) -> bool:
        return self > RequestStatus.PREEMPTED


_FINISHED_REASON_MAP = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
}


class Request:
    """vLLM: v1/request.py::Request (simplified: text only, no speculative tokens)"""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling_params: SamplingParams,
        arrival_time: float,
        priority: int = 0,
        cache_salt: str | None = None,
        block_hasher: BlockHasher | None = None,
    ) -> None:
        # fixed
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.num_prompt_tokens = len(prompt_token_ids)
        self.sampling_params = sampling_params
        self.eos_token_id = sampling_params._eos_token_id  # None with ignore_eos
        self.max_tokens = sampling_params.max_tokens
        self.arrival_time = arrival_time
        self.priority = priority
        self.cache_salt = cache_salt
        # written by the scheduler
        self.status = RequestStatus.WAITING
        self.stop_reason: int | str | None = None
        self.num_computed_tokens = 0
        self.num_preemptions = 0
        self.prefill_stats: PrefillStats | None = None
        self.prefill_stats_sent = False
        self.events: list[EngineCoreEvent] = []
        # grown by append_output_token_ids
        self.output_token_ids: list[int] = []
        self.all_token_ids = list(prompt_token_ids)
        self.block_hashes: list[Hash] = []
        self._block_hasher = block_hasher
        if block_hasher is not None:
            block_hasher(self.block_hashes, self.all_token_ids, cache_salt)

    @classmethod
    def from_engine_core_request(cls, request: EngineCoreRequest, block_hasher: BlockHasher | None) -> "Request":
        """vLLM: v1/request.py::Request.from_engine_core_request"""
        return cls(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling_params=request.sampling_params,
            arrival_time=request.arrival_time,
            priority=request.priority,
            cache_salt=request.cache_salt,
            block_hasher=block_hasher,
        )

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def skip_reading_prefix_cache(self) -> bool:
        return bool(self.sampling_params.skip_reading_prefix_cache)

    @property
    def is_finished(self) -> bool:
        return self.status > RequestStatus.PREEMPTED

    def get_finished_reason(self) -> FinishReason | None:
        return _FINISHED_REASON_MAP[self.status] if self.is_finished else None

    def append_output_token_ids(self, token_id: int) -> None:
        """Add a sampled token; a block that becomes full gets its hash.

        vLLM: v1/request.py::Request.append_output_token_ids
        """
        self.output_token_ids.append(token_id)
        self.all_token_ids.append(token_id)
        if self._block_hasher is not None:
            self._block_hasher(self.block_hashes, self.all_token_ids, self.cache_salt)

    def record_event(self, event_type: EngineCoreEventType, timestamp: float) -> None:
        """vLLM: v1/request.py::Request.record_event"""
        self.events.append(EngineCoreEvent(event_type, timestamp))

    def take_events(self) -> list[EngineCoreEvent] | None:
        """The events since the last call; they ride on the next output.

        vLLM: v1/request.py::Request.take_events
        """
        if not self.events:
            return None
        events, self.events = self.events, []
        return events

    def set_prefill_stats(self, num_hit_tokens: int) -> None:
        """Note how the prompt is filled; the last note before the first token counts."""
        if not self.prefill_stats_sent:
            self.prefill_stats = PrefillStats(
                num_prompt_tokens=self.num_prompt_tokens,
                num_computed_tokens=self.num_prompt_tokens - num_hit_tokens,
                num_cached_tokens=num_hit_tokens,
            )

    def take_prefill_stats(self) -> PrefillStats | None:
        """The prefill statistics, once in a request's life.

        vLLM: v1/request.py::Request.take_prefill_stats
        """
        if self.prefill_stats_sent:
            return None
        stats, self.prefill_stats = self.prefill_stats, None
        self.prefill_stats_sent = True
        return stats

    def __lt__(self, other: "Request") -> bool:
        """Smaller goes first, under the priority policy.

        vLLM: v1/request.py::Request.__lt__
        """
        mine = (self.priority, self.arrival_time, self.request_id)
        return mine < (other.priority, other.arrival_time, other.request_id)

    def __repr__(self) -> str:
        return f"Request({self.request_id}, {self.status.name}, {self.num_computed_tokens}/{self.num_tokens} tokens)"


def check_stop(request: Request, max_model_len: int) -> bool:
    """Whether the request ends with its last token; sets its status and stop_reason.

    The order matters: min_tokens first, then the end-of-text token (stop_reason None), then stop ids, then lengths.

    vLLM: v1/core/sched/utils.py::check_stop (simplified: no repetition detection)
    """
    params, num_output_tokens = request.sampling_params, request.num_output_tokens
    if num_output_tokens < params.min_tokens:
        return False
    last_token_id = request.output_token_ids[-1]
    if last_token_id == request.eos_token_id:
        request.status = RequestStatus.FINISHED_STOPPED
        return True
    if last_token_id in params.stop_token_ids:
        request.status = RequestStatus.FINISHED_STOPPED
        request.stop_reason = last_token_id
        return True
    if num_output_tokens >= request.max_tokens or request.num_tokens >= max_model_len:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False


def update_request_with_output(
    request: Request,
    new_token_ids: list[int],
    max_model_len: int,
    check_stop: Callable[[Request, int], bool] = check_stop,
) -> tuple[list[int], bool]:
    """Append sampled tokens until one of them ends the request. Returns the tokens that count, and whether it ended.

    vLLM: v1/core/sched/scheduler.py::Scheduler._update_request_with_output
    """
    for count, token_id in enumerate(new_token_ids, start=1):
        request.append_output_token_ids(token_id)
        if check_stop(request, max_model_len):
            return new_token_ids[:count], True
    return new_token_ids, False
