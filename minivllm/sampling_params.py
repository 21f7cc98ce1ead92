"""SamplingParams: how one request's tokens are chosen and when it ends. The fields and limits are vLLM's.

It crosses the process boundary as a map of the fields that differ from their defaults.
"""

import difflib
import math
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec

from minivllm.errors import InputError, UnknownNameError

SAMPLING_EPS = 1e-5  # below it a temperature means greedy
MIN_TEMPERATURE = 0.01  # anything between 0 and this is raised to it
MAX_N = 16384
MAX_INT = 2**63 - 1
HUGE = 1e10  # biases and penalties beyond it would make infinities of float32 logits
NEVER_NONE = ("n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p")
NOT_COVERED = (
    "logprob_token_ids",
    "flat_logprobs",
    "structured_outputs",
    "extra_args",
    "routed_experts_prompt_start",
    "thinking_token_budget",
    "repetition_detection",
)
SWITCHES = (
    "ignore_eos",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "skip_clone",
)


class SamplingType(IntEnum):
    """vLLM: sampling_params.py::SamplingType"""

    GREEDY = 0
    RANDOM = 1
    RANDOM_SEED = 2


class RequestOutputKind(IntEnum):
    """CUMULATIVE: everything so far, at each step. FINAL_ONLY: one output, at the end.

    vLLM: sampling_params.py::RequestOutputKind (simplified: DELTA is for servers)
    """

    CUMULATIVE = 0
    FINAL_ONLY = 2


