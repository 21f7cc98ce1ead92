"""Events inside B17 and B18: launches of kernels, from detail 1, and what the programs of a launch did, at detail 2.

Only attention_backend="triton" launches kernels. The backend brings a probe that knows how to look at them; nothing
here does. Programs can be watched in Triton's interpreter alone, in the layers and steps that the watch names.
"""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from typing import Any

import msgspec

from minivllm.trace.events import Call, Event
from minivllm.trace.events_worker import TensorInfo

Runs = dict[str, list[list[int]]]  # tensor -> runs; in a cache [block, first offset, last offset, head]


class KernelLaunch(Event, tag="kernel.launch"):
    """A kernel is launched. On a GPU the call returns before the kernel has run."""

    min_detail = 1
    name: str | None = None  # of the kernel
    grid: list[int] = []  # programs along each axis
    tensors: dict[str, TensorInfo] = {}
    numbers: dict[str, Any] = {}  # arguments that are no tensors
    constants: dict[str, Any] = {}  # arguments that the kernel is compiled for
    num_warps: int | None = None
    num_stages: int | None = None
    device_us: float | None = None  # µs of work on a GPU; None on a CPU

    @staticmethod
    def before(call: Call) -> Any:
        """Start to look at the programs, if they are asked for, and at the device's clock, if it has one."""
        probe, kernel = call.owner.probe, call.arg(0, "kernel")
        tensors = [value for value in call.kwargs.values() if hasattr(value, "device")]
        watch = None
        if call.watched and call.notes.get("layer") in call.watch.layers and probe.interpreter.is_interpreting():
            watch = probe.ProgramWatch(kernel)
            watch.start()
        timer = probe.DeviceTimer(tensors[0].device) if tensors else None
        if timer is not None:
            timer.start()
        return timer, watch

    @staticmethod
    def failed(call: Call) -> None:
        _, watch = call.before
        if watch is not None:
            watch.stop()

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        timer, watch = call.before
        if watch is not None:
            watch.stop()
        if timer is not None:
            timer.stop()
        facts = call.owner.probe.describe_launch(call.arg(0, "kernel"), call.arg(1, "grid"), call.kwargs)
        facts["tensors"] = msgspec.convert(facts["tensors"], dict[str, TensorInfo])
        programs = [program.as_dict() for program in watch.programs] if watch is not None else []
        inside = [(KernelProgram, _program(program)) for program in programs]
        later = None if timer is None else lambda: {"device_us": timer.microseconds()}
        return {**facts, "inside": inside, "later": later}


class ProgramTile(msgspec.Struct, omit_defaults=True):
    """After one tile of keys: what the online softmax carries, row by row of the program."""

    keys: list[list[int]]  # where its K came from, as runs
    row_max: list[float | None]  # largest scaled score so far; None: no key seen yet
    row_sum: list[float | None]  # sum of e^(score - row_max)
    correction: list[float | None]  # by which all that was summed before was multiplied


class KernelProgram(Event, tag="kernel.program"):
    """One program of a launch: where it read and wrote. Its times are those of the launch."""

    min_detail = 2
    program: list[int] = []  # its place in the grid
    reads: Runs = {}  # tensor -> runs [index…, first, last]; in a cache [block, first offset, last offset, head]
    writes: Runs = {}  # likewise
    rows: list[int] = []  # rows of `tiles`
    tiles: list[ProgramTile] = []  # in the order in which it walked them


def _program(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "tiles": msgspec.convert(record.get("tiles", []), list[ProgramTile])}
