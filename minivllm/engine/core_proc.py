"""EngineCoreProc: the engine core in a process of its own: `python -m minivllm.engine.core_proc HANDSHAKE PARENT_PID`.

Owns: the core, its sockets, an input thread and an output thread, and the queues between them and the busy loop.
Must not know: text. Nothing but messages (messages.py) comes in or goes out.

    input thread                      main thread                        output thread
    DEALER -> decode -> Request  ->   input_queue  -> step() ->          output_queue -> encode -> PUSH
                        ABORT    ->   aborts_queue (read in mid-step)
"""

import gc
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import msgspec
import zmq

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.request import Request
from minivllm.engine.assemble import assemble, get_executor_class
from minivllm.engine.core import EngineCore
from minivllm.engine.handshake import ENGINE_IDENTITY, SOCKET_DIR_PREFIX, EngineHandshakeMetadata
from minivllm.engine.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
    UtilityOutput,
)
from minivllm.engine.serial import Frame, MsgpackDecoder, MsgpackEncoder
from minivllm.errors import InputError, ModelError
from minivllm.parts import load_part
from minivllm.printable import printable

PARENT_POLL_SECONDS = 0.5
LINGER_MS = 4000


class EngineCoreProc(EngineCore):
    """vLLM: v1/engine/core.py::EngineCoreProc"""

    def __init__(self, *assembled: Any, part: Callable[[str], Any]) -> None:
        """assembled: what EngineCore takes. part: gives the class or function of a seam (parts.py)."""
        super().__init__(*assembled)
        self.input_queue: SimpleQueue[tuple[EngineCoreRequestType, Any]] = SimpleQueue()
        self.output_queue: SimpleQueue[EngineCoreOutputs | bytes] = SimpleQueue()
        self.shutdown_requested = False
        self.encoder: MsgpackEncoder = part("encoder")()  # of the output thread
        self.add_request_decoder: MsgpackDecoder = part("decoder")(EngineCoreRequest)
        self.decoder: MsgpackDecoder = part("decoder")()
        self._read_request: Callable[..., tuple[EngineCoreRequestType, Any]] = part("read_request")

    # ------------------------------------------------------------------ the main thread

    def run_busy_loop(self) -> None:
        """Until shut down: take in what has arrived, then do one step.

        vLLM: v1/engine/core.py::EngineCoreProc.run_busy_loop
        """
        while not self.shutdown_requested:
            self._process_input_queue()
            if not self.shutdown_requested:
                self._process_engine_step()

    def _process_input_queue(self) -> None:
        """Wait while there is nothing to do, then take in all that has arrived.

        vLLM: v1/engine/core.py::EngineCoreProc._process_input_queue
        """
        while not self.scheduler.has_requests() and not self.shutdown_requested:
            if self.input_queue.empty():
                self._clear_aborts()  # they came through the input queue too
            self._handle_client_request(*self.input_queue.get())
        while True:
            try:
                self._handle_client_request(*self.input_queue.get_nowait())
            except Empty:
                return

    def _process_engine_step(self) -> None:
        """A step that has nothing to say sends nothing.

        vLLM: v1/engine/core.py::EngineCoreProc._process_engine_step
        """
        outputs, executed = self.step()
        if outputs is not None:
            self.output_queue.put(outputs)
        if not executed and self.scheduler.has_requests():
            time.sleep(0.001)

    def _handle_client_request(self, request_type: EngineCoreRequestType, payload: Any) -> None:
        """vLLM: v1/engine/core.py::EngineCoreProc._handle_client_request"""
        if request_type is EngineCoreRequestType.ADD:
            self.add_request(payload)
        elif request_type is EngineCoreRequestType.ABORT:
            self.abort_requests(payload)
        elif request_type is EngineCoreRequestType.UTILITY:
            self._call_utility(*payload)

    def _call_utility(self, call_id: int, method: str, args: list[Any]) -> None:
        output = UtilityOutput(call_id)
        try:
            output.result = getattr(self, method)(*args)
        except Exception as error:
            output.failure_message = f"{method} failed: {error}"
        self.output_queue.put(EngineCoreOutputs(utility_output=output))

    def _clear_aborts(self) -> None:
        while not self.aborts_queue.empty():
            self.aborts_queue.get_nowait()

    # ------------------------------------------------------------------ the input thread

    def process_input_sockets(self, context: zmq.Context, address: str, ready: threading.Event) -> None:
        """Decode what arrives, and make Requests of it, while the main thread runs the model.

        vLLM: v1/engine/core.py::EngineCoreProc.process_input_sockets
        """
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.IDENTITY, ENGINE_IDENTITY)
            socket.connect(address)
            # a ROUTER can't address a peer that has not spoken
            socket.send(msgspec.msgpack.encode(self.ready_response()))
            ready.set()
            while True:
                frames = socket.recv_multipart()
                self.receive(frames)

    @boundary("core.receive")
    def receive(self, frames: Sequence[Frame]) -> tuple[EngineCoreRequestType, Any]:
        """One message from the caller: [type, msgpack, arrays…]. Puts it where the main thread finds it.

        vLLM: v1/engine/core.py::EngineCoreProc.process_input_sockets
        """
        return self._read_request(frames, self._decode_request, self.decoder, self.input_queue, self.aborts_queue)

    def _decode_request(self, frames: Sequence[Frame]) -> Request | None:
        """A request that can't be made sense of ends with an error; the others go on."""
        request = self.add_request_decoder.decode(frames)
        try:
            return self.preprocess_add_request(request)
        except Exception as error:
            print(f"[core] request {printable(request.request_id)} refused: {printable(error)}", file=sys.stderr)
            failed = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR)
            self.output_queue.put(EngineCoreOutputs([failed]))
            return None

    # ------------------------------------------------------------------ the output thread

    def process_output_sockets(self, context: zmq.Context, address: str) -> None:
        """Encode and send, while the main thread runs the next step.

        vLLM: v1/engine/core.py::EngineCoreProc.process_output_sockets
        """
        with context.socket(zmq.PUSH) as socket:
            socket.setsockopt(zmq.LINGER, LINGER_MS)
            socket.connect(address)
            while True:
                outputs = self.output_queue.get()
                if outputs == ENGINE_CORE_DEAD:
                    socket.send(outputs)
                    return
                self.send(socket, outputs)

    @boundary("core.send")
    def send(self, socket: zmq.Socket, outputs: EngineCoreOutputs) -> list[Frame]:
        """One message to the caller: [msgpack, arrays…].

        vLLM: v1/engine/core.py::EngineCoreProc.process_output_sockets
        """
        frames = self.encoder.encode(outputs)
        socket.send_multipart(frames, copy=False)
        return frames

    def request_shutdown(self) -> None:
        """Leave the busy loop; safe to call from a signal handler."""
        self.shutdown_requested = True
        self.input_queue.put((EngineCoreRequestType.WAKEUP, None))


