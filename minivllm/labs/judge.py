"""The judge: the parent's side. It holds the expectations, asks the child, compares, and gives points.

Owns: the child process and its limits, what a check and its outcome are, how points are given.
Interface: Check, Outcome, Failure, Ask, Subject, grade, TaskResult, LabResult.
Must not know: what a lab is about (labNN.py says what is asked and expected), or how results are shown (report.py).
"""

import gc
import hashlib
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minivllm.labs import child as child_module
from minivllm.labs.catalog import Lab
from minivllm.labs.child import GRACE_SECONDS, Parts, observer, read_message, write_message

PACKAGE_PARENT = Path(__file__).resolve().parent.parent.parent
BOOT = "import sys; sys.path[:] = {paths!r}; from minivllm.labs.child import main; main()"
LOAD_SECONDS = 20.0
OUTPUT_LINES = 40
TOGETHER = 64  # inputs in one message
PATIENCE = 4  # so many limits, by the clock, for a message: the child's own alarm counts processor time
DEADLY = ("killed", "exit", "gone")
KINDS = ("crash", "hang", "invariant", "decision", "structure")  # of equal inputs, in the order of showing


# ---------------------------------------------------------------------- what a check says


@dataclass(slots=True)
class Failure:
    """One case that failed, told in full. kind: one of KINDS. size: the smaller, the sooner it is shown.

    vLLM: none, vLLM has no labs
    """

    kind: str
    case: str
    size: int
    input: str
    expected: str
    got: str
    where: str = ""
    before: str = ""
    says: str = ""  # who says what is expected
    rule: str = ""
    line: str = ""  # the student's line that ran last
    looks_like: str = ""
    trace_of: dict[str, Any] | None = None  # the workload whose trace shows it, and the step
    hint: str = ""  # the task whose hints help; "" for its own


@dataclass(slots=True)
class Outcome:
    """What a check found. families: family -> all its cases are right; a check without families is all or nothing.

    vLLM: none, vLLM has no labs
    """

    cases: int = 0
    passed: int = 0
    families: dict[str, bool] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)  # one short mark per case that always runs: the fingerprint
    not_written: str = ""  # the label of the task's first body that is missing

    def add(self, mark: str | None, failure: Failure | None) -> None:
        """Count one case. mark: None for a case that does not always run."""
        self.cases += 1
        if mark is not None:
            self.marks.append(mark)
        if failure is None:
            self.passed += 1
        else:
            self.failures.append(failure)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a task. run: asks, compares, and says what it found.

    vLLM: none, vLLM has no labs
    """

    id: str
    title: str
    points: int
    run: Callable[["Ask"], Outcome]


@dataclass(slots=True)
class Observation:
    """What the child answered. error: None, or kind, type, message, line, text, function, state.

    vLLM: none, vLLM has no labs
    """

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


class Ask:
    """What a check may do: ask the student's code about one task, and the engine's own.

    vLLM: none, vLLM has no labs
    """

    def __init__(self, subject: "Subject", lab: Lab, task_id: str, thorough: bool = True) -> None:
        self.subject = subject
        self.lab = lab
        self.task_id = task_id
        self.thorough = thorough  # False: a family may stop at its first failure

    def student(self, name: str, asked: Any) -> Observation:
        """Run an observer with the student's parts of this task, in the child."""
        return next(self.student_many(name, [asked]))

    def student_many(self, name: str, inputs: Sequence[Any]) -> Iterator[Observation]:
        """Run an observer on many inputs. After a hang, or a body that is not written, there are no more answers."""
        return self.subject.call_many(self.task_id, name, inputs)

    def engine(self, name: str, asked: Any) -> Any:
        """Run the same observer with the engine's own parts, here."""
        return as_sent(observer(name)({}, asked, []))


def as_sent(value: Any) -> Any:
    """A value as it looks after the pipe: tuples have become lists.

    vLLM: none, vLLM has no labs
    """
    import msgspec

    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


# ---------------------------------------------------------------------- the child


@dataclass(slots=True)
class Limits:
    """Seconds for a call, and for importing the student's file.

    vLLM: none, vLLM has no labs
    """

    call_s: float = 2.0
    load_s: float = LOAD_SECONDS


