"""Two processes for the labs: a caller and the engine's own core, which talk through sockets and take turns.

Owns: the caller of a conversation, and the whole trace; the core's side is scripted_core.py.
Interface: converse, Conversation, messages_of, CONFIG; talked (an observer).
Must not know: what is asked about a conversation.

The core is EngineCoreProc with a scheduler of its own; its tokens come from a script, so nothing here needs torch and a
conversation takes some hundredths of a second. The clock is logical: the two take turns (trace/rendezvous.py), and the
same case gives the same trace every time.

A case: {config, as in a recorded workload; requests, each {id, prompt, output, stop, only_final}; pieces, the bytes of
each token id; acts, each [n, "add" | "abort" | "reset", request id]}: what the caller does once it has taken n messages
with outputs in. A request ends after its output by its length, unless a stop string or an act ends it before.
"""

import os
import shutil
import signal
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import zmq

from minivllm.course.grader.byte_stream import ByteStream
from minivllm.course.grader.child import Parts
from minivllm.course.grader.scripted_core import (
    CORE_PART,
    INPUT,
    LIFE_S,
    OUTPUT,
    TRACE,
    address_of,
    be_core,
    make_header,
)
from minivllm.engine.core_client import POLL_MS, EngineCoreClient, SyncMPClient
from minivllm.engine.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
)
from minivllm.engine.output_processor import OutputProcessor
from minivllm.engine.routing import is_core_dead, read_output, request_frames
from minivllm.engine.serial import MsgpackDecoder, MsgpackEncoder
from minivllm.errors import EngineDeadError
from minivllm.sampling_params import RequestOutputKind, SamplingParams
from minivllm.trace.merge import merge
from minivllm.trace.recorder import MemorySink, Recorder
from minivllm.trace.rendezvous import CallerSide
from minivllm.trace.replay import Trace
from minivllm.trace.store import Part, read

CONFIG: dict[str, Any] = {  # of a small core
    "block_size": 4,
    "num_blocks": 20,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 8,
    "max_model_len": 32,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
}
PATIENCE_S = 3.0  # the caller waits so long for an answer that does not come
CALL_ID = 7


class Silence(Exception):
    """The caller has waited long enough for something that does not come."""


@dataclass(slots=True)
class Conversation:
    """What came of a case. taken: for each message with outputs, {request id: new tokens}. texts: what the caller got
    in the end. calls: what the utility calls returned. last_word: how the core's end looked to the caller.
    """

    taken: list[dict[str, list[int]]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)
    last_word: str = ""
    trace: Trace | None = None


def converse(case: dict[str, Any], parts: Parts, seen: list[Any] | None = None) -> Conversation:
    """Run a case in two processes. parts: classes and functions of lab 01 and lab 12 in place of the engine's own.

    seen: what was taken in is put here too, as it comes.
    """
    folder = Path(tempfile.mkdtemp(prefix="minivllm-"))
    try:
        pid = os.fork()
        if pid == 0:
            try:
                be_core(case, parts, folder)
            finally:
                os._exit(1)  # whatever happens, this copy must not go on as its parent
        return _be_caller(case, parts, folder, pid, Conversation(taken=[] if seen is None else seen))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def talked(parts: Parts, asked: dict[str, Any], seen: list[Any]) -> dict[str, Any]:
    """A conversation as plain values: what was taken in, what was called, how it ended, every message that crossed."""
    told = converse(asked, parts, seen)
    messages = [[message["by"], message["type"], message["reqs"]] for message in messages_of(told.trace)]
    return {"taken": told.taken, "calls": told.calls, "last_word": told.last_word, "messages": messages}


def messages_of(trace: Trace) -> list[dict[str, Any]]:
    """Every message between the two processes, in the order in which they were sent: by (caller or core), type, reqs,
    step (of the core, for what a step brought).
    """
    return [
        {"by": event.proc, "type": event.message_type, "reqs": list(event.reqs), "step": event.step}
        for event in trace.filter(kind=("core_client.send", "core.send"))
    ]


# ---------------------------------------------------------------------- the caller's process


class _PatientQueue(SimpleQueue):
    """A queue whose `get` gives up."""

    def get(self, timeout: float | None = None) -> Any:
        try:
            return super().get(timeout=PATIENCE_S)
        except Empty:
            raise Silence("the caller waits for outputs, and none come") from None


