"""Sides: run each in a process of its own, in turns, and watch what it takes.

Owns: the processes while they run.
Interface: Side, run_side, run_rounds.
Must not know: what a side measures: it prints one line of JSON, name -> number, and that is taken as it is.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.proof.bench.jobs import Job

SIDE_TIMEOUT_SECONDS = 1800
SAMPLE_SECONDS = 0.1
HERE = Path(__file__).parent


@dataclass(slots=True)
class Side:
    """One program. `{job}` in its command stands for the file of its job."""

    name: str
    command: list[str]
    job: Job | None = None  # written to a file as JSON
    environment: dict[str, str] = field(default_factory=dict)
    prints_json: bool = True  # False: what it prints is not looked at, its first byte is timed
    watch_memory: bool = False  # it costs some percent of a core
    compared: bool = True  # with the first side; False: it measures something else


def python_side(name: str, python: str, script: str, job: Job, threads: int) -> Side:
    """A side that is one of the peer_*.py scripts, in that Python."""
    return Side(name, [python, str(HERE / script), "{job}"], {**job, "threads": threads}, threads_of(threads))


def own_side(name: str, module: str, job: Job, threads: int) -> Side:
    """A side that is a module of this package, in this Python."""
    command = [sys.executable, "-m", f"minivllm.proof.bench.{module}", "{job}"]
    return Side(name, command, {**job, "threads": threads}, own_environment(threads))


def own_environment(threads: int) -> dict[str, str]:
    """That of a side which is this engine: it finds this package, installed or not."""
    return {**threads_of(threads), "PYTHONPATH": str(HERE.parents[2])}


def threads_of(threads: int) -> dict[str, str]:
    """The environment in which torch uses so many threads."""
    return {"OMP_NUM_THREADS": str(threads)}


def run_rounds(
    sides: Sequence[Side], rounds: int, progress: Callable[[str], None] = lambda line: None
) -> list[dict[str, dict[str, Any]]]:
    """Each side once in every round, in turns: one dict a round, side -> its figures."""
    results = []
    for number in range(1, rounds + 1):
        found = {}
        # every second round backwards, so that no side always follows the same one
        for side in sides if number % 2 else reversed(sides):
            found[side.name] = run_side(side)
            progress(f"round {number}/{rounds}, {side.name}: {json.dumps(found[side.name])}")
        results.append(found)
    return results


def run_side(side: Side) -> dict[str, Any]:
    """What the side printed, with `first_output_s`, `wall_s`, `cpu_s` and `peak_mb` of its processes together.

    Raises InputError with the end of its output if it fails.
    """
    not_theirs = ("OMP_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(not_theirs)}
    environment |= side.environment
    with tempfile.TemporaryDirectory(prefix="minivllm-bench-") as folder:
        job, errors = Path(folder) / "job.json", Path(folder) / "stderr"
        job.write_text(json.dumps(side.job))
        command = [word.replace("{job}", str(job)) for word in side.command]
        before = os.times()
        start = time.perf_counter()
        with errors.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, cwd=folder)
            watch = MemoryWatch(process.pid) if side.watch_memory else None
            timer = threading.Timer(SIDE_TIMEOUT_SECONDS, process.kill)
            timer.start()
            first = process.stdout.read(1)
            first_output = time.perf_counter() - start
            printed = (first + process.stdout.read()).decode(errors="replace")
            process.wait()
            timer.cancel()
        wall, after = time.perf_counter() - start, os.times()
        peak = watch.stop() if watch else None
        if process.returncode != 0:
            said = (errors.read_text(errors="replace") + printed).strip().splitlines()[-12:]
            raise InputError(f"The side {side.name!r} ended with status {process.returncode}:\n" + "\n".join(said))
    figures = json.loads(printed.strip().splitlines()[-1]) if side.prints_json else {}
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    taken = {"first_output_s": first_output, "wall_s": wall, "cpu_s": cpu, "peak_mb": peak}
    return figures | {name: value for name, value in taken.items() if value is not None}


class MemoryWatch:
    """Samples the memory of a process and all its descendants, in a thread. Linux only: elsewhere there is no figure.

    A page that several of them share counts once (proportional set size).
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak_kb = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> float | None:
        """The peak in MB."""
        self._stop.set()
        self._thread.join()
        return round(self.peak_kb / 1024, 1) if self.peak_kb else None

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.peak_kb = max(self.peak_kb, sum(map(_pss_kb, _descendants(self.pid))))


def _descendants(pid: int) -> list[int]:
    """`pid` and all processes below it."""
    found, parents = [pid], [pid]
    while parents:
        parent = parents.pop()
        for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(word) for word in tasks.read_text().split()]
            except OSError:
                continue  # it has just ended
            found += children
            parents += children
    return found


def _pss_kb(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0  # it has just ended
