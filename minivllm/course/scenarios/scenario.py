"""What a scenario is: its requests, its settings, what is recorded of it; and short ways to write one down."""

from dataclasses import dataclass, field
from typing import Any, Literal

from minivllm.config import TraceWatch
from minivllm.course.scenarios.cast import A_TOKEN_IDS, A, Messages
from minivllm.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a scenario. Steps count from 1 within the call that it belongs to."""

    messages: Messages
    params: dict[str, Any] = field(default_factory=dict)  # on top of temperature 0, max_tokens 24
    given: tuple[int, ...] = ()  # token ids of the answer's beginning, as part of the prompt
    cache_salt: str | None = None
    priority: int = 0
    before_step: int = 1  # when it arrives
    abort_before_step: int | None = None  # when its caller gives it up

    def sampling_params(self) -> SamplingParams:
        return SamplingParams(**{"temperature": 0, "max_tokens": 24, **self.params})


@dataclass(frozen=True, slots=True)
class Scenario:
    """What runs, and what it shows. `calls` follow one another, each when the one before has ended."""

    name: str
    shows: str  # one sentence for traces/README.md
    calls: tuple[tuple[Ask, ...], ...]
    settings: dict[str, Any] = field(default_factory=dict)  # on top of S0
    detail: int = 0
    watch: TraceWatch | None = None  # at detail 2; None: the default
    once: bool = False  # recorded once and not compared: it depends on the machine or on the pace
    clock: Literal["logical", "monotonic"] = "logical"
    multiprocess: bool = False
    nap_seconds: float = 0.0  # that the caller sleeps after adding its requests

    @property
    def needs_triton(self) -> bool:
        """It runs Triton's kernels, in the interpreter."""
        return self.settings.get("attention_backend") == "triton"


def in_words(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())


def one(messages: Messages, **params: Any) -> tuple[tuple[Ask, ...], ...]:
    return ((Ask(messages, params),),)


def together(*conversations: Messages) -> tuple[tuple[Ask, ...], ...]:
    return (tuple(Ask(messages) for messages in conversations),)


def step_7(**params: Any) -> tuple[tuple[Ask, ...], ...]:
    """Request A in the step in which it hesitates: its first six tokens are given."""
    return ((Ask(A, {"max_tokens": 1, **params}, given=A_TOKEN_IDS[:6]),),)


def in_turn(*conversations: Messages) -> tuple[tuple[Ask, ...], ...]:
    return tuple((Ask(messages),) for messages in conversations)


# Settings on top of S0.
NO_CACHE = {"enable_prefix_caching": False}
TIGHT = {"max_model_len": 96}
CROWD = {"max_num_batched_tokens": 4096, "max_num_seqs": 64, "num_gpu_blocks_override": 257}
