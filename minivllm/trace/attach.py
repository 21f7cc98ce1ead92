"""Attach a trace to a live engine. Its two composition roots call this, and nobody else, inside `if config.trace:`.

Owns: which objects of an engine are watched, and what the header says of it.
Interface: CallerTrace (in the caller's process), trace_core (in the core's).
Must not know: torch, or any class of the engine: it is handed the objects.
"""

import hashlib
import importlib.util
import logging
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from minivllm import __version__
from minivllm.trace.clock import Clock, LogicalClock, Offset, make_clock, measure_offset
from minivllm.trace.merge import merge
from minivllm.trace.recorder import Recorder
from minivllm.trace.rendezvous import CallerSide, CoreSide, forget_meeting
from minivllm.trace.schema import Header, Process, new_header
from minivllm.trace.store import PartFile, TraceError, check_writable, read, warn_not_written, write
from minivllm.trace.values import hidden_states_kept

logger = logging.getLogger(__name__)

LOGICAL_HASH_SEED = "minivllm"  # unless the config has one
# part of the environment, not of what is compared
PATH_SETTINGS = ("model", "tokenizer", "trace")
PACKAGES = ("torch", "triton", "transformers", "tokenizers", "safetensors", "numpy", "msgspec", "pyzmq")


class CallerTrace:
    """A trace, from the start of an engine to its shutdown. `config` is what the engine must be built with."""

    _runs = count()  # of this process: two engines may write to one target

    def __init__(self, config: Any) -> None:
        self.target = Path(config.trace).expanduser().absolute()
        self.owner_pid = os.getpid()
        self.recorder: Recorder | None = None
        self.clock: Clock = make_clock(config.trace_clock)
        changes: dict[str, Any] = {"trace": None}
        if check_writable(self.target):
            # where the core's process puts its part
            changes["trace"] = f"{self.target}.{os.getpid()}-{next(self._runs)}"
        if self.deterministic and config.hash_seed is None:
            changes["hash_seed"] = LOGICAL_HASH_SEED
        self.config = msgspec.structs.replace(config, **changes)
        self._settings = config

    @property
    def deterministic(self) -> bool:
        return isinstance(self.clock, LogicalClock)

    def input_sources(self) -> dict[str, Callable]:
        """What an InputProcessor gets, so that two recordings are equal: ids and arrival times that are counted."""
        if not self.deterministic:
            return {}
        ids, arrivals = count(), count()
        return {"id_suffix": lambda: f"{next(ids):08x}", "clock": lambda: float(next(arrivals))}

    def attach(self, llm_engine: Any, model_config: Any) -> None:
        """Watch the caller's side of an engine; in process, its core too."""
        if self.config.trace is None:
            return
        client = llm_engine.engine_core
        ready = client.ready
        config = msgspec.structs.replace(self._settings, hash_seed=self.config.hash_seed)
        header = _header(
            Process("caller"),
            config.resolved(ready.max_model_len),
            model_config,
            num_gpu_blocks=ready.num_gpu_blocks,
            ran_as=_ran_as(ready),
        )
        core = getattr(client, "engine_core", None)
        meeting = CallerSide(self.config.trace) if core is None and self.deterministic else None
        if meeting is not None:
            self.clock = meeting.clock
            meeting.attach_inside(client)
        sink = PartFile(f"{self.config.trace}.caller.part", header)
        self.recorder = Recorder(sink, "caller", self.clock, config.trace_detail, config.trace_watch)
        self.recorder.observe(llm_engine, llm_engine.input_processor, llm_engine.output_processor, client)
        if core is not None:
            _observe_core(self.recorder, core)
        if meeting is not None:
            meeting.attach_outside(client)

    def discard(self) -> None:
        """The engine could not start, and its core has ended: leave nothing of the recording."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close()
        if self.config.trace is not None:
            forget_meeting(self.config.trace)
            for path in self._parts():
                path.unlink(missing_ok=True)

    def observe(self, *owners: Any) -> None:
        """Watch more objects of the caller's side."""
        if self.recorder is not None:
            self.recorder.observe(*owners)

    def close(self) -> None:
        """Merge the parts, after the core has ended. May be called again; never raises. Not in a forked child, where
        they are the other process's."""
        if os.getpid() != self.owner_pid:
            return
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return
        recorder.close()
        forget_meeting(self.config.trace)
        paths = [path for path in self._parts() if path.exists()]
        warned = recorder.sink.failed
        try:
            parts = [read(path, limit=path.stat().st_size) for path in paths]
            write(self.target, *merge(parts))
        except OSError as error:
            if not warned:
                warn_not_written(self.target, error)
        except TraceError as error:
            if not warned:
                logger.warning("The trace %s could not be put together (%s). Its parts are kept.", self.target, error)
        else:
            for path in paths:
                path.unlink(missing_ok=True)
            if not warned and not all(part.complete for part in parts):
                logger.warning(
                    "The trace %s lacks the end of the core's part: its process was killed, or the disk was full.",
                    self.target,
                )

    def _parts(self) -> list[Path]:
        return [Path(f"{self.config.trace}.{proc}.part") for proc in ("caller", "core")]


