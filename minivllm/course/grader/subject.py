"""The subject: a student's file in a process of its own, with the limits that it is kept in.

Owns: the child process, from its start to its end, and what it answered.
Interface: Subject, Limits, Observation.
Must not know: what is expected (judge.py), or what the child does with what it is asked (child.py).
"""

import gc
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minivllm.course.grader import child as child_module
from minivllm.course.grader.catalog import Lab
from minivllm.course.grader.child import GRACE_SECONDS, read_message, write_message

PACKAGE_PARENT = Path(__file__).resolve().parents[3]
BOOT = "import sys; sys.path[:] = {paths!r}; from minivllm.course.grader.child import main; main()"
LOAD_SECONDS = 20.0
OUTPUT_LINES = 40
TOGETHER = 64  # inputs in one message
PATIENCE = 4  # so many limits, by the clock, for a message: the child's own alarm counts processor time
DEADLY = ("killed", "exit", "gone")


@dataclass(slots=True)
class Observation:
    """What the child answered. error: None, or kind, type, message, line, text, function, state."""

    value: Any
    error: dict[str, Any] | None
    seen: list[Any]

    @property
    def ends_it(self) -> bool:
        """Whether nothing more was asked after it."""
        return self.error is not None and self.error["kind"] in ("hang", "not_written", *DEADLY)

    @property
    def mark(self) -> str:
        """A short mark of what was seen: equal marks, equal behaviour."""
        what = [self.error["kind"], self.error["type"]] if self.error else self.value
        seen = self.seen if self.error else None
        return hashlib.sha256(json.dumps([what, seen], sort_keys=True).encode()).hexdigest()[:8]


@dataclass(slots=True)
class Limits:
    """Seconds of processor time for a call and all calls of a task; by the clock for importing a student's file."""

    call_s: float = 2.0
    task_s: float = 60.0
    load_s: float = LOAD_SECONDS


