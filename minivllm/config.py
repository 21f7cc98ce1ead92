"""EngineConfig: every setting of the engine, in one frozen struct.

Owns: names, defaults, limits. It is never mutated: `resolved()` returns a new one in which every `None` that
stands for "from the model" or "from the budget" has its value.
Must not know: torch, transformers, or what the model is.

The defaults are those of vLLM 0.22.0 with these exceptions (docs/differences.md): the token budget is 2048, and the
KV cache on a CPU takes 256 MiB instead of 92 % of the machine's memory.
"""

import difflib
import os
from typing import Any, Literal, get_args

import msgspec

from minivllm.errors import InputError, UnknownNameError

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda", "mps"]
AttentionBackendName = Literal["auto", "torch", "fast", "triton", "reference"]
SchedulingPolicy = Literal["fcfs", "priority"]
TraceClock = Literal["monotonic", "logical"]

DEFAULT_MAX_NUM_BATCHED_TOKENS = 2048
DEFAULT_MAX_NUM_SEQS = 256
MAX_INT = 2**63 - 1  # what can be sent to the core
CPU_KV_CACHE_BYTES = 256 * 1024 * 1024


WATCHABLE = ("query", "key", "value", "output")  # of attention, by token


class TraceWatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which values a trace at detail 2 has, beside the likeliest tokens of each row. Layers, heads and positions count
    from 0, steps from 1. Raises InputError for anything else.

    vLLM: none, vLLM writes no trace
    """

    steps: tuple[int, ...] | None = None  # of the core; None: all
    layers: tuple[int, ...] = (0,)  # whose tensors, and whose programs in Triton's interpreter
    positions: tuple[int, ...] = ()  # tokens of which these are recorded
    tensors: tuple[str, ...] = WATCHABLE
    kv_heads: tuple[int, ...] = ()  # heads of which all K and V that a row reads are recorded
    early_layers: tuple[int, ...] = ()  # after which the head is read, as if they were the last
    weights_on: tuple[int, ...] = ()  # positions: the attention that each row's last token pays to them, in every layer

    def __post_init__(self) -> None:
        if not isinstance(self.tensors, tuple) or set(self.tensors) - set(WATCHABLE):
            raise InputError(f"tensors={self.tensors!r} of trace_watch must be a tuple of {', '.join(WATCHABLE)}.")
        for name in ("steps", "layers", "positions", "kv_heads", "early_layers", "weights_on"):
            values = getattr(self, name)
            if values is None and name == "steps":
                continue
            if not isinstance(values, tuple) or any(isinstance(v, bool) or not isinstance(v, int) for v in values):
                raise InputError(f"{name}={values!r} of trace_watch must be a tuple of whole numbers.")
            if any(value < (name == "steps") for value in values):
                raise InputError(f"{name}={values!r} of trace_watch counts from {int(name == 'steps')}.")


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Units: tokens, blocks, bytes; a block holds `block_size` tokens of one request.

    Raises InputError with the name, the value and the limit.

    vLLM: config/vllm.py::VllmConfig (simplified: one struct in place of model, cache, scheduler and parallel config)
    """

    # the model
    model: str | None = None  # a Hugging Face folder or hub id; None: the default model
    tokenizer: str | None = None  # None: the model's
    dtype: DType = "auto"  # auto: what config.json says; bfloat16 for float32 weights
    device: Device = "auto"
    attention_backend: AttentionBackendName = "auto"
    max_model_len: int | None = None  # tokens of one request, prompt and output; None: the model's limit, or what fits
    seed: int = 0  # of every draw that has no seed of its own
    enforce_eager: bool = True  # accepted for vLLM's sake: there are no CUDA graphs here

    # the KV cache
    block_size: int = 16
    num_gpu_blocks_override: int | None = None  # blocks, the null block included
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92  # share of a GPU's memory; a CPU takes CPU_KV_CACHE_BYTES
    enable_prefix_caching: bool = True
    hash_seed: str | None = None  # None: a random root, so that block hashes differ from process to process

    # the scheduler
    max_num_seqs: int | None = None  # seats; None: 256, or the token budget if that is smaller
    max_num_batched_tokens: int | None = None  # token budget of a step; None: 2048, or max_model_len without chunking
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0  # tokens of one request in one step; 0: no limit
    scheduling_policy: SchedulingPolicy = "fcfs"
    scheduler_reserve_full_isl: bool = True  # admit a request only if its whole present sequence fits

    # the output
    max_logprobs: int = 20
    skip_tokenizer_init: bool = False  # prompts are token ids and no text comes back

    # how it runs
    multiprocess: bool | None = None  # None: MINIVLLM_ENABLE_V1_MULTIPROCESSING, which is 1 unless set to 0
    trace: str | None = None  # path of the .jsonl file
    trace_detail: int = 0
    trace_clock: TraceClock = "monotonic"
    trace_watch: TraceWatch = TraceWatch()  # what detail 2 looks at
    parts: dict[str, str] = {}  # components taken from elsewhere, see parts.py
    # look at slots, positions, block tables and lengths before the kernels do, once a step; parts bring it with them
    check_steps: bool = msgspec.field(default_factory=lambda: os.environ.get("MINIVLLM_CHECK", "0") not in ("", "0"))

    def __post_init__(self) -> None:
        for field in ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes"):
            self._check_int(field, minimum=1)
        self._check_int("num_gpu_blocks_override", minimum=2, note="block 0 is the null block, which no request gets")
        self._check_int("long_prefill_token_threshold", minimum=0, note="0 means no limit")
        self._check_int("max_logprobs", minimum=-1, note="-1 means no limit")
        self._check_int("seed", minimum=-MAX_INT - 1)
        for field, choices in (
            ("dtype", DType),
            ("device", Device),
            ("attention_backend", AttentionBackendName),
            ("scheduling_policy", SchedulingPolicy),
            ("trace_clock", TraceClock),
            ("trace_detail", Literal[0, 1, 2]),
        ):
            if getattr(self, field) not in get_args(choices):
                names = ", ".join(map(str, get_args(choices)))
                raise InputError(f"{field}={getattr(self, field)!r} is not one of {names}.")
        self._check_types()
        if None not in (self.max_num_seqs, self.max_num_batched_tokens):
            self._check_budget(self.max_num_seqs, self.max_num_batched_tokens)

    @classmethod
    def from_kwargs(cls, **settings: Any) -> "EngineConfig":
        """Build a config; an unknown name is an UnknownNameError that offers the nearest known one."""
        for name in settings:
            if name not in cls.__struct_fields__:
                near = difflib.get_close_matches(name, cls.__struct_fields__, n=1)
                hint = f" Did you mean {near[0]}?" if near else f" Known settings: {', '.join(cls.__struct_fields__)}."
                raise UnknownNameError(f"Unknown setting {name!r}.{hint}")
        return cls(**{name: _plain(value) for name, value in settings.items()})

    def resolved(self, max_model_len: int) -> "EngineConfig":
        """The config with `max_model_len`, seats and budget filled in.

        vLLM: engine/arg_utils.py::EngineArgs._set_default_max_num_seqs_and_batched_tokens_args
        """
        budget = self.max_num_batched_tokens
        if budget is None:
            budget = DEFAULT_MAX_NUM_BATCHED_TOKENS
            if not self.enable_chunked_prefill:
                budget = max(budget, max_model_len)
        max_num_seqs = self.max_num_seqs or min(DEFAULT_MAX_NUM_SEQS, budget)
        self._check_budget(max_num_seqs, budget)
        if not self.enable_chunked_prefill and budget < max_model_len:
            raise InputError(
                f"max_num_batched_tokens={budget} is smaller than max_model_len={max_model_len} with chunked prefill "
                "off: a long prompt could never be scheduled. Raise max_num_batched_tokens, lower max_model_len, or "
                "leave enable_chunked_prefill on."
            )
        if self.long_prefill_token_threshold > max_model_len:
            raise InputError(
                f"long_prefill_token_threshold={self.long_prefill_token_threshold} is larger than "
                f"max_model_len={max_model_len}. Lower it, or use 0 for no limit."
            )
        return msgspec.structs.replace(
            self, max_model_len=max_model_len, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
        )

    def _check_types(self) -> None:
        for field in ("model", "tokenizer", "hash_seed", "trace"):
            if not isinstance(getattr(self, field), str | None):
                raise InputError(f"{field}={getattr(self, field)!r} must be a string.")
        for field in (
            "enforce_eager",
            "enable_prefix_caching",
            "enable_chunked_prefill",
            "scheduler_reserve_full_isl",
            "skip_tokenizer_init",
            "check_steps",
        ):
            if not isinstance(getattr(self, field), bool):
                raise InputError(f"{field}={getattr(self, field)!r} must be True or False.")
        if not isinstance(self.parts, dict) or not all(isinstance(t, str) for t in (*self.parts, *self.parts.values())):
            raise InputError(
                f"parts={self.parts!r} must map names of seams to texts, as {{'scheduler': 'file.py:Scheduler'}}."
            )
        if not isinstance(self.trace_watch, TraceWatch):
            raise InputError(f"trace_watch={self.trace_watch!r} must be a TraceWatch.")
        if not isinstance(self.multiprocess, bool | None):
            raise InputError(f"multiprocess={self.multiprocess!r} must be True, False or None (the environment says).")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise InputError(f"gpu_memory_utilization={share!r} must be a number above 0 and at most 1.")

    @staticmethod
    def _check_budget(max_num_seqs: int, budget: int) -> None:
        if budget < max_num_seqs:
            raise InputError(
                f"max_num_batched_tokens={budget} is smaller than max_num_seqs={max_num_seqs}: not every running "
                "request could get its one token a step. Raise max_num_batched_tokens or lower max_num_seqs."
            )

    def _check_int(self, field: str, minimum: int, note: str = "") -> None:
        value = getattr(self, field)
        if value is None and type(self).__struct_defaults__[self.__struct_fields__.index(field)] is None:
            return
        note = f" ({note})" if note else ""
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{field}={value!r} must be an integer{note}.")
        if value < minimum:
            raise InputError(f"{field}={value} must be at least {minimum}{note}.")
        if value > MAX_INT:
            raise InputError(f"{field}={value} must be at most {MAX_INT}.")


def cdiv(a: int, b: int) -> int:
    """ceil(a / b) for positive b.

    vLLM: utils/math_utils.py::cdiv
    """
    return -(-a // b)


def _plain(value: Any) -> Any:
    """A path as text, and a number of numpy's as Python's: what can be sent to the core."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") else value
