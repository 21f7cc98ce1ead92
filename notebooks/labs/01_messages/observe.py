"""Observers of lab 01: bytes, frames, and who got what.

Owns: how a case in plain values becomes messages, and how frames are written down (as hexadecimal text).
Interface: declared, encoded, refused, framed, routed, answered, told_dead; make_array.
Must not know: what is expected.
"""

import hashlib
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import numpy as np

from minivllm.course.grader.child import Parts
from minivllm.engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequestType,
    FinishReason,
    UtilityOutput,
)
from minivllm.engine.routing import is_core_dead, read_output, read_request, request_frames
from minivllm.engine.serial import MsgpackDecoder, MsgpackEncoder
from minivllm.lessons.lab01.wire import message_types

Seen = list[Any]
SHORT = 24  # bytes of a frame that are written out; of a longer one a hash
TIMEOUT_S = 0.2


def shown(frame: Any) -> str:
    """A frame as text."""
    data = bytes(frame)
    return data.hex(" ") if len(data) <= SHORT else f"sha1 {hashlib.sha1(data).hexdigest()[:12]}"


# ---------------------------------------------------------------------- 1.1: declarations


def declared(parts: Parts, asked: dict[str, Any], seen: Seen) -> Any:
    """One message of a declared type: its bytes, or what it is after decoding.

    asked: type, 0 SamplingParams, 1 EngineCoreRequest, 2 EngineCoreOutput; and `fields` to encode, or `data` to decode
    (hexadecimal), and then the `names` of the fields that are wanted.
    """
    types = parts.get("message_types", message_types)()
    if "data" in asked:
        message = msgspec.msgpack.decode(bytes.fromhex(asked["data"]), type=types[asked["type"]])
        return {name: msgspec.to_builtins(getattr(message, name)) for name in asked["names"]}
    fields = dict(asked["fields"])
    if "sampling_params" in fields:
        fields["sampling_params"] = types[0](**fields["sampling_params"])
    if fields.get("finish_reason") is not None:
        fields["finish_reason"] = FinishReason(fields["finish_reason"])
    return msgspec.msgpack.encode(types[asked["type"]](**fields)).hex(" ")


# ---------------------------------------------------------------------- 1.2: arrays


def make_array(asked: dict[str, Any]) -> np.ndarray:
    """An array of a case: dtype, shape, and a view of it: "", "transposed", or "every other"."""
    count = int(np.prod(asked["shape"]))
    array = np.arange(count).astype(asked["dtype"]).reshape(asked["shape"])
    return {"": array, "transposed": array.T, "every other": array[::2]}[asked.get("view", "")]


def encoded(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[Any]:
    """Messages with arrays, all through one encoder; then each one through one decoder.

    For each message: the lengths of its frames, the frames, and the arrays that came back. At the end, which of the
    messages have other frames than when they were encoded.
    """
    encoder = parts.get("encoder", MsgpackEncoder)()
    decoder = parts.get("decoder", MsgpackDecoder)(list[np.ndarray])
    messages = [[make_array(one) for one in arrays] for arrays in asked["messages"]]
    kept = []
    for arrays in messages:
        frames = encoder.encode(arrays)
        copies = [bytes(frame) for frame in frames]
        kept.append((frames, copies))
        entry: list[Any] = [[len(frame) for frame in copies], [shown(frame) for frame in copies], None]
        seen.append(entry)
        entry[2] = [
            [array.dtype.str, list(array.shape), array.reshape(-1).tolist()] for array in decoder.decode(copies)
        ]
    seen.append([number for number, (frames, copies) in enumerate(kept) if [bytes(f) for f in frames] != copies])
    return seen


def refused(parts: Parts, asked: str, seen: Seen) -> list[Any]:
    """What happens with what must not cross: "object", "complex", "extension 1", "another type".

    The result is the kind of the error, and whether it names what was refused.
    """
    encoder = parts.get("encoder", MsgpackEncoder)()
    decoder_class = parts.get("decoder", MsgpackDecoder)
    frames: Any = []
    try:
        if asked == "object":
            frames = encoder.encode(object())
        elif asked == "complex":
            frames = encoder.encode(complex(1, 2))
        elif asked == "extension 1":
            decoder_class().decode([msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"cos\nsystem\n"))])
        else:
            decoder_class(complex).decode([msgspec.msgpack.encode([1, 2])])
    except NotImplementedError:
        raise
    except Exception as error:
        name = {"object": "object", "complex": "complex", "extension 1": "1", "another type": "complex"}[asked]
        kind = "TypeError" if isinstance(error, TypeError | msgspec.ValidationError) else type(error).__name__
        return [kind, name in str(error)]
    return [f"it crossed, as {type(msgspec.msgpack.decode(frames[0])).__name__}" if frames else "it was taken"]


