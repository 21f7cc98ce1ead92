"""SamplingParams by itself: defaults, what becomes of its fields, and how it crosses the process boundary.

Its limits are tested with the engine (tests/engine/test_bad_input.py).
"""

import math
import pickle

import msgspec
import pytest

from minivllm.errors import InputError, ModelError, UnknownNameError
from minivllm.sampling_params import NOT_COVERED, RequestOutputKind, SamplingParams, SamplingType


def test_defaults_are_vllm_s() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p) == (1, 1.0, 1.0, 0, 0.0)
    assert (params.max_tokens, params.min_tokens, params.seed) == (16, 0, None)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (0.0, 0.0, 1.0)
    assert params.stop == [] and params.stop_token_ids == []
    assert params.detokenize and params.skip_special_tokens and params.spaces_between_special_tokens


@pytest.mark.parametrize(
    ("temperature", "becomes", "kind"),
    [
        (0, 0, SamplingType.GREEDY),
        (1e-9, 0.01, SamplingType.RANDOM),
        (0.009, 0.01, SamplingType.RANDOM),
        (0.01, 0.01, SamplingType.RANDOM),
        (2.0, 2.0, SamplingType.RANDOM),
    ],
)
def test_small_temperatures(temperature: float, becomes: float, kind: SamplingType) -> None:
    params = SamplingParams(temperature=temperature)
    assert params.temperature == becomes and params.sampling_type is kind


def test_greedy_turns_the_cuts_off() -> None:
    params = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.2)
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)


def test_seed_minus_one_is_no_seed() -> None:
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(seed=0).sampling_type is SamplingType.RANDOM_SEED
    assert SamplingParams(seed=-2).sampling_type is SamplingType.RANDOM_SEED


def test_one_stop_is_a_list_of_one() -> None:
    assert SamplingParams(stop="end").stop == ["end"]
    assert SamplingParams(stop=("a", "b")).stop == ["a", "b"]


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e10, -1e10, -math.inf, 7])
def test_a_bias_may_forbid_but_not_be_infinite(value: float) -> None:
    assert SamplingParams(logit_bias={3: value}).logit_bias == {3: value}


def test_prompt_logprobs_leave_the_prefix_cache_alone() -> None:
    assert SamplingParams().skip_reading_prefix_cache is False
    assert SamplingParams(prompt_logprobs=0).skip_reading_prefix_cache is True
    assert SamplingParams(prompt_logprobs=0, skip_reading_prefix_cache=False).skip_reading_prefix_cache is False


# Of vLLM 0.22.0's SamplingParams, in their order; the two that are filled in and not asked for are left out.
VLLM_FIELDS = [
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "logprob_token_ids",
    "flat_logprobs",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "output_kind",
    "skip_clone",
    "structured_outputs",
    "logit_bias",
    "allowed_token_ids",
    "extra_args",
    "routed_experts_prompt_start",
    "bad_words",
    "skip_reading_prefix_cache",
    "thinking_token_budget",
    "repetition_detection",
]


def test_the_fields_are_vllm_s_in_their_order() -> None:
    assert [name for name in SamplingParams.__struct_fields__ if not name.startswith("_")] == VLLM_FIELDS
    assert SamplingParams(3, 0.5).presence_penalty == 0.5, "by their order too"
    params = SamplingParams()
    assert params.bad_words == SamplingParams(bad_words=None).bad_words == []
    assert {name: getattr(params, name) for name in NOT_COVERED} == dict.fromkeys(NOT_COVERED) | {
        "flat_logprobs": False,
        "routed_experts_prompt_start": 0,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprob_token_ids", [1]),
        ("logprob_token_ids", []),
        ("flat_logprobs", True),
        ("flat_logprobs", 0),
        ("structured_outputs", {"json": "{}"}),
        ("extra_args", {}),
        ("routed_experts_prompt_start", 1),
        ("routed_experts_prompt_start", False),
        ("thinking_token_budget", 0),
        ("repetition_detection", object),
    ],
)
def test_what_is_not_covered_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        SamplingParams(**{field: value})
    assert f"{field}={value!r} is not covered" in str(caught.value)


def test_from_optional() -> None:
    """None stands for a default; biases as OpenAI's clients write them."""
    nothing = dict.fromkeys(("n", "temperature", "top_p", "presence_penalty", "stop", "max_tokens", "seed"))
    assert SamplingParams.from_optional(**nothing) == SamplingParams(max_tokens=None)
    assert SamplingParams.from_optional() == SamplingParams()
    params = SamplingParams.from_optional(temperature=0.5, stop="a", logit_bias={"5": 300, 6: -1000, "7": 1.5})
    assert params == SamplingParams(temperature=0.5, stop="a", logit_bias={5: 100.0, 6: -100.0, 7: 1.5})
    with pytest.raises(InputError, match="logit_bias="):
        SamplingParams.from_optional(logit_bias={"a": 1})
    with pytest.raises(UnknownNameError, match="temprature"):
        SamplingParams.from_optional(temprature=1)


@pytest.mark.parametrize(
    ("fields", "length"),
    [({}, 0), ({"stop": "abc"}, 2), ({"stop": ["a", "bc"]}, 1), ({"stop": "a", "include_stop_str_in_output": True}, 0)],
)
def test_characters_held_back(fields: dict[str, object], length: int) -> None:
    assert SamplingParams(**fields).output_text_buffer_length == length


# ---------------------------------------------------------------------- stop tokens


@pytest.mark.parametrize(
    ("fields", "eos", "others", "masked", "stops"),
    [
        ({}, 2, [], {2}, []),
        ({}, 2, [2, 5], {2, 5}, [5]),
        ({}, None, [5, 6], {5, 6}, [5, 6]),
        ({"stop_token_ids": [9, 5]}, 2, [5], {2, 5, 9}, [5, 9]),
        ({"ignore_eos": True, "stop_token_ids": [9]}, 2, [2, 5], {2, 5, 9}, [9]),
    ],
)
def test_stop_tokens(
    fields: dict[str, object], eos: int | None, others: list[int], masked: set[int], stops: list[int]
) -> None:
    params = SamplingParams(**fields)
    params.set_stop_tokens(eos, others)
    assert params._all_stop_token_ids == masked
    assert params.stop_token_ids == stops
    assert params._eos_token_id == (None if fields.get("ignore_eos") else eos)


def test_a_copy_shares_nothing() -> None:
    params = SamplingParams(stop=["a"], stop_token_ids=[1], logit_bias={1: 1.0}, bad_words=["b"], allowed_token_ids=[1])
    copy = params.clone()
    assert copy == params
    for field in ("stop", "stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "_all_stop_token_ids"):
        assert getattr(copy, field) is not getattr(params, field)


def test_a_copy_is_checked_anew() -> None:
    params = SamplingParams()
    params.top_p = 7
    with pytest.raises(InputError, match="top_p=7"):
        params.clone()


# ---------------------------------------------------------------------- the wire


def test_only_what_differs_crosses() -> None:
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(SamplingParams(temperature=0.5)))
    assert "temperature" in encoded and "top_p" not in encoded and "n" not in encoded
    params = SamplingParams(temperature=0.5, seed=3, stop=["x"], output_kind=RequestOutputKind.FINAL_ONLY)
    params.set_stop_tokens(2, [5])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_errors_are_values_that_python_knows() -> None:
    assert issubclass(InputError, ValueError) and issubclass(ModelError, ValueError)
    assert str(pickle.loads(pickle.dumps(InputError("a=1 must be 2.")))) == "a=1 must be 2."
