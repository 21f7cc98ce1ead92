"""Lab 01 · Messages over the boundary

State which frames and bytes cross the process boundary for one request, in which order, and why only declared types can
cross.

    1.1  declarations (15 points)
    1.2  arrays (20 points)
    1.3  frames and queues (10 points)
    1.4  what comes back (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 01
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import msgspec
import numpy as np

from minivllm.course.grader import given
from minivllm.engine.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreEvent,
    EngineCoreOutputs,
    EngineCoreRequestType,
    FinishReason,
    LogprobsLists,
    PrefillStats,
)
from minivllm.engine.serial import CUSTOM_TYPE_RAW_VIEW, ZERO_COPY_THRESHOLD, Frame


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

    class SamplingParams(msgspec.Struct, omit_defaults=True):
        temperature: float = 1.0
        top_p: float = 1.0
        seed: int | None = None
        max_tokens: int | None = 16
        min_tokens: int = 0
        ignore_eos: bool = False

    class EngineCoreRequest(msgspec.Struct, array_like=True, gc=False, frozen=True):
        request_id: str
        prompt_token_ids: list[int]
        sampling_params: SamplingParams
        arrival_time: float
        cache_salt: str | None = None
        priority: int = 0
        external_req_id: str | None = None

    class EngineCoreOutput(msgspec.Struct, array_like=True, gc=False, frozen=True):
        request_id: str
        new_token_ids: list[int]
        new_logprobs: LogprobsLists | None = None
        new_prompt_logprobs: LogprobsLists | None = None
        finish_reason: FinishReason | None = None
        stop_reason: int | str | None = None
        events: list[EngineCoreEvent] | None = None
        prefill_stats: PrefillStats | None = None

    return SamplingParams, EngineCoreRequest, EngineCoreOutput


class MsgpackEncoder(given.MsgpackEncoder):
    """vLLM: v1/serial_utils.py::MsgpackEncoder (simplified: numpy arrays only)"""

    def encode(self, obj: Any) -> list[Frame]:
        """[the msgpack message, then one frame for each large array]. A fresh list each call.

        vLLM: v1/serial_utils.py::MsgpackEncoder.encode
        """
        self.aux_buffers = [None]
        self.aux_buffers[0] = bytes(self.encoder.encode(obj))
        return list(self.aux_buffers)

    def enc_hook(self, obj: Any) -> Any:
        """An array becomes (dtype, shape, its bytes or the index of its frame).

        vLLM: v1/serial_utils.py::MsgpackEncoder._encode_ndarray
        """
        match obj:
            case np.ndarray() if obj.nbytes < ZERO_COPY_THRESHOLD:
                return obj.dtype.str, obj.shape, msgspec.msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, obj.tobytes("C"))
            case np.ndarray():
                self.aux_buffers += [memoryview(np.ascontiguousarray(obj)).cast("B")]
                return obj.dtype.str, obj.shape, len(self.aux_buffers) - 1
            case _:
                raise TypeError(f"{type(obj)} is not declared")


class MsgpackDecoder(given.MsgpackDecoder):
    """Decodes messages of one type; without a type, into plain lists and dicts.

    vLLM: v1/serial_utils.py::MsgpackDecoder
    """

    def decode(self, frames: Sequence[Frame]) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.decode"""
        before, self.frames = self.frames, frames
        message = self.decoder.decode(frames[0])
        self.frames = before
        return message

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.dec_hook"""
        assert_array = message_type is np.ndarray
        if not assert_array:
            raise TypeError(f"{message_type} is not declared")
        places = [self.frames[obj[2]]] if isinstance(obj[2], int) else [obj[2]]
        return np.ndarray(tuple(obj[1]), np.dtype(obj[0]), buffer=bytes(places[0]))

    def ext_hook(self, code: int, data: memoryview) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.ext_hook"""
        match code:
            case 3:
                return memoryview(data)
            case other:
                raise TypeError(f"no extension {other} here")


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    """The frames of one message to the core. The ROUTER takes the identity off again.

    vLLM: v1/engine/core_client.py::SyncMPClient._send_input
    """
    return [identity, *(request_type.value,), *encoder.encode(payload)]


def read_request(
    frames: Sequence[Frame],
    decode_add: Callable[[Sequence[Frame]], Any],
    decoder: MsgpackDecoder,
    input_queue: SimpleQueue[Any],
    aborts_queue: SimpleQueue[Any],
) -> tuple[EngineCoreRequestType, Any]:
    """Decode one message of the caller, [type, msgpack, arrays…], and put it where the main thread finds it: as
    (type, payload) into the input queue; the ids of an ABORT into the aborts queue as well, which is read in mid-step.

    decode_add: makes a Request of an ADD's frames, or returns None where none can be made; then nothing is queued.
    Returns (type, payload). Raises ValueError for a type that there isn't.

    vLLM: v1/engine/core.py::EngineCoreProc.process_input_sockets
    """
    match EngineCoreRequestType(bytes(frames[0])):
        case EngineCoreRequestType.ADD as kind:
            payload = decode_add(frames[1:])
        case kind:
            payload = decoder.decode(frames[1:])
    queued = kind is not EngineCoreRequestType.ADD or payload is not None
    for _ in range(queued):
        input_queue.put((kind, payload))
    for _ in range(kind is EngineCoreRequestType.ABORT):
        aborts_queue.put(payload)
    return kind, payload


def is_core_dead(frames: Sequence[Frame]) -> bool:
    """Whether this is the core's last word: one raw frame, which no decoder must see.

    vLLM: v1/engine/core_client.py::BackgroundResources.validate_alive
    """
    match [bytes(frame) for frame in frames]:
        case [only]:
            return only == ENGINE_CORE_DEAD
        case _:
            return False


def read_output(
    frames: Sequence[Frame],
    decoder: MsgpackDecoder,
    outputs_queue: SimpleQueue[Any],
    utility_results: dict[int, Future[Any]],
) -> EngineCoreOutputs:
    """Decode one message of the core, and give it to whoever waits: outputs go into the queue, the answer to a utility
    call to the future of its call, which is then forgotten; a failure as RuntimeError. Returns the message.

    vLLM: v1/engine/core_client.py::SyncMPClient.__init__.process_outputs_socket
    """
    message = decoder.decode(frames)
    match message.utility_output:
        case None:
            outputs_queue.put(message)
        case answer if answer.failure_message is None:
            utility_results.pop(answer.call_id).set_result(answer.result)
        case answer:
            utility_results.pop(answer.call_id).set_exception(RuntimeError(answer.failure_message))
    return message
