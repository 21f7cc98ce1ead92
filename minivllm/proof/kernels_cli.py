"""`minivllm kernels compile | show`: the kernels for GPUs that are not there, and what a traced launch did.

Owns: the arguments of both commands.
Interface: add_arguments, run.
Must not know: how a kernel works or a trace is written.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

STAGES = ("ttir", "ttgir", "ptx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    compiling = commands.add_parser("compile", help="build the kernels; no GPU is needed")
    compiling.add_argument("--target", default="sm_80,sm_90,sm_100", help="compute capabilities (default: %(default)s)")
    compiling.add_argument("--kernel", default="", help="only kernels whose name contains this")
    compiling.add_argument("--stage", choices=STAGES, action="append", default=[], help="print this stage too")
    compiling.add_argument("--json", type=Path, help="write numbers, constants and the chosen stages to this file")
    compiling.set_defaults(run_kernels=run_compile)

    showing = commands.add_parser("show", help="which blocks each program of a launch read, which slots were written")
    showing.add_argument("trace", type=Path, help="a trace of detail 2, recorded with attention_backend triton")
    showing.add_argument("--launch", type=int, metavar="N", help="which launch, from 0; without it, the list of them")
    showing.set_defaults(run_kernels=run_show)


def run(arguments: argparse.Namespace) -> int:
    return arguments.run_kernels(arguments)


def run_compile(arguments: argparse.Namespace) -> int:
    """Status 1 if a kernel spills registers or needs more shared memory than its target has."""
    os.environ.pop("TRITON_INTERPRET", None)  # compiling needs the real thing; nothing has imported triton yet
    from minivllm_kernels import compile as kernels_compile

    return kernels_compile.run(arguments)


def run_show(arguments: argparse.Namespace) -> int:
    from minivllm.trace import load

    print(show(load(arguments.trace).events, arguments.launch))
    return 0


def show(events: list[Any], number: int | None) -> str:
    """The launches among a trace's events as a list, or the map of one of them."""
    from minivllm_kernels.kernel_map import render_map

    launches = [event for event in events if event.kind == "kernel.launch"]
    if not launches:
        raise InputError(
            "This trace has no kernel launches. Record one with attention_backend='triton' and trace_detail=2."
        )
    programs = {event.seq: [] for event in launches}
    for event in events:
        if event.kind == "kernel.program" and event.parent in programs:
            programs[event.parent].append({"program": event.program, "reads": event.reads, "writes": event.writes})
    if number is None:
        return "\n".join(
            f"{place:>4}  step {event.step}  {event.name} {' x '.join(map(str, event.grid))}"
            f"{'' if programs[event.seq] else '  (programs not recorded)'}"
            for place, event in enumerate(launches)
        )
    if not 0 <= number < len(launches):
        raise InputError(f"--launch {number} is not one of this trace's launches, 0 to {len(launches) - 1}.")
    launch = launches[number]
    if not programs[launch.seq]:
        recorded = [str(place) for place, event in enumerate(launches) if programs[event.seq]]
        raise InputError(
            f"The programs of launch {number} were not recorded; those of launch {', '.join(recorded)} were."
            if recorded
            else "No launch of this trace has its programs recorded. Record with trace_detail=2."
        )
    return render_map({"name": launch.name, "grid": launch.grid}, programs[launch.seq])
