"""Messages to bytes and back: msgpack, and large arrays beside it as frames of their own.

Owns: the wire format of everything that crosses the process boundary.
Interface: MsgpackEncoder.encode -> frames; MsgpackDecoder.decode(frames).
Must not know: sockets. Only declared types can cross: there is no pickle.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

CUSTOM_TYPE_RAW_VIEW = 3  # msgpack extension code of an array's bytes
ZERO_COPY_THRESHOLD = 256  # bytes; an array at least this large gets a frame of its own

Frame = bytes | memoryview


class MsgpackEncoder:
    """vLLM: v1/serial_utils.py::MsgpackEncoder (simplified: numpy arrays only)"""

    def __init__(self) -> None:
        self.encoder = msgspec.msgpack.Encoder(enc_hook=self.enc_hook)
        self.aux_buffers: list[Frame] = []  # of the message that is being encoded

    def encode(self, obj: Any) -> list[Frame]:
        """[the msgpack message, then one frame for each large array]. A fresh list each call.

        vLLM: v1/serial_utils.py::MsgpackEncoder.encode
        """
        self.aux_buffers = [b""]
        self.aux_buffers[0] = self.encoder.encode(obj)
        return self.aux_buffers

    def enc_hook(self, obj: Any) -> Any:
        """An array becomes (dtype, shape, its bytes or the index of its frame).

        vLLM: v1/serial_utils.py::MsgpackEncoder._encode_ndarray
        """
        if not isinstance(obj, np.ndarray):
            raise TypeError(f"{type(obj).__name__} can't cross the process boundary: only declared message types can.")
        # tobytes would copy a large array; ascontiguousarray copies only one whose rows are not in order
        data = np.ascontiguousarray(obj).reshape(-1).view(np.uint8).data
        if obj.nbytes < ZERO_COPY_THRESHOLD:
            return obj.dtype.str, obj.shape, msgspec.msgpack.Ext(CUSTOM_TYPE_RAW_VIEW, bytes(data))
        self.aux_buffers.append(data)
        return obj.dtype.str, obj.shape, len(self.aux_buffers) - 1


class MsgpackDecoder:
    """Decodes messages of one type; without a type, into plain lists and dicts.

    vLLM: v1/serial_utils.py::MsgpackDecoder
    """

    def __init__(self, message_type: Any = Any) -> None:
        self.decoder = msgspec.msgpack.Decoder(message_type, dec_hook=self.dec_hook, ext_hook=self.ext_hook)
        self.frames: Sequence[Frame] = ()  # of the message that is being decoded

    def decode(self, frames: Sequence[Frame]) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.decode"""
        self.frames = frames
        try:
            return self.decoder.decode(frames[0])
        finally:
            self.frames = ()

    def dec_hook(self, message_type: type, obj: Any) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.dec_hook"""
        if message_type is not np.ndarray:
            raise TypeError(f"{message_type.__name__} is not a declared message type.")
        dtype, shape, data = obj
        buffer = self.frames[data] if isinstance(data, int) else data
        return np.frombuffer(buffer, dtype=dtype).reshape(shape)

    def ext_hook(self, code: int, data: memoryview) -> Any:
        """vLLM: v1/serial_utils.py::MsgpackDecoder.ext_hook"""
        if code != CUSTOM_TYPE_RAW_VIEW:
            raise TypeError(f"Extension code {code} is not known: nothing is unpickled here.")
        return data