def trace_core(core: Any, model_config: Any, ask: Callable[[], tuple[int, int]]) -> Recorder:
    """Watch a core that has a process of its own; close the result at its end.

    ask: one exchange with the caller, which answers with two stamps of its own clock.
    """
    config = core.config
    meeting = CoreSide(config.trace) if config.trace_clock == "logical" else None
    clock = meeting.clock if meeting is not None else make_clock(config.trace_clock)
    offset = measure_offset(ask, clock) if clock.kind == "monotonic" else Offset()
    header = _header(
        Process("core", offset.offset_ns, offset.error_bound_ns), config, model_config, core.num_gpu_blocks, ran_as={}
    )
    sink = PartFile(f"{config.trace}.core.part", header, warn=False)
    recorder = Recorder(sink, "core", clock, config.trace_detail, config.trace_watch)
    _observe_core(recorder, core)
    if meeting is not None:
        meeting.attach(core)
    return recorder


def _observe_core(recorder: Recorder, core: Any) -> None:
    manager = core.scheduler.kv_cache_manager
    executor = core.model_executor
    worker = executor.driver_worker
    runner = worker.model_runner
    if isinstance(recorder.clock, LogicalClock):
        core.scheduler.clock = recorder.clock.seconds
    recorder.observe(core, core.scheduler, manager, manager.block_pool, executor, worker)
    recorder.observe(runner, runner.input_batch, runner.backend, runner.model, runner.sampler)
    if recorder.detail >= 2:
        for layer in runner.model.layers:
            layer.forward = hidden_states_kept(layer.forward, recorder.notes)


# ---------------------------------------------------------------------- the header


def _header(process: Process, config: Any, model_config: Any, num_gpu_blocks: int, ran_as: dict[str, str]) -> Header:
    settings = msgspec.to_builtins(config)
    model = msgspec.to_builtins(model_config)
    paths = {name: settings.pop(name) for name in PATH_SETTINGS}
    settings.pop("check_steps")  # it changes no run, and parts say it for themselves
    clock, detail, watch = (settings.pop(f"trace_{name}") for name in ("clock", "detail", "watch"))
    return new_header(
        clock,
        detail,
        process,
        __version__,
        config=settings | ran_as | {"parts": {seam: _without_folder(spec) for seam, spec in settings["parts"].items()}},
        model={name: value for name, value in model.items() if name != "path"},
        num_gpu_blocks=num_gpu_blocks,
        watch=watch if detail >= 2 else {},
        parts_sha256=_parts_sha256(settings["parts"]),
        environment={
            **({} if clock == "logical" else {"pids": {process.name: os.getpid()}}),
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            **_versions(),
            # names, not paths: a trace may be shown to others
            "model": Path(paths["model"] or model["path"]).name,
            "tokenizer": Path(paths["tokenizer"]).name if paths["tokenizer"] else None,
            **({} if clock == "logical" else _started()),
        },
    )


def _ran_as(ready: Any) -> dict[str, str]:
    """What "auto" became; and why it is not the fast backend, where that could not be had."""
    found = {"dtype": ready.dtype, "device": ready.device, "attention_backend": ready.attention_backend}
    return found if ready.attention_fallback is None else {**found, "attention_fallback": ready.attention_fallback}


def _without_folder(spec: str) -> str:
    """`scheduler.py:Scheduler` for `/home/me/scheduler.py:Scheduler`; a module's name stays as it is."""
    place, _, symbol = spec.rpartition(":")
    return f"{Path(place).name}:{symbol}" if place.endswith(".py") else spec


def _parts_sha256(parts: dict[str, str]) -> dict[str, str]:
    """Which version of a part it was. Both sides can tell; a module's file is found without importing it."""
    found = {}
    for seam, spec in parts.items():
        place = spec.rpartition(":")[0]
        if not place.endswith(".py"):
            module = importlib.util.find_spec(place)
            place = module.origin if module is not None else None
        if place is not None:
            found[seam] = hashlib.sha256(Path(place).expanduser().read_bytes()).hexdigest()
    return found


def _started() -> dict[str, Any]:
    """A stamp and its wall-clock time. Left out where two recordings shall be equal."""
    return {"clock_ns": time.perf_counter_ns(), "unix_time": time.time()}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # not needed on every machine
    return found
