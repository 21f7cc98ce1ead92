"""Which frames make a message, and who gets what has arrived: both ends of the process boundary.

Interface: request_frames (caller), read_request (core); is_core_dead, read_output (caller).
Must not know: sockets, or what a message means for a request.

    to the core     [identity, type, msgpack, arrays…]; the ROUTER takes the identity off again
    to the caller   [msgpack, arrays…], or one raw frame, ENGINE_CORE_DEAD
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from minivllm.engine.messages import ENGINE_CORE_DEAD, EngineCoreOutputs, EngineCoreRequestType
from minivllm.engine.serial import Frame, MsgpackDecoder, MsgpackEncoder


def request_frames(
    identity: bytes, request_type: EngineCoreRequestType, payload: Any, encoder: MsgpackEncoder
) -> list[Frame]:
    """The frames of one message to the core. The ROUTER takes the identity off again.

    vLLM: v1/engine/core_client.py::SyncMPClient._send_input
    """
    return [identity, request_type.value, *encoder.encode(payload)]


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
    request_type = EngineCoreRequestType(bytes(frames[0]))
    if request_type is EngineCoreRequestType.ADD:
        payload = decode_add(frames[1:])
        if payload is None:
            return request_type, None
    else:
        payload = decoder.decode(frames[1:])
    if request_type is EngineCoreRequestType.ABORT:
        aborts_queue.put(payload)  # so that it is seen in mid-step
    input_queue.put((request_type, payload))
    return request_type, payload


def is_core_dead(frames: Sequence[Frame]) -> bool:
    """Whether this is the core's last word: one raw frame, which no decoder must see.

    vLLM: v1/engine/core_client.py::BackgroundResources.validate_alive
    """
    return len(frames) == 1 and bytes(frames[0]) == ENGINE_CORE_DEAD


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
    outputs = decoder.decode(frames)
    answer = outputs.utility_output
    if answer is None:
        outputs_queue.put(outputs)
        return outputs
    future = utility_results.pop(answer.call_id)
    if answer.failure_message is not None:
        future.set_exception(RuntimeError(answer.failure_message))
    else:
        future.set_result(answer.result)
    return outputs
