"""What the two processes say to each other before the first request. Imports no torch: the caller's side needs none.

core: HELLO     caller: addresses, config, model's config     core: READY, or FAILED and why; meanwhile CLOCK
"""

import time
from typing import Protocol

import msgspec
import zmq

from minivllm.config import EngineConfig
from minivllm.errors import EngineDeadError, InputError, ModelError
from minivllm.models.model_config import ModelConfig

ENGINE_IDENTITY = b"\x00\x00"  # engine 0, as two bytes little-endian
SOCKET_DIR_PREFIX = "minivllm-"
READY_TIMEOUT_SECONDS = 600
POLL_MS = 100


class EngineHandshakeMetadata(msgspec.Struct):
    """What the caller's process answers to HELLO: where to connect, and what to build.

    vLLM: v1/engine/utils.py::EngineHandshakeMetadata
    """

    input_address: str
    output_address: str
    config: EngineConfig
    model_config: ModelConfig


class Process(Protocol):
    """The core's process, as the handshake needs it (core_manager.py).

    vLLM: v1/engine/utils.py::CoreEngineProcManager (role)
    """

    def is_alive(self) -> bool: ...

    def describe_end(self) -> str: ...


def wait_for_engine_startup(handshake: zmq.Socket, metadata: EngineHandshakeMetadata, process: Process) -> None:
    """HELLO, our answer, READY. A mistake of the caller's that the core found is raised here as it is.

    vLLM: v1/engine/utils.py::wait_for_engine_startup
    """
    while True:
        message = msgspec.msgpack.decode(receive_from_core(handshake, process))
        if message["status"] == "HELLO":
            handshake.send_multipart([ENGINE_IDENTITY, msgspec.msgpack.encode(metadata)])
        elif message["status"] == "CLOCK":  # the core compares its clock with ours, for a trace
            received = time.perf_counter_ns()
            handshake.send_multipart([ENGINE_IDENTITY, msgspec.msgpack.encode((received, time.perf_counter_ns()))])
        elif message["status"] == "FAILED":
            error_class = {"InputError": InputError, "ModelError": ModelError}[message["error"]]
            raise error_class(message["message"])
        elif message["status"] == "READY":
            return


def receive_from_core(socket: zmq.Socket, process: Process) -> bytes:
    """The core's next message on a ROUTER; what anybody else says there is passed over.

    Raises EngineDeadError with the core's last words when its process ends, or after READY_TIMEOUT_SECONDS.
    """
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        alive = process.is_alive()  # asked before: the last words of one that has ended are still read
        if socket.poll(POLL_MS):
            identity, *frames = socket.recv_multipart()
            if identity == ENGINE_IDENTITY and len(frames) == 1:
                return frames[0]
        elif not alive:
            raise EngineDeadError(process.describe_end())
    raise EngineDeadError(f"The engine core was not ready after {READY_TIMEOUT_SECONDS} s.")