class Subject:
    """A student's file in a child process, started when it is first asked and again after a hang or a crash.

    fork: take a copy of this process instead of a fresh interpreter; for tests, which grade hundreds of files.

    vLLM: none, vLLM has no labs
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

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> dict[str, Any] | None:
        """Import the file; returns the error if that fails."""
        self._start()
        answer = self._ask(
            {"do": "load", "lab": str(self.lab.folder / "lab.toml"), "path": str(self.file)}, self.limits.load_s
        )
        self.load_error = answer.get("error")
        return self.load_error

    def call_many(self, task_id: str, name: str, inputs: Sequence[Any]) -> Iterator[Observation]:
        """Run an observer in the child, on each input within the limit of one call."""
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
        request = {"do": "call", "task": task_id, "observer": name, "inputs": list(inputs), "limit_s": limit}
        answer = self._ask(request, limit * PATIENCE + GRACE_SECONDS)
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
                "error": _error(
                    "gone" if len(request.get("inputs", ())) > 1 else "hang", f"no answer within {limit_s:g} s"
                )
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
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # the threads of its parent have not come along
        child_module.serve(requests, answers)
    finally:
        os._exit(0)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"kind": kind, "type": kind, "message": message, "line": 0, "text": "", "function": "", "state": ""}


# ---------------------------------------------------------------------- results


@dataclass(slots=True)
class CheckResult:
    """A check with its points.

    vLLM: none, vLLM has no labs
    """

    check: Check
    outcome: Outcome
    points: int


@dataclass(slots=True)
class TaskResult:
    """A task with the results of its checks. status: pass, fail, not_written, crash, timeout, refused.

    vLLM: none, vLLM has no labs
    """

    id: str
    title: str
    points: int
    max: int
    status: str
    checks: list[CheckResult] = field(default_factory=list)
    refused: str = ""

    @property
    def failures(self) -> list[Failure]:
        return [failure for result in self.checks for failure in result.outcome.failures]


@dataclass(slots=True)
class LabResult:
    """What grading a file gave. load_error: the file could not be imported, and nothing was checked.

    vLLM: none, vLLM has no labs
    """

    lab: Lab
    tasks: list[TaskResult] = field(default_factory=list)
    load_error: dict[str, Any] | None = None
    output: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def max(self) -> int:
        return sum(task.points for task in self.lab.tasks)

    def worst(self) -> tuple[TaskResult, Failure] | None:
        """The failure to show: the smallest input; of equal ones a crash first, then a hang, a rule, a decision."""
        found = [(task, failure) for task in self.tasks for failure in task.failures]
        return min(found, key=lambda pair: (pair[1].size, KINDS.index(pair[1].kind)), default=None)


def checks_of(lab: Lab) -> dict[str, tuple[Check, ...]]:
    """Task -> its checks, from minivllm/labs/labNN.py.

    vLLM: none, vLLM has no labs
    """
    return importlib.import_module(f"minivllm.labs.lab{lab.number}").CHECKS


def grade(
    lab: Lab,
    path: Path,
    tasks: Sequence[str] | None = None,
    limits: Limits | None = None,
    fork: bool = False,
    thorough: bool = True,
    refused: dict[str, str] | None = None,
) -> LabResult:
    """Run the checks of a lab on a student's file.

    tasks: only these. thorough=False: once something has failed, what leaves no marks may be spared. refused: tasks
    that count nothing, with the reason (originality.py).

    vLLM: none, vLLM has no labs
    """
    started = time.monotonic()
    result = LabResult(lab)
    checks = checks_of(lab)
    with Subject(lab, path, limits, fork) as subject:
        result.load_error = subject.load()
        if result.load_error is None:
            for task in lab.tasks:
                if tasks is None or task.id in tasks:
                    ask = Ask(subject, lab, task.id, thorough)
                    outcomes = _run_checks(checks[task.id], ask)
                    result.tasks.append(_task_result(task, outcomes, (refused or {}).get(task.id, "")))
        result.output = subject.output()
    result.seconds = time.monotonic() - started
    return result


def _run_checks(checks: Sequence[Check], ask: Ask) -> list[tuple[Check, Outcome]]:
    """All checks, in order. Those that leave no marks are spared when something has failed and it is not thorough."""
    done: list[tuple[Check, Outcome]] = []
    for check in checks:
        failed = any(outcome.failures for _, outcome in done)
        spared = failed and not ask.thorough and getattr(check.run, "leaves_no_marks", False)
        done.append((check, Outcome() if spared else check.run(ask)))
    return done


def _task_result(task: Any, outcomes: list[tuple[Check, Outcome]], refused: str) -> TaskResult:
    results = [CheckResult(check, outcome, 0 if refused else points_of(check, outcome)) for check, outcome in outcomes]
    points = sum(result.points for result in results)
    failures = [failure for _, outcome in outcomes for failure in outcome.failures]
    if refused:
        status = "refused"
    elif any(outcome.not_written for _, outcome in outcomes):
        status = "not_written"
    elif points == task.points:
        status = "pass"
    else:
        kinds = {failure.kind for failure in failures}
        status = "timeout" if "hang" in kinds else "crash" if "crash" in kinds else "fail"
    return TaskResult(task.id, task.title, points, task.points, status, results, refused)


def points_of(check: Check, outcome: Outcome) -> int:
    """All points for all cases; of a check with families, a family's share for each family that is right.

    vLLM: none, vLLM has no labs
    """
    if outcome.not_written or not outcome.cases:
        return 0
    if outcome.families:
        right = sum(outcome.families.values())
        return check.points * right // len(outcome.families)
    return check.points if outcome.passed == outcome.cases else 0


# ---------------------------------------------------------------------- fingerprints


def fingerprint(task: TaskResult) -> str | None:
    """One text for how a task's code behaves on all cases that always run: equal texts, equal behaviour.

    None when nothing is wrong in those cases, or there are none.

    vLLM: none, vLLM has no labs
    """
    marks = [[result.check.id, result.outcome.marks] for result in task.checks]
    if all(result.outcome.passed == result.outcome.cases for result in task.checks if result.outcome.marks):
        return None
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest()[:16]


__all__ = ["Ask", "Check", "Failure", "LabResult", "Limits", "Outcome", "Parts", "Subject", "TaskResult", "grade"]
