"""EngineCoreClient: how the caller's side reaches the core; in this process, or in one of its own.

Owns: the core object, or the core process with its sockets and the threads that watch and listen.
Interface: add_request, abort_requests, get_output, wake, call_utility, end, shutdown; and `ready`, what became of the
config. add_request and get_output are for one thread at a time (llm.py sees to it), the others for any.
Must not know: what a message means for a request.

A core with a process of its own is starting, ready, ending or ended, and has one way to its end: `end(error)`, for
everybody, from any thread, as often as they like. Nobody waits for what can't come any more:

    who waits                       for what                        who wakes them
    connect                         the core's next message         the message; the process's end; a limit of time
    get_output                      outputs_queue                   the output thread; end; wake
    call_utility                    the future of its call          the output thread; end
    the output thread               the output socket               a message; every 100 ms a look at the process
    the monitor thread              the process's end               the process, which `end` makes end
    end: the first who calls it     the process, the two threads    SIGTERM, after 5 s SIGKILL; the process's end
    end: who comes later            the first                       the first. The two threads don't wait here

In a forked child nothing of all this is there: `end` does nothing in it, and all else is refused.
"""

import errno
import logging
import os
import shutil
import tempfile
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import zmq

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.engine.core_manager import TERM_TIMEOUT_SECONDS, CoreEngineProcManager
from minivllm.engine.handshake import (
    ENGINE_IDENTITY,
    POLL_MS,
    SOCKET_DIR_PREFIX,
    EngineHandshakeMetadata,
    receive_from_core,
    wait_for_engine_startup,
)
from minivllm.engine.interrupt import uninterrupted
from minivllm.engine.messages import (
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
)
from minivllm.engine.routing import is_core_dead
from minivllm.engine.serial import Frame, MsgpackDecoder, MsgpackEncoder
from minivllm.errors import EngineDeadError, InputError
from minivllm.models.model_config import ModelConfig

DRAIN_SECONDS = 2  # for what the core said before it died
SILENCE_SECONDS = 60  # then a line says that there is no word
SHUT_DOWN = "The engine has been shut down. Make a new LLM."

logger = logging.getLogger(__name__)


