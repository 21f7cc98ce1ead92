"""EngineCoreClient: how the caller's side reaches the core; in this process, or in one of its own.

Owns: the core object, or the core process with its sockets and the threads that watch and listen.
Interface: add_request, abort_requests, get_output, call_utility, shutdown; and `ready`, what became of the config.
Must not know: what a message means for a request.
"""

import os
import signal
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import msgspec
import zmq

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.engine.core_manager import CoreEngineProcManager
from minivllm.engine.handshake import ENGINE_IDENTITY, EngineHandshakeMetadata
from minivllm.engine.messages import (
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
)
from minivllm.engine.routing import is_core_dead
from minivllm.engine.serial import Frame, MsgpackDecoder, MsgpackEncoder
from minivllm.errors import EngineDeadError, InputError, ModelError
from minivllm.models.model_config import ModelConfig

READY_TIMEOUT_SECONDS = 600
POLL_MS = 100
DRAIN_SECONDS = 0.5


class EngineCoreClient(ABC):
    """vLLM: v1/engine/core_client.py::EngineCoreClient"""

    ready: EngineCoreReadyResponse  # after connect

    @abstractmethod
    def connect(self, model_config: ModelConfig) -> None:
        """Build the core with this model, and wait until it is ready. Raises what the core found wrong."""

    @abstractmethod
    def add_request(self, request: EngineCoreRequest) -> None:
        """Hand a request to the core."""

    @abstractmethod
    def abort_requests(self, request_ids: list[str]) -> None:
        """Tell the core to end requests."""

    @abstractmethod
    def get_output(self) -> EngineCoreOutputs:
        """The next message of the core. Raises EngineDeadError when there will be none."""

    @abstractmethod
    def call_utility(self, method: str, *args: Any) -> Any:
        """Call a method of the core and wait for its answer."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the core. May be called again."""


def make_client(config: EngineConfig, part: Callable[[str], Any]) -> EngineCoreClient:
    """A client that is not connected yet; a core with a process of its own starts it now.

    part: gives the class or function of a seam (parts.py).

    vLLM: v1/engine/core_client.py::EngineCoreClient.make_client
    """
    multiprocess = config.multiprocess
    if multiprocess is None:
        multiprocess = os.environ.get("MINIVLLM_ENABLE_V1_MULTIPROCESSING", "1") != "0"
    if multiprocess:
        return SyncMPClient(config, part)
    return InprocClient(config)


