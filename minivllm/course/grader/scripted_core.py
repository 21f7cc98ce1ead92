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
from typing import Any

import msgspec
import zmq

from minivllm import __version__
from minivllm.course.grader.child import Parts
from minivllm.engine.core_proc import make_core
from minivllm.engine.messages import ENGINE_CORE_DEAD
from minivllm.proof.lockstep.scheduler import make_config
from minivllm.trace.attach import LOGICAL_HASH_SEED
from minivllm.trace.recorder import Recorder
from minivllm.trace.rendezvous import CoreSide
from minivllm.trace.schema import Header, Process, new_header
from minivllm.trace.store import PartFile
from minivllm.worker.recorded_executor import RecordedExecutor

LIFE_S = 30  # a core that nobody ends, ends itself
INPUT, OUTPUT, TRACE, CORE_PART = "input", "output", "trace", "core.part"  # files of the conversation's folder


def be_core(case: dict[str, Any], parts: Parts, folder: Path) -> None:
    """Serve the case to the caller who shares the folder. Does not return: the caller ends this process.

    vLLM: v1/engine/core.py::EngineCoreProc.run_engine_core (role)
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIFE_S)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    config = msgspec.structs.replace(make_config(case["config"]), hash_seed=LOGICAL_HASH_SEED)
    outputs = {request["id"]: request["output"] for request in case["requests"]}
    core = make_core(config, RecordedExecutor(outputs), parts)
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


# ---------------------------------------------------------------------- what both sides share


def address_of(folder: Path, name: str) -> str:
    """The socket INPUT or OUTPUT of a conversation."""
    return f"ipc://{folder / name}"


def make_header(case: dict[str, Any], process: str) -> Header:
    """The header of a process's part of the trace."""
    config = dict(case["config"])
    return new_header("logical", 0, Process(process), __version__, config=config, num_gpu_blocks=config["num_blocks"])