# ---------------------------------------------------------------------- the process


def make_core(config: EngineConfig, executor: Any, parts: Mapping[str, Any]) -> EngineCoreProc:
    """A core for a process of its own. Its arguments: as assemble()."""
    return assemble(config, executor, parts, partial(EngineCoreProc, part=partial(load_part, parts=parts)))


def run_engine_core(handshake_address: str, parent_pid: int) -> None:
    """Shake hands, build the core, serve until told to stop.

    vLLM: v1/engine/core.py::EngineCoreProc.run_engine_core
    """
    socket_dir = _socket_dir(handshake_address)
    threading.Thread(target=_exit_with_parent, args=(parent_pid, socket_dir), daemon=True).start()
    context = zmq.Context()
    handshake = context.socket(zmq.DEALER)
    handshake.setsockopt(zmq.IDENTITY, ENGINE_IDENTITY)
    handshake.setsockopt(zmq.LINGER, LINGER_MS)
    handshake.connect(handshake_address)
    handshake.send(msgspec.msgpack.encode({"status": "HELLO"}))
    metadata = msgspec.msgpack.decode(handshake.recv(), type=EngineHandshakeMetadata)
    config = metadata.config
    try:
        core = make_core(config, get_executor_class()(config, metadata.model_config), config.parts)
    except (InputError, ModelError) as error:  # the caller's mistake: it gets the same error, without a traceback
        failure = {"status": "FAILED", "error": type(error).__name__, "message": str(error)}
        handshake.send(msgspec.msgpack.encode(failure))
        handshake.close()
        context.term()
        return
    signal.signal(signal.SIGTERM, lambda *_: core.request_shutdown())
    recorder = None
    if metadata.config.trace:
        from minivllm.trace.attach import trace_core

        recorder = trace_core(core, metadata.model_config, partial(_ask_clock, handshake))
    ready = threading.Event()
    end_with = partial(_end_with, socket_dir=socket_dir)
    threading.Thread(
        target=end_with,
        args=(core.process_input_sockets, context, metadata.input_address, ready),
        name="input",
        daemon=True,
    ).start()
    output_thread = threading.Thread(
        target=end_with,
        args=(core.process_output_sockets, context, metadata.output_address),
        name="output",
        daemon=True,
    )
    output_thread.start()
    ready.wait()
    gc.freeze()  # what is here now stays: the collector need not walk through all of torch again and again
    handshake.send(msgspec.msgpack.encode({"status": "READY"}))
    try:
        core.run_busy_loop()
    finally:
        # after an error too: the caller must not wait for an answer
        core.output_queue.put(ENGINE_CORE_DEAD)
        output_thread.join(timeout=LINGER_MS / 1000)
        core.shutdown()
        if recorder is not None:
            recorder.close()


