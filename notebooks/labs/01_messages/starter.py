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
    raise NotImplementedError("Lab 1.1: three msgspec.Structs: their options, and their fields in order")


class MsgpackEncoder(given.MsgpackEncoder):
    """vLLM: v1/serial_utils.py::MsgpackEncoder (simplified: numpy arrays only)"""

    def encode(self, obj: Any) -> list[Frame]:
        """[the msgpack message, then one frame for each large array]. A fresh list each call.

        vLLM: v1/serial_utils.py::MsgpackEncoder.encode
        """
        raise NotImplementedError("Lab 1.2: a list of this message's own, its first frame last")

    def enc_hook(self, obj: Any) -> Any:
        """An array becomes (dtype, shape, its bytes or the index of its frame).

        vLLM: v1/serial_utils.py::MsgpackEncoder._encode_ndarray
        """
        raise NotImplementedError("Lab 1.2: small arrays in the message, large ones beside it, and nothing else")


class MsgpackDecoder(given.MsgpackDecoder):
    """Decodes messages of one type; without a type, into plain lists and dicts.

    vLLM: v1/serial_utils.py::MsgpackDecoder
    """

    def decode(self, frames: Sequence[Frame]) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.decode"""
        raise NotImplementedError("Lab 1.2: decode the first frame while the others are at hand")

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.dec_hook"""
        raise NotImplementedError("Lab 1.2: an array again, from what enc_hook made of it")

    def ext_hook(self, code: int, data: memoryview) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.ext_hook"""
        raise NotImplementedError("Lab 1.2: the bytes of an array, and no other extension")


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    """The frames of one message to the core. The ROUTER takes the identity off again.

    vLLM: v1/engine/core_client.py::SyncMPClient._send_input
    """
    raise NotImplementedError("Lab 1.3: all frames of the message, in their order")


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
    raise NotImplementedError("Lab 1.3: which decoder, and which queues")


def is_core_dead(frames: Sequence[Frame]) -> bool:
    """Whether this is the core's last word: one raw frame, which no decoder must see.

    vLLM: v1/engine/core_client.py::BackgroundResources.validate_alive
    """
    raise NotImplementedError("Lab 1.4: one frame, and which")


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
    raise NotImplementedError("Lab 1.4: decode; an answer to its caller, all else into the queue")
