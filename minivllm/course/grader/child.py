"""The child: a process that imports a student's file, runs what it is asked to run, and says what it saw.

Owns: the student's code while it runs, its limits, and how its errors are described.
Interface: main (a fresh interpreter), serve (on two pipes); graded_parts.
Must not know: what is expected. It is never sent a recorded step or an answer, so nothing that the student's code
prints or does can make a check pass.

Messages are msgpack, with their length before them. A request names an observer, `module:function` of
the grader or of a lab, which is called with the graded parts, the input, and a list into which it writes what it has
seen so far.
"""

import faulthandler
import importlib
import inspect
import io
import linecache
import os
import resource
import signal
import struct
import sys
import time
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from minivllm.course.grader.catalog import Lab, read_lab
from minivllm.course.places import module_of
from minivllm.parts import seam_of

MODULE = "starter"
WHOLE_FILE = "*"  # in place of a task: all that the file has
LENGTH = struct.Struct("<Q")
MAX_OUTPUT = 1 << 20  # bytes that a student's prints may fill
MAX_MEMORY = 2 << 30
MAX_CPU_SECONDS = 120
STATE_VALUES = 6  # local variables shown of the line that hung
GRACE_SECONDS = 1.0  # the parent waits so much longer than the child's own alarm

Parts = dict[str, Any]  # seam, "block_pool" -> class or function; what has no seam goes by its symbol


class TimeUp(BaseException):
    """The alarm of a call; not an Exception, so that `except Exception` does not catch it.

    It counts processor time, so that a busy machine makes nobody late; code that sleeps is the parent's to stop.
    """


# ---------------------------------------------------------------------- the student's file


class Refused(Exception):
    """The file can't be graded: it lacks a name, or a signature was changed."""


class StudentFile:
    """The student's source, compiled once, executed afresh for each task."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab = lab
        self.path = path
        self.code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        self.engine = engine_symbols(lab)
        self.borrowed: dict[str, str] = {}  # symbols that come from another file
        linecache.checkcache(str(path))
        self._check(self._execute())

    def parts(self, task_id: str) -> Parts:
        """Per class and function of the lab: the student's in what the task grades, the engine's in all else.

        Names that the student's file defines beside the graded ones are kept.
        """
        graded = set(self.engine) if task_id == WHOLE_FILE else set(self.lab.task(task_id).symbols)
        namespace = self._execute()
        parts: Parts = {}
        for symbol, member in self.engine.items():
            owner = symbol.rpartition(".")[0]
            if not owner:
                if symbol not in graded:
                    namespace[symbol] = member  # what the student's other code calls by this name
                parts[seam_of(symbol)] = namespace[symbol]
        for owner in dict.fromkeys(symbol.rpartition(".")[0] for symbol in self.engine):
            if owner:
                kept = {
                    symbol.rpartition(".")[2]: member
                    for symbol, member in self.engine.items()
                    if symbol.startswith(owner + ".") and symbol not in graded
                }
                parts[seam_of(owner)] = type(owner, (namespace[owner],), kept)
        return parts

    def _execute(self) -> dict[str, Any]:
        module = types.ModuleType(MODULE)
        module.__file__ = str(self.path)
        sys.modules[MODULE] = module  # dataclasses look their module up
        exec(self.code, module.__dict__)
        return module.__dict__

    def _check(self, namespace: Mapping[str, Any]) -> None:
        for symbol, member in self.engine.items():
            owner, _, method = symbol.rpartition(".")
            found = namespace.get(owner or symbol)
            if found is None:
                raise Refused(f"{owner or symbol} is missing. Copy it again from the starter.")
            if owner:
                base = type_of_engine(self.lab, owner)
                if not (isinstance(found, type) and issubclass(found, base)):
                    raise Refused(f"class {owner} must be written as in the starter: class {owner}(given.{owner}).")
                found = vars(found).get(method)
            elif isinstance(member, type):
                for name, function in vars(member).items():
                    if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                        _same_signature(f"{symbol}.{name}", getattr(found, name, None), function)
                        self._note_where_from(f"{symbol}.{name}", getattr(found, name))
                continue
            _same_signature(symbol, found, member)
            self._note_where_from(symbol, found)

    def _note_where_from(self, symbol: str, found: Any) -> None:
        """Note a function that comes from another file, such as the engine's own: it counts nothing."""
        code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
        if code is not None and code.co_filename != str(self.path):
            self.borrowed[symbol] = f"{symbol} was not written in this file, but in {Path(code.co_filename).name}"


def _same_signature(symbol: str, found: Any, expected: Any) -> None:
    if found is None:
        raise Refused(f"{symbol} is missing. Copy it again from the starter.")
    try:
        same = list(inspect.signature(found).parameters) == list(inspect.signature(expected).parameters)
    except (TypeError, ValueError):
        same = True  # a class, or something that has no signature: calling it will show
    if not same:
        raise Refused(f"{symbol} has other arguments than in the starter: {inspect.signature(expected)}.")


def engine_symbols(lab: Lab) -> dict[str, Any]:
    """Symbol -> the engine's own class, function or method, in the order of the starter."""
    found: dict[str, Any] = {}
    for place in lab.symbols:
        path, _, symbol = place.partition("::")
        member: Any = importlib.import_module(module_of(path))
        for part in symbol.split("."):
            member = inspect.getattr_static(member, part) if isinstance(member, type) else getattr(member, part)
        found[symbol] = member
    return found


def type_of_engine(lab: Lab, owner: str) -> type:
    """The engine's class that a starter's class builds on."""
    for place in lab.symbols:
        path, _, symbol = place.partition("::")
        if symbol.startswith(owner + "."):
            return getattr(importlib.import_module(module_of(path)), owner)
    raise Refused(f"{owner} is no class of lab {lab.number}")