def _ask_clock(handshake: zmq.Socket) -> tuple[int, int]:
    """When the caller had our question, and when it answered: ns on its clock."""
    handshake.send(msgspec.msgpack.encode({"status": "CLOCK"}))
    return msgspec.msgpack.decode(handshake.recv())


def _end_with(task: Callable[..., None], *args: Any, socket_dir: Path) -> None:
    """Run a thread's task; its error ends the process, since the caller would wait for ever for what it should do."""
    try:
        task(*args)
    except BaseException:
        _leave(1, socket_dir)


def _exit_with_parent(parent_pid: int, socket_dir: Path) -> None:
    """End this process when the caller's has ended in whatever way."""
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_SECONDS)
    _leave(1, socket_dir)


def _socket_dir(handshake_address: str) -> Path:
    return Path(handshake_address.removeprefix("ipc://")).parent


def _leave(status: int, socket_dir: Path) -> NoReturn:
    """End the process, with the error that is being handled as its last words, and leave no socket behind: the caller
    may be gone. Not by an ordinary exit, which would wait for the input thread, and that waits in its socket."""
    with suppress(OSError, ValueError):  # a stderr that nobody reads any more
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stderr.flush()
    if socket_dir.name.startswith(SOCKET_DIR_PREFIX):
        shutil.rmtree(socket_dir, ignore_errors=True)
    os._exit(status)


def main() -> NoReturn:
    """The process's whole life. Its arguments: the address of the handshake, the caller's process id."""
    handshake_address, parent_pid = sys.argv[1], int(sys.argv[2])
    socket_dir = _socket_dir(handshake_address)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    signal.signal(signal.SIGTERM, lambda *_: _leave(0, socket_dir))  # until there is a loop to leave
    try:
        import minivllm.worker.executor  # noqa: F401  (now, while the caller reads the model's files)

        run_engine_core(handshake_address, parent_pid)
    except BaseException:
        _leave(1, socket_dir)
    _leave(0, socket_dir)


if __name__ == "__main__":
    main()