class _Checked(type(msgspec.Struct)):
    """Turns an unknown keyword into an error that offers the nearest known one."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        public = [f for f in cls.__struct_fields__ if not f.startswith("_")]
        for name in fields:
            if name not in cls.__struct_fields__:
                near = difflib.get_close_matches(name, public, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"Known parameters: {', '.join(public)}."
                raise UnknownNameError(f"Unknown sampling parameter {name!r}. {hint}")
        return super().__call__(*args, **fields)


class SamplingParams(msgspec.Struct, omit_defaults=True, metaclass=_Checked):
    """How to sample and when to stop. Raises InputError for a value outside its limits.

    temperature 0 means greedy, anything between that and 0.01 becomes 0.01. top_k 0 or -1 and top_p 1.0 are off.
    The first `min_tokens` tokens can't be stop tokens. A fixed `seed` gives the same tokens in any company.
    Fields of vLLM's that are not covered (NOT_COVERED) may have their defaults and nothing else.

    vLLM: sampling_params.py::SamplingParams (simplified: see NOT_COVERED; clone() always copies)
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: as many as max_model_len leaves
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    skip_clone: bool = False  # accepted for vLLM's sake: a copy is made in any case
    structured_outputs: None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: None = None
    routed_experts_prompt_start: int = 0
    bad_words: list[str] | None = []
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: None = None
    repetition_detection: None = None

    # filled in by InputProcessor on its own copy, never by the caller
    _eos_token_id: int | None = None  # None with ignore_eos
    _all_stop_token_ids: set[int] = msgspec.field(default_factory=set)  # masked while min_tokens is not reached
    _bad_words_token_ids: list[list[int]] | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not name.startswith("_"):
                setattr(self, name, _plain(getattr(self, name)))
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        self.stop = [] if self.stop is None else self.stop
        self.stop_token_ids = [] if self.stop_token_ids is None else self.stop_token_ids
        self.bad_words = [] if self.bad_words is None else self.bad_words
        self.check()
        if self.seed == -1:
            self.seed = None
        if 0 < self.temperature < MIN_TEMPERATURE:
            self.temperature = MIN_TEMPERATURE
        if self.sampling_type is SamplingType.GREEDY:
            if self.n > 1:
                raise InputError(
                    f"n={self.n} with temperature={self.temperature:g}: greedy sampling gives {self.n} equal answers. "
                    "Use n=1, or a temperature above 0."
                )
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0
        self._all_stop_token_ids = set(self._all_stop_token_ids) | set(self.stop_token_ids)
        if self.skip_reading_prefix_cache is None:
            # prompt logprobs need the logits of every prompt token, so none may come from the cache
            self.skip_reading_prefix_cache = self.prompt_logprobs is not None

    @staticmethod
    def from_optional(**fields: Any) -> "SamplingParams":
        """Parameters of a request of OpenAI's form: None stands for a default where it would be no value, ids of
        logit_bias may be texts, and its biases are cut to -100 to 100.

        vLLM: sampling_params.py::SamplingParams.from_optional
        """
        bias = fields.get("logit_bias")
        if isinstance(bias, dict):
            try:
                fields["logit_bias"] = {int(token): min(100.0, max(-100.0, value)) for token, value in bias.items()}
            except (TypeError, ValueError):
                raise InputError(f"logit_bias={bias!r} must be a dict of token id to number.") from None
        return SamplingParams(**{k: v for k, v in fields.items() if v is not None or k not in NEVER_NONE})

    @property
    def output_text_buffer_length(self) -> int:
        """Characters of the text that are held back while it may end in the beginning of a stop string."""
        return max(map(len, self.stop)) - 1 if self.stop and not self.include_stop_str_in_output else 0

    @property
    def sampling_type(self) -> SamplingType:
        """vLLM: sampling_params.py::SamplingParams.sampling_type"""
        if self.temperature < SAMPLING_EPS:
            return SamplingType.GREEDY
        return SamplingType.RANDOM if self.seed is None else SamplingType.RANDOM_SEED

    def clone(self) -> "SamplingParams":
        """A copy that shares no list with the caller's object. Checked anew: a field may have been changed.

        vLLM: sampling_params.py::SamplingParams.clone
        """
        return type(self)(**msgspec.structs.asdict(self))

    def set_stop_tokens(self, eos_token_id: int | None, other_eos_token_ids: Sequence[int] = ()) -> None:
        """Fill in the end-of-text ids: the tokenizer's, and the others that the model's authors name.

        The first ends a request without a stop_reason, the others as stop tokens do. All of them are masked until
        min_tokens is reached, even with ignore_eos.

        vLLM: sampling_params.py::SamplingParams.update_from_generation_config
        """
        others = [token for token in other_eos_token_ids if token != eos_token_id]
        self._all_stop_token_ids.update(others)
        if eos_token_id is not None:
            self._all_stop_token_ids.add(eos_token_id)
        if not self.ignore_eos:
            self._eos_token_id = eos_token_id
            self.stop_token_ids = sorted({*self.stop_token_ids, *others})

    def check(self) -> None:
        """Raise InputError for a value outside its limits.

        vLLM: sampling_params.py::SamplingParams._verify_args"""
        self._number("n", minimum=1, maximum=MAX_N, integer=True)
        self._number("presence_penalty", minimum=-2, maximum=2)
        self._number("frequency_penalty", minimum=-2, maximum=2)
        self._number("repetition_penalty", minimum=1 / HUGE, maximum=HUGE, note="1.0 turns it off")
        self._number("temperature", minimum=0, maximum=HUGE, note="0 means greedy")
        self._number("top_p", above=0, maximum=1, note="1.0 turns it off")
        self._number("top_k", minimum=-1, integer=True, note="0 or -1 turns it off")
        self._number("min_p", minimum=0, maximum=1, note="0 turns it off")
        self._number("min_tokens", minimum=0, integer=True)
        if self.seed is not None:
            self._number("seed", minimum=-MAX_INT - 1, maximum=MAX_INT - self.n + 1, integer=True)
        if self.max_tokens is not None:
            self._number("max_tokens", minimum=1, integer=True, note="None means up to max_model_len")
            if self.min_tokens > self.max_tokens:
                raise InputError(
                    f"min_tokens={self.min_tokens} is larger than max_tokens={self.max_tokens}. Lower min_tokens."
                )
        for field in ("logprobs", "prompt_logprobs"):
            if getattr(self, field) is not None:
                self._number(field, minimum=-1, integer=True, note="-1 means the whole vocabulary")
        self._check_stops()
        self._check_token_sets()
        self._check_switches()

    def _check_stops(self) -> None:
        if not isinstance(self.stop, list) or not all(is_text(text) and text for text in self.stop):
            raise InputError(f"stop={self.stop!r} must be a string that is not empty, or a list of them.")
        if self.stop and not self.detokenize:
            raise InputError(
                f"stop={self.stop!r} with detokenize=False: stop strings are looked for in the text. "
                "Use stop_token_ids, or leave detokenize on."
            )
        self._ids("stop_token_ids", self.stop_token_ids)

    def _check_token_sets(self) -> None:
        if self.allowed_token_ids is not None:
            if not self.allowed_token_ids:
                raise InputError("allowed_token_ids=[] allows no token at all. Leave it out to allow every token.")
            self._ids("allowed_token_ids", self.allowed_token_ids)
        if self.logit_bias is not None:
            if not isinstance(self.logit_bias, dict):
                raise InputError(f"logit_bias={self.logit_bias!r} must be a dict of token id to number.")
            self._ids("logit_bias", list(self.logit_bias))
            for token, bias in self.logit_bias.items():
                if not _is_number(bias) or not (-HUGE <= bias <= HUGE or bias == -math.inf):
                    raise InputError(
                        f"logit_bias[{token}]={bias!r} must be a number from {-HUGE:g} to {HUGE:g}, or -inf, which "
                        "forbids the token."
                    )
        if not isinstance(self.bad_words, list) or not all(is_text(word) and word.strip() for word in self.bad_words):
            raise InputError(f"bad_words={self.bad_words!r} must be a list of strings that are more than blanks.")

    def _check_switches(self) -> None:
        for field in NOT_COVERED:
            default = type(self).__struct_defaults__[self.__struct_fields__.index(field)]
            if getattr(self, field) != default or isinstance(getattr(self, field), bool) != isinstance(default, bool):
                raise InputError(f"{field}={getattr(self, field)!r} is not covered by this engine. Leave it out.")
        for field in SWITCHES:
            if not isinstance(getattr(self, field), bool):
                raise InputError(f"{field}={getattr(self, field)!r} must be True or False.")
        if not isinstance(self.skip_reading_prefix_cache, bool | None):
            raise InputError(f"skip_reading_prefix_cache={self.skip_reading_prefix_cache!r} must be True or False.")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise InputError(f"output_kind={self.output_kind!r} must be a RequestOutputKind.")

    @staticmethod
    def _ids(field: str, ids: list[int]) -> None:
        if not isinstance(ids, list):
            raise InputError(f"{field}={ids!r} must be a list of token ids.")
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise InputError(f"{field} holds {token!r}, which is not a token id (an integer from 0).")

    def _number(
        self,
        field: str,
        minimum: float | None = None,
        maximum: float | None = None,
        above: float | None = None,
        integer: bool = False,
        note: str = "",
    ) -> None:
        value = getattr(self, field)
        if maximum is None and _is_number(value) and value > MAX_INT:
            maximum = MAX_INT  # the most that can be sent to the core
        wanted = "an integer" if integer else "a number"
        limits = [f"at least {minimum}"] if minimum is not None else []
        limits += [f"above {above}"] if above is not None else []
        limits += [f"at most {maximum}"] if maximum is not None else []
        inside = _is_number(value) and (isinstance(value, int) or not integer)
        inside = inside and (minimum is None or value >= minimum) and (above is None or value > above)
        inside = inside and (maximum is None or value <= maximum)
        if not inside:
            rule = f"{wanted}{', ' if limits else ''}{' and '.join(limits)}"
            raise InputError(f"{field}={value!r} must be {rule}{f' ({note})' if note else ''}.")


def is_text(value: Any) -> bool:
    """Whether a value is a string that can be written as UTF-8, which half of a surrogate pair can't."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _is_number(value: Any) -> bool:
    """NaN is no number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy or torch as Python's own, which alone can be sent to the core; lists as new lists."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