# ---------------------------------------------------------------------- requests


def serve(requests: int, answers: int) -> None:
    """Answer requests until there are no more. requests, answers: file descriptors of pipes."""
    student: StudentFile | None = None
    signal.signal(signal.SIGPROF, _on_alarm)
    while (request := read_message(requests)) is not None:
        if request["do"] == "load":
            try:
                student = StudentFile(read_lab(Path(request["lab"])), Path(request["path"]))
                answer: dict[str, Any] = {"ok": student.borrowed}
            except BaseException as error:
                answer = {"error": describe_error(error, request["path"])}
        else:
            answer = _call(student, request)
        write_message(answers, answer)


def _call(student: StudentFile, request: dict[str, Any]) -> dict[str, Any]:
    """Run an observer on each of the inputs; ends early after a hang, since the rest would take as long."""
    answers: list[dict[str, Any]] = []
    started = time.process_time()
    try:
        observe, parts = observer(request["observer"]), student.parts(request["task"])
    except BaseException as error:
        return {"answers": [{"error": describe_error(error, str(student.path)), "seen": []}]}
    for asked in request["inputs"]:
        seen: list[Any] = []
        try:
            signal.setitimer(signal.ITIMER_PROF, request["limit_s"])
            try:
                value = observe(parts, asked, seen)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            answers.append({"ok": value})
        except BaseException as error:
            described = describe_error(error, str(student.path))
            if described["kind"] == "hang":
                described["message"] = f"{request['limit_s']:g} s"
            answers.append({"error": described, "seen": seen})
            if described["kind"] in ("hang", "not_written"):
                break
    return {"answers": answers, "seconds": time.process_time() - started}


def observer(name: str) -> Any:
    """The function `module:function`; modules of a lab ("lab10.observe") or of the grader ("observe")."""
    module, _, function = name.partition(":")
    package = "minivllm.lessons" if module.startswith("lab") else "minivllm.course.grader"
    return getattr(importlib.import_module(f"{package}.{module}"), function)


def describe_error(error: BaseException, path: str) -> dict[str, Any]:
    """An error as plain values: kind, type, message, and the student's line that was the last to run."""
    line, text, function, values = 0, "", "", {}
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == path:
            line, text, function = number, linecache.getline(path, number).strip(), frame.f_code.co_qualname
            values = frame.f_locals
    if isinstance(error, SyntaxError):
        line, text = error.lineno or 0, (error.text or "").strip()
    kind = "crash"
    if isinstance(error, TimeUp):
        kind = "hang"
    elif isinstance(error, NotImplementedError) and str(error).startswith("Lab "):
        kind = "not_written"
    elif isinstance(error, Refused):
        kind = "refused"
    elif isinstance(error, Endless):
        kind = "endless"
    elif isinstance(error, SystemExit | KeyboardInterrupt):
        kind = "exit"
    return {
        "kind": kind,
        "type": type(error).__name__,
        "message": str(error)[:400],
        "line": line,
        "text": text,
        "function": function,
        "state": _brief_state(values) if kind == "hang" else "",
    }


class Endless(Exception):
    """Raised by an observer when a run takes more steps than it can need."""


def _brief_state(values: Mapping[str, Any]) -> str:
    shown = []
    for name, value in values.items():
        if isinstance(value, int | str | bool | list | dict) and name != "self":
            shown.append(f"{name} {repr(value)[:60]}")
        elif hasattr(value, "__slots__") or name == "step":
            fields = {field: getattr(value, field, None) for field in getattr(value, "__slots__", ())}
            shown += [f"{name}.{field} {number}" for field, number in fields.items() if isinstance(number, int)]
    return " · ".join(shown[:STATE_VALUES])


def _on_alarm(signum: int, frame: Any) -> None:
    raise TimeUp


# ---------------------------------------------------------------------- the pipe, and the limits


def read_message(descriptor: int) -> Any:
    """One message, or None at the end of the pipe."""
    head = _read(descriptor, LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = _read(descriptor, size)
    return msgspec.msgpack.decode(body) if len(body) == size else None


def write_message(descriptor: int, message: Any) -> None:
    """Send one message."""
    body = msgspec.msgpack.encode(message)
    view = memoryview(LENGTH.pack(len(body)) + body)
    while view:
        view = view[os.write(descriptor, view) :]


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class CappedOutput(io.TextIOBase):
    """Standard output of the student's code: kept up to a limit, dropped beyond it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.left = MAX_OUTPUT // 2

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.left > 0:
            self.left -= len(text)
            os.write(self.descriptor, text.encode("utf-8", "replace")[: MAX_OUTPUT // 4])
        return len(text)


def limit_this_process(folder: str) -> None:
    """Stay in `folder`, with no input, little output, and limits on memory, time and files."""
    os.setsid()
    faulthandler.disable()  # a fork may have it on
    os.chdir(folder)
    output = os.open(os.path.join(folder, "output.txt"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stderr = CappedOutput(output)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for what, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_OUTPUT),
        (resource.RLIMIT_DATA, _memory_held() + MAX_MEMORY),
        (resource.RLIMIT_CPU, MAX_CPU_SECONDS),
    ):
        _, hard = resource.getrlimit(what)
        wanted = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(what, (wanted, hard))
        except (ValueError, OSError):  # macOS knows no limit on data: the report says so
            continue


def _memory_held() -> int:
    """Bytes that this process has already: a forked child begins with all that its parent holds."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
    except OSError:  # macOS has no such file, and no limit on data either
        return 0
    return pages * resource.getpagesize()


def main() -> None:
    """A fresh interpreter: `python -I -B -c … REQUESTS ANSWERS FOLDER`."""
    requests, answers, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    limit_this_process(folder)
    serve(requests, answers)
    os._exit(0)