class InprocClient(EngineCoreClient):
    """The core in this process: one get_output is one step, and nothing runs in between.

    vLLM: v1/engine/core_client.py::InprocClient
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.engine_core: Any | None = None
        self.dead = "The engine has been shut down. Make a new LLM."  # once engine_core is None again

    def connect(self, model_config: ModelConfig) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.__init__"""
        from minivllm.engine.core import EngineCore  # brings torch, which the other client does without

        self.engine_core = EngineCore(self.config, model_config)
        self.ready = self.engine_core.ready_response()

    @boundary("core_client.add_request")
    def add_request(self, request: EngineCoreRequest) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.add_request"""
        core = self._core()
        with _uninterrupted():
            core.add_request(core.preprocess_add_request(request))

    @boundary("abort_requests")
    def abort_requests(self, request_ids: list[str]) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.abort_requests"""
        if self.engine_core is not None:
            with _uninterrupted():
                self.engine_core.abort_requests(request_ids)

    @boundary("get_output")
    def get_output(self) -> EngineCoreOutputs:
        """vLLM: v1/engine/core_client.py::InprocClient.get_output"""
        core = self._core()
        try:
            with _uninterrupted():
                outputs, _ = core.step()
        except Exception as error:
            self.engine_core = None
            self.dead = f"A step of the engine failed ({type(error).__name__}: {error}). Make a new LLM."
            raise
        return outputs if outputs is not None else EngineCoreOutputs()

    def call_utility(self, method: str, *args: Any) -> Any:
        return getattr(self._core(), method)(*args)

    def shutdown(self) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.shutdown"""
        self.engine_core = None

    def _core(self) -> Any:
        if self.engine_core is None:
            raise EngineDeadError(self.dead)
        return self.engine_core


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the work is done: half a step would leave plan, cache and batch at odds, half a message
    would spoil the next one."""
    if threading.current_thread() is not threading.main_thread():
        yield  # KeyboardInterrupt comes to the main thread only
        return
    interrupted = False

    def note(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted:
        signal.raise_signal(signal.SIGINT)


class SyncMPClient(EngineCoreClient):
    """The core in a child process, reached by messages.

    vLLM: v1/engine/core_client.py::SyncMPClient
    """

    def __init__(self, config: EngineConfig, part: Callable[[str], Any]) -> None:
        self.config = config
        self.encoder: MsgpackEncoder = part("encoder")()
        self.decoder: MsgpackDecoder = part("decoder")(EngineCoreOutputs)
        self._request_frames: Callable[..., list[Frame]] = part("request_frames")
        self._read_output: Callable[..., EngineCoreOutputs] = part("read_output")
        self.outputs_queue: SimpleQueue[EngineCoreOutputs | Exception] = SimpleQueue()
        self.utility_results: dict[int, Future[Any]] = {}
        self.dead: EngineDeadError | None = None  # why there will be no more answers
        self._closing = False
        # a folder that nobody else can enter, since whoever can write to the sockets can use the engine
        self._socket_dir = tempfile.TemporaryDirectory(prefix="minivllm-")
        self.context = zmq.Context(io_threads=2)
        self.handshake, handshake_address = self._bind(zmq.ROUTER)
        self.input_socket, self._input_address = self._bind(zmq.ROUTER)
        output_socket, self._output_address = self._bind(zmq.PULL)
        self.manager = CoreEngineProcManager(handshake_address)
        self._output_thread = threading.Thread(
            target=self._process_output_socket, args=(output_socket,), name="EngineCoreOutputQueueThread", daemon=True
        )

    def connect(self, model_config: ModelConfig) -> None:
        """vLLM: v1/engine/core_client.py::MPClient.__init__"""
        metadata = EngineHandshakeMetadata(self._input_address, self._output_address, self.config, model_config)
        try:
            self._wait_for_engine_startup(self.handshake, metadata)
            frames = self._receive_from(self.input_socket)
            self.ready = msgspec.msgpack.decode(frames[1], type=EngineCoreReadyResponse)
        except BaseException:
            self.shutdown()
            raise
        self.handshake.close(linger=0)
        self._output_thread.start()
        threading.Thread(target=self._monitor, name="MPClientEngineMonitor", daemon=True).start()

    # ------------------------------------------------------------------ to the core

    @boundary("core_client.add_request")
    def add_request(self, request: EngineCoreRequest) -> None:
        """vLLM: v1/engine/core_client.py::SyncMPClient.add_request"""
        self.send_input(EngineCoreRequestType.ADD, request)

    @boundary("abort_requests")
    def abort_requests(self, request_ids: list[str]) -> None:
        """vLLM: v1/engine/core_client.py::SyncMPClient.abort_requests"""
        if request_ids and self.dead is None:
            self.send_input(EngineCoreRequestType.ABORT, request_ids)

    def call_utility(self, method: str, *args: Any) -> Any:
        """vLLM: v1/engine/core_client.py::SyncMPClient.call_utility"""
        call_id = uuid.uuid1().int >> 64
        future: Future[Any] = Future()
        self.utility_results[call_id] = future
        self.send_input(EngineCoreRequestType.UTILITY, (call_id, method, args))
        if self.dead is not None:  # it may have died before the future was seen
            self.utility_results.pop(call_id, None)
            raise self.dead
        return future.result()

    @boundary("core_client.send")
    def send_input(self, request_type: EngineCoreRequestType, payload: Any) -> list[Frame]:
        """One message to the core: [identity, type, msgpack, arrays…]; returns the frames.

        vLLM: v1/engine/core_client.py::SyncMPClient._send_input
        """
        if self.dead is not None:
            raise self.dead
        frames = self._request_frames(ENGINE_IDENTITY, request_type, payload, self.encoder)
        with _uninterrupted():
            self.input_socket.send_multipart(frames, copy=False)
        return frames

    # ------------------------------------------------------------------ from the core

    @boundary("get_output")
    def get_output(self) -> EngineCoreOutputs:
        """Wait for the next message. It was made by a step that has already happened.

        vLLM: v1/engine/core_client.py::SyncMPClient.get_output
        """
        if self.dead is not None and self.outputs_queue.empty():
            raise self.dead
        outputs = self.outputs_queue.get()
        if isinstance(outputs, Exception):
            raise outputs
        return outputs

    def _process_output_socket(self, socket: zmq.Socket) -> None:
        """The output thread: decode, and give to whoever waits.

        vLLM: v1/engine/core_client.py::SyncMPClient.__init__.process_outputs_socket
        """
        try:
            # in an orderly end too: a core that nobody listens to could not say its last words, and would wait
            while not self._closing or self.manager.is_alive():
                if not socket.poll(POLL_MS):
                    continue
                frames = socket.recv_multipart()
                if is_core_dead(frames):
                    return  # the monitor sees the process end, and knows how
                self.receive(frames)
        except Exception as error:
            self.outputs_queue.put(error)
        finally:
            socket.close(linger=0)

    @boundary("core_client.receive")
    def receive(self, frames: Sequence[Frame]) -> EngineCoreOutputs:
        """One message from the core. The answer to a utility call goes to its caller, all else to get_output.

        vLLM: v1/engine/core_client.py::SyncMPClient.__init__.process_outputs_socket
        """
        return self._read_output(frames, self.decoder, self.outputs_queue, self.utility_results)

    def _monitor(self) -> None:
        """The monitor thread: when the core process ends unasked, everybody who waits gets an error.

        vLLM: v1/engine/core_client.py::MPClient.start_engine_core_monitor
        """
        self.manager.wait()
        if self._closing:
            return
        self._output_thread.join(timeout=DRAIN_SECONDS)  # what the core said before it died comes first
        self.dead = EngineDeadError(self.manager.describe_end())
        self.outputs_queue.put(self.dead)
        for future in list(self.utility_results.values()):
            future.set_exception(self.dead)
        self._socket_dir.cleanup()

    # ------------------------------------------------------------------ start and end

    def _bind(self, socket_type: int) -> tuple[zmq.Socket, str]:
        """vLLM: utils/network_utils.py::get_open_zmq_ipc_path"""
        socket = self.context.socket(socket_type)
        socket.set_hwm(0)  # no message is ever dropped
        address = f"ipc://{self._socket_dir.name}/{uuid.uuid4().hex[:12]}"
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            self.context.destroy(linger=0)
            self._socket_dir.cleanup()
            raise InputError(
                f"No socket could be made in {self._socket_dir.name} ({error}). Point TMPDIR at another folder; its "
                "path must be short, about 80 characters at most."
            ) from error
        return socket, address

    def _wait_for_engine_startup(self, handshake: zmq.Socket, metadata: EngineHandshakeMetadata) -> None:
        """HELLO, our answer, READY. A mistake of the caller's that the core found is raised here as it is.

        vLLM: v1/engine/utils.py::wait_for_engine_startup
        """
        while True:
            identity, payload = self._receive_from(handshake)
            message = msgspec.msgpack.decode(payload)
            if message["status"] == "HELLO":
                handshake.send_multipart([identity, msgspec.msgpack.encode(metadata)])
            elif message["status"] == "CLOCK":  # the core compares its clock with ours, for a trace
                received = time.perf_counter_ns()
                handshake.send_multipart([identity, msgspec.msgpack.encode((received, time.perf_counter_ns()))])
            elif message["status"] == "FAILED":
                error_class = {"InputError": InputError, "ModelError": ModelError}[message["error"]]
                raise error_class(message["message"])
            elif message["status"] == "READY":
                return

    def _receive_from(self, socket: zmq.Socket) -> list[bytes]:
        """Wait for a message, and for the core's end."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            alive = self.manager.is_alive()  # asked before: the last words of one that has ended are still read
            if socket.poll(POLL_MS):
                return socket.recv_multipart()
            if not alive:
                raise EngineDeadError(self.manager.describe_end())
        raise EngineDeadError(f"The engine core was not ready after {READY_TIMEOUT_SECONDS} s.")

    def shutdown(self) -> None:
        """vLLM: v1/engine/core_client.py::MPClient.shutdown"""
        if self._closing:
            return
        self._closing = True
        self.manager.shutdown()
        self.dead = self.dead or EngineDeadError("The engine has been shut down. Make a new LLM.")
        if self._output_thread.is_alive():
            self._output_thread.join()
        self.context.destroy(linger=0)
        self._socket_dir.cleanup()