class Subject:
    """A student's file in a child process, started when it is first asked and again after a hang or a crash.

    fork: take a copy of this process instead of a fresh interpreter; for tests, which grade hundreds of files.
    """

    def __init__(self, lab: Lab, path: Path, limits: Limits | None = None, fork: bool = False) -> None:
        self.lab = lab
        self.limits = limits or Limits(call_s=lab.call_s)
        # a copy of a process that has imported triton for a GPU can't interpret kernels
        self.fork = fork and (not lab.in_interpreter or os.environ.get("TRITON_INTERPRET") == "1")
        self.folder = Path(tempfile.mkdtemp(prefix="minivllm-lab-"))
        self.file = self.folder / "starter.py"
        shutil.copyfile(path, self.file)
        self.pid: int | None = None
        self.load_error: dict[str, Any] | None = None
        self.borrowed: dict[str, str] = {}  # symbols that come from another file, with the reason
        self.task_id = ""
        self.spent_s = 0.0  # on the calls of this task

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> dict[str, Any] | None:
        """Import the file; returns the error if that fails. Raises ModuleNotFoundError for a package that we need."""
        self._start()
        answer = self._ask(
            {"do": "load", "lab": str(self.lab.folder / "lab.toml"), "path": str(self.file)}, self.limits.load_s
        )
        self.load_error, self.borrowed = answer.get("error"), answer.get("ok") or {}
        if self.load_error and self.load_error["type"] == "ModuleNotFoundError" and not self.load_error["line"]:
            self._stop()
            raise ModuleNotFoundError(self.load_error["message"])  # no line of the student's asked for it
        return self.load_error

    def call_many(self, task_id: str, name: str, inputs: Sequence[Any]) -> Iterator[Observation]:
        """Run an observer in the child, on each input within the limit of one call, and of one task."""
        if task_id != self.task_id:
            self.task_id, self.spent_s = task_id, 0.0
        for start in range(0, len(inputs), TOGETHER):
            part = inputs[start : start + TOGETHER]
            answers = self._call(task_id, name, part)
            if len(part) > 1 and answers[-1].error is not None and answers[-1].error["kind"] in DEADLY:
                answers = []  # which of them it was: one at a time
                for asked in part:
                    answers += self._call(task_id, name, [asked])
                    if answers[-1].ends_it:
                        break
            yield from answers
            if answers[-1].ends_it:
                return

    def _call(self, task_id: str, name: str, inputs: Sequence[Any]) -> list[Observation]:
        if self.pid is None:
            self.load()
        if self.load_error is not None:
            return [Observation(None, self.load_error, [])]
        limit = self.limits.call_s
        if self.spent_s > self.limits.task_s:
            if task_id != child_module.WHOLE_FILE:
                return [Observation(None, _error("hang", f"{self.limits.task_s:g} s, all that a task has"), [])]
            self._stop()  # a search goes on, in a fresh child, since the time of one is limited
            self.spent_s = 0.0
            self.load()
        request = {"do": "call", "task": task_id, "observer": name, "inputs": list(inputs), "limit_s": limit}
        answer = self._ask(request, limit * PATIENCE + GRACE_SECONDS)
        self.spent_s += answer.get("seconds", limit)
        answers = answer.get("answers") or [answer]
        error = answers[-1].get("error")
        if error is not None and error["kind"] in ("hang", *DEADLY):
            self._stop()  # its state can't be trusted any more
        return [Observation(one.get("ok"), one.get("error"), one.get("seen", [])) for one in answers]

    def output(self) -> list[str]:
        """The last lines that the student's code printed."""
        path = self.folder / "output.txt"
        return path.read_text(encoding="utf-8", errors="replace").splitlines()[-OUTPUT_LINES:] if path.exists() else []

    def close(self) -> None:
        """End the child and remove the folder."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------ the process

    def _start(self) -> None:
        requests_out, requests_in = os.pipe()
        answers_out, answers_in = os.pipe()
        if self.fork:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(requests_in)
                os.close(answers_out)
                _be_child(requests_out, answers_in, self.folder)
        else:
            arguments = [str(requests_out), str(answers_in), str(self.folder)]
            # what this process finds, but nothing relative: an isolated interpreter takes no PYTHONPATH
            # (an editable install leaves a word in the path, by which it finds packages without __init__.py)
            found = (path for path in sys.path if Path(path).is_absolute() or path.startswith("__editable__"))
            paths = [str(PACKAGE_PARENT), *found]
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-c", BOOT.format(paths=paths), *arguments],
                pass_fds=(requests_out, answers_in),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
            )
            self.pid = self.process.pid
        os.close(requests_out)
        os.close(answers_in)
        self.requests, self.answers = requests_in, answers_out

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        return environment | ({"TRITON_INTERPRET": "1"} if self.lab.in_interpreter else {"LANG": "C.UTF-8"})

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        try:
            write_message(self.requests, request)
        except BrokenPipeError:
            return {"error": self._gone()}
        deadline = time.monotonic() + limit_s
        ready, _, _ = select.select([self.answers], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            self._stop()
            return {
                "error": _error("gone" if len(request.get("inputs", ())) > 1 else "hang", f"{limit_s:g} s by the clock")
            }
        answer = read_message(self.answers)
        return answer if answer is not None else {"error": self._gone()}

    def _gone(self) -> dict[str, Any]:
        """The child has ended before it answered: say how."""
        status = self._stop(patience_s=1.0)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return _error("killed", f"the process was killed by {name} before it answered")
        return _error("exit", f"the process ended with status {os.WEXITSTATUS(status)} before it answered")

    def _stop(self, patience_s: float = 0.0) -> int:
        """End the child and what it has started; returns its wait status."""
        if self.pid is None:
            return 0
        pid, self.pid = self.pid, None
        deadline = time.monotonic() + patience_s
        ended, status = os.waitpid(pid, os.WNOHANG)
        while not ended and time.monotonic() < deadline:
            time.sleep(0.01)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # it may not lead its group yet
            _, status = os.waitpid(pid, 0)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it has started
        if not self.fork:
            self.process.returncode = status
        os.close(self.requests)
        os.close(self.answers)
        return status


def _be_child(requests: int, answers: int, folder: Path) -> None:
    """Never returns."""
    try:
        gc.freeze()  # what was inherited stays as it is: collecting it would cost the student's time
        child_module.limit_this_process(str(folder))
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)  # the threads of its parent have not come along
        child_module.serve(requests, answers)
    finally:
        os._exit(0)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"kind": kind, "type": kind, "message": message, "line": 0, "text": "", "function": "", "state": ""}
