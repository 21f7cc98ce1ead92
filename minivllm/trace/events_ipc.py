"""Events at the process boundary: B7 and B22. In process there are none."""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from collections.abc import Sequence
from typing import Any

from minivllm.trace.events import Call, Event

REQUEST_TYPES = {b"\x00": "ADD", b"\x01": "ABORT", b"\x03": "UTILITY"}


class Message(Event):
    """What a sent and a received message have; `msg` is the same on both sides."""

    msg: int | None = None  # number of the message in its direction, from 0
    message_type: str | None = None  # to the core ADD, ABORT or UTILITY; from it OUTPUTS or UTILITY
    num_bytes: int | None = None  # of all frames
    frame_sizes: list[int] = []  # bytes; to the core: type, msgpack, large arrays; from it: msgpack, large arrays


def _sizes(frames: Sequence[Any]) -> dict[str, Any]:
    sizes = [memoryview(frame).nbytes for frame in frames]
    return {"num_bytes": sum(sizes), "frame_sizes": sizes}


def _count_sent(call: Call) -> int:
    """The number of this message; a call that failed has sent none."""
    number = call.notes["sent"] = call.notes.get("sent", -1) + 1
    return number


def _ids(message_type: str, payload: Any) -> list[str]:
    """Internal request ids in what was sent or received."""
    if message_type == "ADD":
        return [payload.request_id] if payload is not None else []
    return list(payload) if message_type == "ABORT" else []


class CoreClientSend(Message, tag="core_client.send"):
    """A message leaves for the core."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        frames = call.out[1:]  # the identity in front is taken off by the socket
        message_type = REQUEST_TYPES[bytes(frames[0])]
        reqs = _ids(message_type, call.arg(1, "payload"))
        return {"reqs": reqs, "msg": _count_sent(call), "message_type": message_type, **_sizes(frames)}


class CoreReceive(Message, tag="core.receive"):
    """The core's input thread takes a message in, beside a step that runs. For an ADD it contains B8."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        frames = call.arg(0, "frames")
        message_type = REQUEST_TYPES[bytes(frames[0])]
        reqs = _ids(message_type, call.out[1])
        return {"reqs": reqs, "msg": call.number, "message_type": message_type, **_sizes(frames)}


def _outputs(outputs: Any) -> dict[str, Any]:
    return {
        "reqs": [output.request_id for output in outputs.outputs],
        "message_type": "OUTPUTS" if outputs.utility_output is None else "UTILITY",
    }


class CoreSend(Message, tag="core.send"):
    """The core's output thread sends what a step brought, beside the next step."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        outputs = call.arg(1, "outputs")
        step = call.notes.pop(("step of", id(outputs)), None)
        return {"step": step, "msg": _count_sent(call), **_outputs(outputs), **_sizes(call.out)}


class CoreClientReceive(Message, tag="core_client.receive"):
    """The caller's output thread takes a message in."""

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {"msg": call.number, **_outputs(call.out), **_sizes(call.arg(0, "frames"))}