class LabClient(SyncMPClient):
    """The engine's client, with a core that has been started already and parts that are objects.

    vLLM: v1/engine/core_client.py::SyncMPClient (role)
    """

    def __init__(self, folder: Path, pid: int, parts: Parts) -> None:
        EngineCoreClient.__init__(self)
        self.pid = pid
        self.encoder = parts.get("encoder", MsgpackEncoder)()
        self.decoder = parts.get("decoder", MsgpackDecoder)(EngineCoreOutputs)
        self._request_frames = parts.get("request_frames", request_frames)
        self._read_output = parts.get("read_output", read_output)
        self._is_core_dead = parts.get("is_core_dead", is_core_dead)
        self.outputs_queue: SimpleQueue[EngineCoreOutputs | Exception] = _PatientQueue()
        self.utility_results: dict[int, Future[Any]] = {}
        self.dead: EngineDeadError | None = None
        self.last_word = ""
        self.context = zmq.Context()
        self.input_socket = self.context.socket(zmq.ROUTER)
        self.input_socket.bind(address_of(folder, INPUT))
        self.output_socket = self.context.socket(zmq.PULL)
        self.output_socket.bind(address_of(folder, OUTPUT))
        self._taken_for_dead = self._closing = False
        self._send_lock = threading.RLock()
        self._output_thread = threading.Thread(target=self._listen, name="EngineCoreOutputQueueThread", daemon=True)

    def wait_until_ready(self) -> None:
        """The core's first message says that it listens. Raises EngineDeadError when it does not come."""
        if not self.input_socket.poll(LIFE_S * 1000):
            raise EngineDeadError("The core of this conversation did not start.")
        self.input_socket.recv_multipart()

    def call_utility(self, method: str, *args: Any) -> Any:
        """As the engine's client does it, but that it gives up."""
        future = self.utility_results[CALL_ID] = Future()
        self.send_input(EngineCoreRequestType.UTILITY, (CALL_ID, method, args))
        try:
            return future.result(PATIENCE_S)
        except TimeoutError:
            raise Silence("the caller waits for the answer to its call, and none comes") from None

    def receive(self, frames: Any) -> EngineCoreOutputs:
        """What goes wrong in here is raised where the caller waits, so that nobody waits in vain."""
        try:
            if self._taken_for_dead:
                raise EngineDeadError("a message was taken for the core's last word")
            return self._read_output(frames, self.decoder, self.outputs_queue, self.utility_results)
        except Exception as error:
            self.outputs_queue.put(error)
            return EngineCoreOutputs()

    def start_listening(self) -> None:
        self._output_thread.start()

    def _listen(self) -> None:
        """The output thread, up to the core's last word."""
        while not self._closing:
            if not self.output_socket.poll(POLL_MS):
                continue
            frames = self.output_socket.recv_multipart()
            is_last = frames == [ENGINE_CORE_DEAD]
            try:
                self._taken_for_dead = self._is_core_dead(frames)
            except Exception as error:
                self.outputs_queue.put(error)
            if not (is_last and self._taken_for_dead):
                self.receive(frames)
            if is_last:
                unheard = "passed over" if self.outputs_queue.empty() else "decoded as a message"
                self.last_word = "heard" if self._taken_for_dead else unheard
                return

    def shutdown(self) -> None:
        """Ask the core to end, and hear its last word."""
        os.kill(self.pid, signal.SIGTERM)
        self._output_thread.join(PATIENCE_S)
        self.close()

    def close(self) -> None:
        """End the core, and what is left. May be called again."""
        pid, self.pid = self.pid, 0
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._closing = True
            if self._output_thread.is_alive():
                self._output_thread.join(PATIENCE_S)
            self.context.destroy(linger=0)


def _be_caller(case: dict[str, Any], parts: Parts, folder: Path, pid: int, told: Conversation) -> Conversation:
    client = LabClient(folder, pid, parts)
    try:
        client.wait_until_ready()
        processor = _make_processor(case, parts)
        meeting = CallerSide(str(folder / TRACE))
        sink = MemorySink()
        recorder = Recorder(sink, "caller", meeting.clock)
        meeting.attach_inside(client)
        recorder.observe(client, processor)
        meeting.attach_outside(client)
        client.start_listening()
        _talk(case, client, processor, told)
        client.shutdown()
        recorder.close()
        told.last_word = client.last_word
    finally:
        client.close()
    parts_of_trace = [Part(make_header(case, "caller"), sink.lines, True, False), read(folder / CORE_PART)]
    told.trace = Trace(*merge(parts_of_trace))
    return told


def _make_processor(case: dict[str, Any], parts: Parts) -> OutputProcessor:
    pieces = {int(token): piece for token, piece in case.get("pieces", {}).items()}
    tokenizer = SimpleNamespace(backend_tokenizer=pieces) if pieces else None
    return parts.get("output_processor", OutputProcessor)(tokenizer, text_stream_class=ByteStream)


def _talk(case: dict[str, Any], client: Any, processor: OutputProcessor, told: Conversation) -> None:
    """What the caller does, message by message."""
    requests = {request["id"]: request for request in case["requests"]}
    acts = [tuple(act) for act in case["acts"]]
    while acts or processor.has_unfinished_requests():
        while acts and (acts[0][0] <= len(told.taken) or not processor.has_unfinished_requests()):
            _, what, req_id = acts.pop(0)
            if what == "add":
                request = _message(requests[req_id])
                processor.add_request(request, None)
                client.add_request(request)
            elif what == "abort":
                client.abort_requests(processor.abort_requests([req_id]))
            else:
                told.calls.append(client.call_utility("reset_prefix_cache"))
        if not processor.has_unfinished_requests():
            continue
        outputs = client.get_output()
        told.taken.append({output.request_id: list(output.new_token_ids) for output in outputs.outputs})
        processed = processor.process_outputs(outputs.outputs, outputs.timestamp)
        for output in processed.request_outputs:
            told.texts[output.request_id] = output.outputs[0].text
        if processed.reqs_to_abort:
            client.abort_requests(processed.reqs_to_abort)


def _message(request: dict[str, Any]) -> EngineCoreRequest:
    params = SamplingParams(
        temperature=0,
        max_tokens=len(request["output"]),
        stop=request.get("stop", []),
        output_kind=RequestOutputKind.FINAL_ONLY if request.get("only_final") else RequestOutputKind.CUMULATIVE,
    )
    return EngineCoreRequest(request["id"], request["prompt"], params, 0.0, external_req_id=request["id"])
