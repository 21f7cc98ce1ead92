"""`lab run`: a student's part in the real engine, with the real model.

Owns: how a folder becomes `EngineConfig(parts=…)`, and the comparison with the engine's own run.
Interface: run_lab, parts_of.
Must not know: checks and points.
"""

import io
import signal
import sys
import time
import traceback
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from minivllm.course.grader.catalog import Lab, get_lab
from minivllm.course.grader.folder import OUTPUT, default_folder, starter_in
from minivllm.errors import EngineDeadError, InputError

MAX_FRAMES = 3
TIMES_OWN, LEAST_SECONDS = 5, 30.0  # what a student's part may take: so many times the engine's own, and at least this


class TooLong(Exception):
    """A run was stopped."""


def parts_of(lab: Lab, path: Path) -> dict[str, str]:
    """Seam -> path/to/starter.py:Symbol, as EngineConfig takes it."""
    return {seam: f"{path.resolve()}:{symbol}" for seam, symbol in lab.parts.items()}


def run_lab(
    lab: Lab, place: Path, others: str | None = None, open_page: bool = True, patience_s: float | None = None
) -> int:
    """Generate with the engine's own parts, then with the student's; say where they part. Returns the exit status.

    others: "03,04", finished labs that are plugged in too, from their default folders.
    patience_s: after so many seconds the student's run is stopped; None: some times what the engine's own took.
    """
    path = starter_in(lab, place)
    parts: dict[str, str] = {}
    for number in filter(None, (others or "").split(",")):
        other = get_lab(number.strip())
        if other.number != lab.number:
            parts |= parts_of(other, starter_in(other, default_folder(other)))
    parts |= parts_of(lab, path)
    if not parts:
        raise InputError(f"Lab {lab.number} has no part to plug in.")
    folder = OUTPUT / lab.number
    folder.mkdir(parents=True, exist_ok=True)
    print("The engine's own parts:")
    start = time.monotonic()
    own = _generate(lab, {}, folder / "engine.jsonl")
    patience_s = patience_s or max(TIMES_OWN * (time.monotonic() - start), LEAST_SECONDS)
    print(f"\nWith {', '.join(sorted(parts))} of {path}:")
    try:
        mine = _generate_with(lab, parts, folder / "run.jsonl", patience_s)
    except InputError:
        raise
    except Exception as error:
        print("\n".join(_short_traceback(error, path)))
        return 1
    same = own == mine
    print("\nThe same tokens." if same else f"\n{_first_difference(own, mine)}")
    print(_compare_traces(folder, same))
    from minivllm.show.page.render import render
    from minivllm.trace.replay import Trace

    page = render(Trace.load(folder / "run.jsonl"), folder / "run.html", f"lab {lab.number}")
    print(f"The trace as a page: {page}")
    if open_page:
        webbrowser.open(page.resolve().as_uri())
    return 0 if same else 1


def _generate_with(lab: Lab, parts: dict[str, str], trace: Path, patience_s: float) -> list[list[int]]:
    """As _generate, with a student's parts. What they raise is raised here, also when they ended the core's process, or
    it was ended because they took too long."""
    said = io.StringIO()  # the core's traceback, of which the student's line is told in another way
    try:
        with redirect_stderr(said):
            tokens = _generate(lab, parts, trace, patience_s)
    except EngineDeadError:
        with redirect_stdout(io.StringIO()):
            _generate(lab, parts, trace, patience_s, multiprocess=False)
        print(said.getvalue(), end="", file=sys.stderr)
        raise
    print(said.getvalue(), end="", file=sys.stderr)
    return tokens


@contextmanager
def _stopped_after(seconds: float | None, llm: Any) -> Iterator[None]:
    """End the core's process after `seconds`, if it has one of its own; else raise TooLong where it is."""
    if seconds is None:
        yield
        return

    def stop(*_: object) -> None:
        core = getattr(llm.llm_engine.engine_core, "manager", None)
        if core is None:
            raise TooLong(f"stopped after {seconds:.0f} s; this is where it was")
        core.process.kill()

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _generate(
    lab: Lab, parts: dict[str, str], trace: Path, patience_s: float | None = None, **changes: Any
) -> list[list[int]]:
    """The tokens of every prompt of lab.toml, printed as text. changes: of the settings of lab.toml."""
    from minivllm.llm import LLM
    from minivllm.sampling_params import SamplingParams

    sampling: dict[str, Any] = {"temperature": 0} | lab.run.get("sampling", {})
    params = SamplingParams(max_tokens=lab.run["max_tokens"], **sampling)
    settings: dict[str, Any] = {"multiprocess": False, **lab.run.get("settings", {}), **changes}
    settings |= {"parts": parts, "trace": str(trace), "trace_clock": "logical"}
    with LLM(**settings) as llm, _stopped_after(patience_s, llm):
        conversations = [[{"role": "user", "content": prompt}] for prompt in lab.run["prompts"]]
        outputs = llm.chat(conversations, params, use_tqdm=False)
    for prompt, output in zip(lab.run["prompts"], outputs, strict=True):
        print(f"  {prompt}\n    {output.outputs[0].text.strip()}")
    return [list(output.outputs[0].token_ids) for output in outputs]


def _first_difference(own: list[list[int]], mine: list[list[int]]) -> str:
    for number, (ours, theirs) in enumerate(zip(own, mine, strict=True)):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                return f"Prompt {number}: output token {place} is {other}; the engine's own is {one}."
        if len(ours) != len(theirs):
            return f"Prompt {number}: {len(theirs)} output tokens; the engine's own run has {len(ours)}."
    return "The same tokens."


def _compare_traces(folder: Path, same_tokens: bool) -> str:
    from minivllm.show.diff import diff
    from minivllm.trace.replay import Trace

    found = diff(Trace.load(folder / "engine.jsonl"), Trace.load(folder / "run.jsonl"))
    command = f"minivllm diff {folder / 'engine.jsonl'} {folder / 'run.jsonl'}"
    if not found.differences:
        return "The two traces agree in every event."
    first = found.differences[0]
    where = ", ".join(str(part) for part in (first.kind, f"step {first.step}", first.field) if part)
    free = " That need not be a mistake: some calls may be made or left out, and the values of hashes are free."
    return f"The first event that differs: {where}.{free if same_tokens else ''}\nAll of it: {command}"


def _short_traceback(error: BaseException, path: Path) -> list[str]:
    """The student's line first, then ours, in a few lines."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__  # Triton's interpreter wraps what a kernel raises
    frames = traceback.extract_tb(error.__traceback__)
    student = [frame for frame in frames if Path(frame.filename) == path.resolve()]
    lines = [f"  ✗ {type(error).__name__}: {error}"]
    lines += [f"      {path.name}:{frame.lineno}   {frame.line}   (in {frame.name})" for frame in student[-1:]]
    rest = [frame for frame in frames if frame not in student][-MAX_FRAMES:]
    return lines + [f"      called from {Path(frame.filename).name}:{frame.lineno}   {frame.line}" for frame in rest]
