"""The core's side of a conversation in two processes: the engine's own core, with a script in place of a model.

Owns: the core's process, its threads and its part of the trace; the names of what both sides share.
Interface: be_core; address_of, make_header, INPUT, OUTPUT, TRACE, CORE_PART, LIFE_S.
Must not know: the caller, or what is asked about the conversation. What a case is, two_processes.py says.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import zmq

from minivllm import __version__
from minivllm.config import EngineConfig
from minivllm.core.sched_output import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader.child import Parts
from minivllm.engine.core_proc import EngineCoreProc
from minivllm.engine.messages import ENGINE_CORE_DEAD, EngineCoreRequest
from minivllm.engine.routing import read_request
from minivllm.engine.serial import MsgpackDecoder, MsgpackEncoder
from minivllm.proof.lockstep.scheduler import make_config
from minivllm.trace.attach import LOGICAL_HASH_SEED
from minivllm.trace.recorder import Recorder
from minivllm.trace.rendezvous import CoreSide
from minivllm.trace.schema import Header, Process, new_header
from minivllm.trace.store import PartFile

LIFE_S = 30  # a core that nobody ends, ends itself
INPUT, OUTPUT, TRACE, CORE_PART = "input", "output", "trace", "core.part"  # files of the conversation's folder


class ScriptedExecutor:
    """vLLM: v1/executor/uniproc_executor.py::UniProcExecutor (role)"""

    def __init__(self, case: dict[str, Any]) -> None:
        self.outputs = {request["id"]: request["output"] for request in case["requests"]}
        self.prompts = {request["id"]: len(request["prompt"]) for request in case["requests"]}
        self.driver_worker = SimpleNamespace(dtype="none", device="none", backend=SimpleNamespace(name="script"))
        self.plan: SchedulerOutput | None = None

    def get_block_bytes(self) -> int:
        return 1

    def determine_available_memory(self) -> int:
        return 0

    def initialize_from_config(self, config: EngineConfig, num_blocks: int) -> None:
        """There is no cache."""

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        self.plan = plan
        return None if plan.num_scheduled_tokens else EMPTY_MODEL_RUNNER_OUTPUT

    def sample_tokens(self) -> ModelRunnerOutput:
        """The next token of the script for every request whose tokens are all computed."""
        known = self.plan.scheduled_cached_reqs
        before = {new.req_id: (new.num_computed_tokens, 0) for new in self.plan.scheduled_new_reqs}
        numbers = zip(known.req_ids, known.num_computed_tokens, known.num_output_tokens, strict=True)
        before |= {req_id: (num_computed, num_outputs) for req_id, num_computed, num_outputs in numbers}
        req_ids, sampled = list(self.plan.num_scheduled_tokens), []
        for req_id, n in self.plan.num_scheduled_tokens.items():
            num_computed, num_outputs = before[req_id]
            complete = num_computed + n >= self.prompts[req_id] + num_outputs
            sampled.append([self.outputs[req_id][num_outputs]] if complete else [])
        return ModelRunnerOutput(req_ids, {req_id: row for row, req_id in enumerate(req_ids)}, sampled)


def be_core(case: dict[str, Any], parts: Parts, folder: Path) -> None:
    """Serve the case to the caller who shares the folder. Does not return: the caller ends this process.

    vLLM: v1/engine/core.py::EngineCoreProc.run_engine_core (role)
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIFE_S)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    config = msgspec.structs.replace(make_config(case["config"]), hash_seed=LOGICAL_HASH_SEED)
    model_config = SimpleNamespace(max_model_len=config.max_model_len, sliding_window=None)
    core = EngineCoreProc(config, model_config, _executor_of(case))
    core.encoder = parts.get("MsgpackEncoder", MsgpackEncoder)()
    core.add_request_decoder = parts.get("MsgpackDecoder", MsgpackDecoder)(EngineCoreRequest)
    core.decoder = parts.get("MsgpackDecoder", MsgpackDecoder)()
    core._read_request = parts.get("read_request", read_request)
    signal.signal(signal.SIGTERM, lambda *_: core.request_shutdown())
    meeting = CoreSide(str(folder / TRACE))
    recorder = Recorder(PartFile(str(folder / CORE_PART), make_header(case, "core"), warn=False), "core", meeting.clock)
    core.scheduler.clock = meeting.clock.seconds
    recorder.observe(core, core.scheduler)
    meeting.attach(core)
    context, ready = zmq.Context(), threading.Event()
    _start_thread(INPUT, core.process_input_sockets, context, address_of(folder, INPUT), ready)
    _start_thread(OUTPUT, core.process_output_sockets, context, address_of(folder, OUTPUT))
    ready.wait()
    core.run_busy_loop()
    recorder.close()
    core.output_queue.put(ENGINE_CORE_DEAD)
    while True:  # the socket sends in a thread of its own: who hears the last word ends this process
        signal.pause()


def _start_thread(name: str, task: Callable[..., None], *arguments: Any) -> None:
    """A thread of the core; its error ends the process, since the caller would wait in vain."""

    def run() -> None:
        try:
            task(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=run, name=name, daemon=True).start()


def _executor_of(case: dict[str, Any]) -> Any:
    return lambda config, model_config: ScriptedExecutor(case)


# ---------------------------------------------------------------------- what both sides share


def address_of(folder: Path, name: str) -> str:
    """The socket INPUT or OUTPUT of a conversation."""
    return f"ipc://{folder / name}"


def make_header(case: dict[str, Any], process: str) -> Header:
    """The header of a process's part of the trace."""
    config = dict(case["config"])
    return new_header("logical", 0, Process(process), __version__, config=config, num_gpu_blocks=config["num_blocks"])
