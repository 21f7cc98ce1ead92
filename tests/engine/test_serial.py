"""Messages to bytes and back, and what is refused."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from minivllm.config import EngineConfig
from minivllm.engine.handshake import ENGINE_IDENTITY
from minivllm.engine.messages import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
    LogprobsLists,
    PrefillStats,
    UtilityOutput,
)
from minivllm.engine.routing import request_frames
from minivllm.engine.serial import ZERO_COPY_THRESHOLD, MsgpackDecoder, MsgpackEncoder
from minivllm.sampling_params import SamplingParams

TEXT = st.text(max_size=20)
TOKEN_IDS = st.lists(st.integers(0, 2**31 - 1), max_size=30)
FLOATS = st.floats(allow_nan=False)


def round_trip(message: Any, message_type: Any = Any) -> Any:
    frames = [bytes(frame) for frame in MsgpackEncoder().encode(message)]
    return MsgpackDecoder(message_type).decode(frames)


@st.composite
def sampling_params(draw: st.DrawFn) -> SamplingParams:
    params = SamplingParams(
        n=draw(st.integers(1, 3)),
        temperature=draw(st.floats(0.1, 10)),
        top_p=draw(st.floats(0.1, 1)),
        top_k=draw(st.integers(-1, 1000)),
        seed=draw(st.none() | st.integers(-(2**63), 2**63 - 9)),
        stop=draw(st.none() | st.lists(st.text(min_size=1, max_size=9), max_size=3)),
        stop_token_ids=draw(st.none() | TOKEN_IDS),
        max_tokens=draw(st.none() | st.integers(1, 2**63 - 1)),
        logprobs=draw(st.none() | st.integers(-1, 20)),
        logit_bias=draw(st.none() | st.dictionaries(st.integers(0, 2**31 - 1), st.floats(-1e10, 1e10), max_size=4)),
        allowed_token_ids=draw(st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=4)),
        ignore_eos=draw(st.booleans()),
    )
    params.set_stop_tokens(draw(st.none() | st.integers(0, 99)), draw(st.lists(st.integers(0, 99), max_size=2)))
    return params


REQUESTS = st.builds(
    EngineCoreRequest,
    request_id=TEXT,
    prompt_token_ids=TOKEN_IDS,
    sampling_params=sampling_params(),
    arrival_time=FLOATS,
    cache_salt=st.none() | TEXT,
    priority=st.integers(-(2**63), 2**63 - 1),
    external_req_id=st.none() | TEXT,
)


@st.composite
def logprobs_lists(draw: st.DrawFn) -> LogprobsLists:
    shape = draw(st.tuples(st.integers(0, 40), st.integers(1, 9)))
    return LogprobsLists(
        logprob_token_ids=draw(st_numpy.arrays(np.int32, shape)),
        logprobs=draw(st_numpy.arrays(np.float32, shape, elements=st.floats(-99, 0, width=32))),
        sampled_token_ranks=draw(st_numpy.arrays(np.int64, shape[0])),
    )


OUTPUTS = st.builds(
    EngineCoreOutputs,
    outputs=st.lists(
        st.builds(
            EngineCoreOutput,
            request_id=TEXT,
            new_token_ids=TOKEN_IDS,
            new_logprobs=st.none() | logprobs_lists(),
            new_prompt_logprobs=st.none() | logprobs_lists(),
            finish_reason=st.none() | st.sampled_from(FinishReason),
            stop_reason=st.none() | st.integers(0, 9) | TEXT,
            events=st.none()
            | st.lists(st.builds(EngineCoreEvent, type=st.sampled_from(EngineCoreEventType), timestamp=FLOATS)),
            prefill_stats=st.none() | st.builds(PrefillStats, *[st.integers(0, 999)] * 3),
        ),
        max_size=3,
    ),
    timestamp=st.floats(1, 1e9),
    utility_output=st.none() | st.builds(UtilityOutput, call_id=st.integers(0, 2**64 - 1), result=st.booleans()),
)


def plain(value: Any) -> Any:
    """Arrays as lists with their types, so that messages can be compared."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tolist()
    if isinstance(value, msgspec.Struct):
        return type(value), {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return [plain(item) for item in value] if isinstance(value, list) else value


@given(REQUESTS)
def test_requests_come_out_as_they_went_in(request: EngineCoreRequest) -> None:
    assert round_trip(request, EngineCoreRequest) == request


@given(OUTPUTS)
def test_outputs_come_out_as_they_went_in(outputs: EngineCoreOutputs) -> None:
    assert plain(round_trip(outputs, EngineCoreOutputs)) == plain(outputs)


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda inner: st.lists(inner, max_size=3)))
def test_plain_values_need_no_type(value: Any) -> None:
    assert round_trip(value) == value


@pytest.mark.parametrize("num_bytes", [0, 1, ZERO_COPY_THRESHOLD - 1, ZERO_COPY_THRESHOLD, ZERO_COPY_THRESHOLD + 1])
def test_large_arrays_travel_beside_the_message(num_bytes: int) -> None:
    array = np.arange(num_bytes % 200, num_bytes % 200 + num_bytes, dtype=np.uint64).astype(np.uint8)
    frames = MsgpackEncoder().encode(UtilityOutput(1, result=array))
    assert len(frames) == (2 if num_bytes >= ZERO_COPY_THRESHOLD else 1)
    decoded = MsgpackDecoder(np.ndarray).decode(MsgpackEncoder().encode(array))
    assert decoded.dtype == array.dtype and np.array_equal(decoded, array)


def test_every_large_array_has_its_own_frame() -> None:
    encoder = MsgpackEncoder()
    arrays = [np.full(300, value, dtype=np.float32) for value in range(3)] + [np.arange(3)]
    frames = encoder.encode(arrays)
    assert len(frames) == 4
    decoded = MsgpackDecoder(list[np.ndarray]).decode(frames)
    assert [plain(array) for array in decoded] == [plain(array) for array in arrays]
    assert len(encoder.encode([])) == 1, "the frames of one message must not be those of the next"


@pytest.mark.parametrize(
    "array",
    [np.arange(600).reshape(20, 30).T, np.arange(600)[::2], np.arange(8).reshape(2, 4)[:, 1:3], np.zeros((0, 5))],
    ids=["transposed", "strided", "part", "empty"],
)
def test_arrays_of_any_layout(array: np.ndarray) -> None:
    assert plain(MsgpackDecoder(np.ndarray).decode(MsgpackEncoder().encode(array))) == plain(array)


class Unheard:
    """No declared message type."""


@pytest.mark.parametrize("value", [Unheard(), {"a": [Unheard()]}, print], ids=["object", "inside", "function"])
def test_other_types_are_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"Unheard|builtin_function_or_method"):
        MsgpackEncoder().encode(value)


def test_nothing_is_unpickled() -> None:
    pickled = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\x80\x04K\x01."))
    with pytest.raises(TypeError, match="Extension code 1"):
        MsgpackDecoder().decode([pickled])


def test_the_type_is_one_byte_in_front() -> None:
    frames = request_frames(ENGINE_IDENTITY, EngineCoreRequestType.ABORT, ["0-1a2b3c4d"], MsgpackEncoder())
    assert [len(frames[0]), bytes(frames[1])] == [2, b"\x01"]
    assert MsgpackDecoder().decode(frames[2:]) == ["0-1a2b3c4d"]
    assert [member.value for member in EngineCoreRequestType] == [b"\x00", b"\x01", b"\x03", b"\x05"]


def test_a_config_crosses_whole() -> None:
    config = EngineConfig(block_size=7, hash_seed="x", scheduling_policy="priority").resolved(max_model_len=99)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
