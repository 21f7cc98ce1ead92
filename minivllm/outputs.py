"""What the caller gets back: RequestOutput and what is inside it. The fields are vLLM's, also those that are None
always, since what they are for is not covered (adapters, encoders, mixtures of experts, caches elsewhere).
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Logprob:
    """One candidate at one place. `rank` 1 is the likeliest token; `logprob` is of the raw logits.

    vLLM: logprobs.py::Logprob
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened to a request, in seconds.

    `arrival_time` is the caller's wall clock; the `_ts` fields are the monotonic clock of the engine core, so only
    their differences mean something. A field is 0.0 until the thing has happened.

    vLLM: v1/metrics/stats.py::RequestStateStats (filled always, not only with log_stats; num_preemptions
    and finished_time are ours)
    """

    arrival_time: float = 0.0
    queued_ts: float = 0.0
    scheduled_ts: float = 0.0
    first_token_ts: float = 0.0
    last_token_ts: float = 0.0
    num_generation_tokens: int = 0
    num_preemptions: int = 0
    first_token_latency: float = 0.0  # arrival to first token, both on the caller's wall clock
    is_corrupted: bool = False  # vLLM may count NaNs among the logits; here they bring a warning
    finished_time: float = 0.0  # the caller's wall clock

    @property
    def queued_time(self) -> float:
        """Seconds from queued to first scheduled."""
        return self.scheduled_ts - self.queued_ts

    @property
    def ttft(self) -> float:
        """Time to first token, in seconds, from arrival to the caller's sight of it."""
        return self.first_token_latency

    @property
    def tpot(self) -> float:
        """Time per output token after the first, in seconds; 0.0 for a single token."""
        if self.num_generation_tokens < 2:
            return 0.0
        return (self.last_token_ts - self.first_token_ts) / (self.num_generation_tokens - 1)


@dataclass(slots=True)
class CompletionOutput:
    """One answer. `token_ids` are never cut at a stop string, `text` is.

    finish_reason: None while it runs, else "stop", "length", "abort" or "error".
    stop_reason: the stop string or stop token id that ended it; None for the end-of-text token.

    vLLM: outputs.py::CompletionOutput
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    routed_experts: None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """The answer to one prompt: `n` completions.

    `request_id` is the number of the prompt in this LLM's life, as text. `num_cached_tokens` counts the prompt tokens
    whose K and V came from the prefix cache.

    vLLM: outputs.py::RequestOutput
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics = field(default_factory=RequestMetrics)
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: int | None = None
    kv_transfer_params: None = None