class EngineCoreClient(ABC):
    """vLLM: v1/engine/core_client.py::EngineCoreClient"""

    ready: EngineCoreReadyResponse  # after connect

    def __init__(self) -> None:
        self.owner_pid = os.getpid()

    def is_forked(self) -> bool:
        """Whether this is a copy in a forked child, which has neither the core nor its threads."""
        return os.getpid() != self.owner_pid

    def check_process(self) -> None:
        """Raise InputError in a forked child."""
        if self.is_forked():
            raise InputError(
                f"This LLM belongs to process {self.owner_pid}, and this is process {os.getpid()}, a fork of it: an "
                "engine can't be shared so. Make an LLM of its own here, or ask the other process."
            )

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

    def wake(self) -> None:  # noqa: B027  (a client whose get_output never waits has nothing to do)
        """Let a get_output that waits return at once, with a message without outputs."""

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
        super().__init__()
        self.config = config
        self.engine_core: Any | None = None
        self.dead = SHUT_DOWN  # once engine_core is None again
        self._lock = threading.RLock()  # a core does one thing at a time

    def connect(self, model_config: ModelConfig) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.__init__"""
        from minivllm.engine.assemble import assemble, get_executor_class

        executor = get_executor_class()(self.config, model_config)  # brings torch, which the other client does without
        self.engine_core = assemble(self.config, executor, self.config.parts)
        self.ready = self.engine_core.ready_response()

    @boundary("core_client.add_request")
    def add_request(self, request: EngineCoreRequest) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.add_request"""
        with self._lock, uninterrupted():
            core = self._core()
            core.add_request(core.preprocess_add_request(request))

    @boundary("abort_requests")
    def abort_requests(self, request_ids: list[str]) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.abort_requests"""
        with self._lock, uninterrupted():
            if self.engine_core is not None:
                self.engine_core.abort_requests(request_ids)

    @boundary("get_output")
    def get_output(self) -> EngineCoreOutputs:
        """vLLM: v1/engine/core_client.py::InprocClient.get_output"""
        with self._lock, uninterrupted():
            core = self._core()
            try:
                outputs, _ = core.step()
            except Exception as error:
                self.engine_core = None
                self.dead = f"A step of the engine failed ({type(error).__name__}: {error}). Make a new LLM."
                raise
        return outputs if outputs is not None else EngineCoreOutputs()

    def call_utility(self, method: str, *args: Any) -> Any:
        with self._lock, uninterrupted():
            return getattr(self._core(), method)(*args)

    def shutdown(self) -> None:
        """vLLM: v1/engine/core_client.py::InprocClient.shutdown"""
        core, self.engine_core = self.engine_core, None
        if core is not None:
            core.shutdown()

    def _core(self) -> Any:
        self.check_process()
        if self.engine_core is None:
            raise EngineDeadError(self.dead)
        return self.engine_core


class SyncMPClient(EngineCoreClient):
    """The core in a child process, reached by messages.

    vLLM: v1/engine/core_client.py::SyncMPClient
    """

    def __init__(self, config: EngineConfig, part: Callable[[str], Any]) -> None:
        super().__init__()
        self.config = config
        self.encoder: MsgpackEncoder = part("encoder")()
        self.decoder: MsgpackDecoder = part("decoder")(EngineCoreOutputs)
        self._request_frames: Callable[..., list[Frame]] = part("request_frames")
        self._read_output: Callable[..., EngineCoreOutputs] = part("read_output")
        self.outputs_queue: SimpleQueue[EngineCoreOutputs | Exception] = SimpleQueue()
        self.utility_results: dict[int, Future[Any]] = {}
        self.state = "starting"
        self.dead: EngineDeadError | None = None  # why there will be no more answers
        # the same thread may come in again: a signal's handler that ends the engine runs wherever the thread is
        self._state_lock, self._send_lock, self._end_lock = threading.RLock(), threading.RLock(), threading.RLock()
        # a folder that nobody else can enter, since whoever can write to the sockets can use the engine
        try:
            self._socket_dir = tempfile.mkdtemp(prefix=SOCKET_DIR_PREFIX)
        except OSError as error:
            raise InputError(
                f"There is no room for the sockets ({error}). Make room in the temporary folder, point TMPDIR at "
                "another, or use multiprocess=False."
            ) from error
        self.context = zmq.Context(io_threads=2)
        self.manager: CoreEngineProcManager | None = None
        self._output_thread = threading.Thread(
            target=self._process_output_socket, name="EngineCoreOutputQueueThread", daemon=True
        )
        self._monitor_thread = threading.Thread(target=self._monitor, name="MPClientEngineMonitor", daemon=True)
        try:
            with uninterrupted():
                self.handshake, handshake_address = self._bind(zmq.ROUTER)
                self.input_socket, self._input_address = self._bind(zmq.ROUTER)
                self.output_socket, self._output_address = self._bind(zmq.PULL)
                self.manager = CoreEngineProcManager(handshake_address)
        except BaseException:
            self.shutdown()
            raise

    def connect(self, model_config: ModelConfig) -> None:
        """vLLM: v1/engine/core_client.py::MPClient.__init__"""
        metadata = EngineHandshakeMetadata(self._input_address, self._output_address, self.config, model_config)
        wait_for_engine_startup(self.handshake, metadata, self.manager)
        self.ready = msgspec.msgpack.decode(
            receive_from_core(self.input_socket, self.manager), type=EngineCoreReadyResponse
        )
        self.handshake.close(linger=0)
        self.state = "ready"
        self._output_thread.start()
        self._monitor_thread.start()

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
        with self._state_lock:  # either `end` sees the future, or we see that there has been an end
            self._check_alive()
            self.utility_results[call_id] = future
        try:
            self.send_input(EngineCoreRequestType.UTILITY, (call_id, method, args))
            return future.result()
        finally:
            self.utility_results.pop(call_id, None)

    @boundary("core_client.send")
    def send_input(self, request_type: EngineCoreRequestType, payload: Any) -> list[Frame]:
        """One message to the core: [identity, type, msgpack, arrays…]; returns the frames.

        vLLM: v1/engine/core_client.py::SyncMPClient._send_input
        """
        with self._send_lock:
            self._check_alive()
            frames = self._request_frames(ENGINE_IDENTITY, request_type, payload, self.encoder)
            with uninterrupted():
                self.input_socket.send_multipart(frames, copy=False)
        return frames

    def _check_alive(self) -> None:
        self.check_process()
        if self.dead is not None:
            raise self._death()

    def _death(self) -> EngineDeadError:
        """Why there will be no more answers: an error for each who gets it, since a traceback belongs to one."""
        error = EngineDeadError(str(self.dead))
        error.__cause__ = self.dead.__cause__
        return error

    # ------------------------------------------------------------------ from the core

    @boundary("get_output")
    def get_output(self) -> EngineCoreOutputs:
        """Wait for the next message. It was made by a step that has already happened.

        vLLM: v1/engine/core_client.py::SyncMPClient.get_output
        """
        if self.outputs_queue.empty():  # what arrived before the end is still given out
            self._check_alive()
        outputs = self._wait_for_output()
        if isinstance(outputs, Exception):
            raise outputs
        return outputs

    def _wait_for_output(self) -> EngineCoreOutputs | Exception:
        silent = False
        while True:
            try:
                return self.outputs_queue.get(timeout=None if silent else SILENCE_SECONDS)
            except Empty:
                silent = True
                logger.warning(
                    "The engine core (process %d) has said nothing for %d s. Ctrl-C gives the requests up.",
                    self.manager.process.pid,
                    SILENCE_SECONDS,
                )

    def wake(self) -> None:
        self.outputs_queue.put(EngineCoreOutputs())

    def _process_output_socket(self) -> None:
        """The output thread: decode, and give to whoever waits. If it can't go on, the engine ends.

        vLLM: v1/engine/core_client.py::SyncMPClient.__init__.process_outputs_socket
        """
        error: EngineDeadError | None = None
        try:
            while True:
                alive = self.manager.is_alive()  # asked before: what the core said last is still read
                if self.output_socket.poll(POLL_MS):
                    frames = self.output_socket.recv_multipart()
                    if is_core_dead(frames):
                        break
                    self.receive(frames)
                elif not alive:
                    break
        except Exception as cause:
            error = EngineDeadError(
                f"What the engine core said could not be read ({type(cause).__name__}: {cause}). Make a new LLM."
            )
            error.__cause__ = cause
        finally:
            self.output_socket.close(linger=0)
        if error is None and not self.manager.wait(TERM_TIMEOUT_SECONDS):
            error = EngineDeadError("The engine core said that it ends, but its process ran on. Make a new LLM.")
        if error is not None:
            self.end(error)

    @boundary("core_client.receive")
    def receive(self, frames: Sequence[Frame]) -> EngineCoreOutputs:
        """One message from the core. The answer to a utility call goes to its caller, all else to get_output.

        vLLM: v1/engine/core_client.py::SyncMPClient.__init__.process_outputs_socket
        """
        return self._read_output(frames, self.decoder, self.outputs_queue, self.utility_results)

    def _monitor(self) -> None:
        """The monitor thread: the core's process has ended, asked or unasked.

        vLLM: v1/engine/core_client.py::MPClient.start_engine_core_monitor
        """
        self.manager.wait()
        self._output_thread.join(timeout=DRAIN_SECONDS)  # what the core said before it died comes first
        self.end(EngineDeadError(self.manager.describe_end()))

    # ------------------------------------------------------------------ start and end

    def _bind(self, socket_type: int) -> tuple[zmq.Socket, str]:
        """vLLM: utils/network_utils.py::get_open_zmq_ipc_path"""
        address = f"ipc://{self._socket_dir}/{uuid.uuid4().hex[:12]}"
        try:
            socket = self.context.socket(socket_type)
            socket.set_hwm(0)  # no message is ever dropped
            socket.bind(address)
        except (zmq.ZMQError, UnicodeEncodeError) as error:  # the second: a name that this locale has no letters for
            remedy = "Point TMPDIR at another folder; its path must be short, about 80 plain letters at most."
            if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                remedy = "Allow more open files (ulimit -n)."
            raise InputError(f"No socket could be made in {self._socket_dir} ({error}). {remedy}") from error
        return socket, address

    def end(self, error: EngineDeadError) -> None:
        """End the core and all that belongs to it; `error` says why, to everybody who waits and whoever comes later.

        The order: state, error, those who wait; then process, threads, sockets, folder. Only the first `error` counts.
        Returns when all is gone (to the client's own two threads at once, if somebody else is at it).
        """
        if self.is_forked():
            return
        with uninterrupted():
            with self._state_lock:
                first = self.dead is None
                if first:
                    self.state, self.dead = "ending", error
                    self.outputs_queue.put(error)
            while self.utility_results:
                self.utility_results.popitem()[1].set_exception(self._death())
            if not first and threading.current_thread() in (self._output_thread, self._monitor_thread):
                return
            with self._end_lock:
                if self.state != "ended":
                    self._release()
                    self.state = "ended"

    def shutdown(self) -> None:
        """vLLM: v1/engine/core_client.py::MPClient.shutdown"""
        self.end(EngineDeadError(SHUT_DOWN))

    def _release(self) -> None:
        """Each step may be done again, should a signal's handler have left it by an exception.

        vLLM: v1/engine/core_client.py::BackgroundResources.__call__
        """
        if self.manager is not None:
            self.manager.shutdown()
        here = threading.current_thread()
        for thread in (self._output_thread, self._monitor_thread):
            if thread is not here and thread.is_alive():
                thread.join(timeout=TERM_TIMEOUT_SECONDS)
        if here is self._output_thread or not self._output_thread.is_alive():  # else it is stuck, in its socket maybe
            with self._send_lock:  # a socket is one thread's at a time
                self.context.destroy(linger=0)
        shutil.rmtree(self._socket_dir, ignore_errors=True)
