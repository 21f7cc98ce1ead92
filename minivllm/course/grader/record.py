"""The trace of a workload that fails, made with the student's parts: something to look at.

Owns: how a run without a model is recorded. Interface: trace_workload (an observer), save_trace.
Must not know: what went wrong.
"""

from pathlib import Path
from typing import Any

from minivllm import __version__
from minivllm.course.grader.child import Parts
from minivllm.course.grader.judge import Subject
from minivllm.course.grader.observe import HASH_SEED
from minivllm.proof.lockstep.recording import Workload, without_results
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps

MAX_LINES = 20_000


def trace_workload(parts: Parts, asked: dict[str, Any], seen: list[Any]) -> list[str]:
    """The lines of the trace, up to the end of a step, or to the crash."""
    from minivllm.trace.clock import make_clock
    from minivllm.trace.recorder import MemorySink, Recorder
    from minivllm.trace.schema import encode

    workload, last = asked["workload"], asked["step"]
    core = build_core(workload, parts, hash_seed=HASH_SEED)
    sink = MemorySink()
    recorder = Recorder(sink, "core", make_clock("logical"), 0)
    manager = core.scheduler.kv_cache_manager
    recorder.observe(core.scheduler, manager, manager.block_pool)
    try:
        for step in iterate_steps(workload, core):
            if step["step"] >= last:
                break
    except Exception:  # the trace shows how far it came
        pass
    recorder.close()
    return [encode(line).decode() for line in sink.lines[:MAX_LINES]]


def save_trace(subject: Subject, task_id: str, workload: Workload, step: int, path: Path) -> int | None:
    """Write the trace of a failing workload; returns the number of the event of that step's `schedule`, if any."""
    from minivllm.trace.replay import Trace
    from minivllm.trace.schema import Open, Process, decode, new_header

    asked = {"workload": without_results("scheduler", workload), "step": step}
    (answer,) = list(subject.call_many(task_id, "record:trace_workload", [asked]))
    if answer.error is not None or not answer.value:
        return None
    lines = [decode(line.encode()) for line in answer.value]
    events = [line for line in lines if not isinstance(line, Open) and hasattr(line, "seq")]
    config = dict(workload["config"])
    process = Process("core", complete=True)
    header = new_header("logical", 0, process, __version__, config=config, num_gpu_blocks=config["num_blocks"])
    trace = Trace(header, sorted(events, key=lambda event: event.seq))
    path.parent.mkdir(parents=True, exist_ok=True)
    trace.save(path)
    found = [event.seq for event in trace.filter(kind="schedule") if event.step == step + 1]
    return found[0] if found else None