# ---------------------------------------------------------------------- 1.3: frames and queues


def framed(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[str]:
    """The frames of one message to the core."""
    payload = make_array(asked["array"]) if "array" in asked else asked["payload"]
    kind = EngineCoreRequestType(bytes([asked["type"]]))
    frames = parts.get("request_frames", request_frames)(
        bytes.fromhex(asked["identity"]), kind, payload, MsgpackEncoder()
    )
    return [shown(frame) for frame in frames]


def routed(parts: Parts, asked: dict[str, Any], seen: Seen) -> Any:
    """Messages that the core gets, one after the other: what stands in both queues then, and what was returned.

    A message: type, payload; an ADD's payload None can't be made a request of.
    """
    input_queue: SimpleQueue[Any] = SimpleQueue()
    aborts_queue: SimpleQueue[Any] = SimpleQueue()
    returned = []
    for kind, payload in asked["messages"]:
        frames = [bytes([kind]), *MsgpackEncoder().encode(payload)]
        try:
            answer = parts.get("read_request", read_request)(
                frames, _decode_add, MsgpackDecoder(), input_queue, aborts_queue
            )
        except ValueError as error:
            returned.append(type(error).__name__)
        else:
            returned.append(_plain(answer))
    return {"input": [_plain(one) for one in _drain(input_queue)], "aborts": _drain(aborts_queue), "returned": returned}


def _decode_add(frames: Any) -> Any:
    payload = msgspec.msgpack.decode(frames[0])
    return None if payload is None else f"Request {payload}"


def _plain(pair: Any) -> Any:
    kind, payload = pair
    return [None if kind is None else EngineCoreRequestType(kind).name, payload]


def _drain(queue: SimpleQueue[Any]) -> list[Any]:
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found


# ---------------------------------------------------------------------- 1.4: what comes back


def told_dead(parts: Parts, asked: list[str], seen: Seen) -> bool:
    """Whether frames (hexadecimal) are the core's last word."""
    return bool(parts.get("is_core_dead", is_core_dead)([bytes.fromhex(frame) for frame in asked]))


def answered(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """Messages of the core, one after the other: what get_output would find, and what became of the calls.

    A message: {"outputs": [request id, tokens]}, or {"call": id, "result": value or "failure": text}.
    """
    outputs_queue: SimpleQueue[Any] = SimpleQueue()
    calls = {number: Future() for number in asked["calls"]}
    open_calls = dict(calls)
    returned = []
    for message in asked["messages"]:
        frames = MsgpackEncoder().encode(_outputs(message))
        answer = parts.get("read_output", read_output)(
            frames, MsgpackDecoder(EngineCoreOutputs), outputs_queue, open_calls
        )
        returned.append(type(answer).__name__)
    return {
        "outputs": [[[one.request_id, one.new_token_ids] for one in batch.outputs] for batch in _drain(outputs_queue)],
        "calls": [[number, _ended(future)] for number, future in calls.items()],
        "open": sorted(open_calls),
        "returned": returned,
    }


def _outputs(message: dict[str, Any]) -> EngineCoreOutputs:
    if "outputs" in message:
        return EngineCoreOutputs([EngineCoreOutput(req_id, tokens) for req_id, tokens in message["outputs"]], 1.0)
    answer = UtilityOutput(message["call"], message.get("failure"), message.get("result"))
    return EngineCoreOutputs(timestamp=1.0, utility_output=answer)


def _ended(future: Future) -> Any:
    """What a caller gets who waits for the future."""
    if not future.done():
        return "waits"
    error = future.exception(TIMEOUT_S)
    return ["raises", type(error).__name__, str(error)] if error is not None else ["returns", future.result(TIMEOUT_S)]
