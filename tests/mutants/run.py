"""Mutation check: plants one wrong edit at a time and says which tests notice.

    python tests/mutants/run.py              all of them (make mutants)
    python tests/mutants/run.py --sample 10  ten, always the same
    python tests/mutants/run.py --only salt  those that have this word in their description

Each edit gets a process and a pytest of its own, with quick tests of its part of the engine; the edit is made while the
module is imported, so no file changes. The same tests must pass without any edit. Exit status 0 only if every edit is
noticed, except those with a proof that they change nothing, which nobody may notice.
"""

import argparse
import contextlib
import io
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]
os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402
from mutants.edits import EDITS, Edit  # noqa: E402
from mutants.plant import plant  # noqa: E402

SAMPLE_SEED = 22
AT_ONCE = 2  # processes
SECONDS_FOR_A_TEST = 20  # an edit can make the engine run for ever: that is noticed too
FORK = get_context("fork")  # a child has at once what `preload` has imported


@dataclass(slots=True)
class Verdict:
    """What became of an edit."""

    edit: Edit
    caught_by: list[str]  # tests

    @property
    def good(self) -> bool:
        return bool(self.caught_by) != bool(self.edit.proof)

    def __str__(self) -> str:
        if self.edit.proof:
            verdict = "CAUGHT, so the proof is wrong" if self.caught_by else "changes nothing"
        else:
            verdict = "caught" if self.caught_by else "SURVIVES"
        lines = [f"{verdict}: {self.edit.what} ({self.edit.path}, {self.edit.symbol})"]
        return "\n    ".join([*lines, *([self.edit.proof] if self.edit.proof else []), *self.caught_by])


@dataclass(slots=True, eq=False)
class Failures:
    """A pytest plugin that notes what fails."""

    names: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def preload() -> None:
    """Import what takes long, once for all children; nothing of the engine."""
    import tokenizers  # noqa: F401
    import torch
    import transformers

    torch.set_num_threads(1)
    _ = transformers.PreTrainedTokenizerFast, transformers.AutoTokenizer  # they are imported at first use
    imported = {name for name in sys.modules if name.startswith("minivllm.")}
    known = {"minivllm.proof", "minivllm.proof.edits", "minivllm.course", "minivllm.course.places"}
    assert imported <= known, f"an edit of what is imported already is not planted: {imported - known}"


def run_tests(edit: Edit | None, tests: tuple[str, ...], stop_after: int, answer: connection.Connection) -> None:
    """In a child: run tests, with an edit in place or without; send the names of those that fail, or an error."""
    if edit is not None:
        plant(edit)
    failures = Failures()
    options = ["-q", "-p", "no:cacheprovider", f"--maxfail={stop_after}", f"--timeout={SECONDS_FOR_A_TEST}"]
    os.chdir(TESTS.parent)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main([*options, *tests], plugins=[failures])
    finished = status == pytest.ExitCode.OK or failures.names
    answer.send(failures.names if finished else RuntimeError(f"pytest ends with {status!r}:\n{said.getvalue()}"))


def failing(jobs: list[tuple[Edit | None, tuple[str, ...]]], stop_after: int) -> Iterator[list[str]]:
    """Run jobs, AT_ONCE at a time, each in a child; gives what fails in each, in the order of the jobs."""
    running: list[tuple[Any, connection.Connection]] = []
    waiting = list(jobs)
    while running or waiting:
        while waiting and len(running) < AT_ONCE:
            ours, theirs = FORK.Pipe(duplex=False)
            child = FORK.Process(target=run_tests, args=(*waiting.pop(0), stop_after, theirs))
            child.start()
            theirs.close()
            running.append((child, ours))
        child, answer = running.pop(0)
        try:
            failed = answer.recv()
        except EOFError:
            failed = ["the process breaks down"]
        child.join()
        if isinstance(failed, Exception):
            raise failed
        yield failed


def sample(count: int) -> list[Edit]:
    """Some edits; always the same ones."""
    return random.Random(SAMPLE_SEED).sample([edit for edit in EDITS if not edit.proof], count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, metavar="N", help="N edits in place of all")
    parser.add_argument("--only", metavar="WORD", help="edits with this word in description, module or symbol")
    parser.add_argument(
        "--tests", type=int, default=3, metavar="N", help="name N tests for each (default: %(default)s)"
    )
    parser.add_argument(
        "--trust", action="store_true", help="leave out the run without edits: the tests have just passed"
    )
    arguments = parser.parse_args()
    edits = EDITS if arguments.sample is None else sample(arguments.sample)
    if arguments.only:
        edits = [edit for edit in edits if arguments.only in f"{edit.what} {edit.path} {edit.symbol}"]
    start = time.monotonic()
    preload()
    if not arguments.trust:
        all_tests = tuple(dict.fromkeys(test for edit in edits for test in edit.checks))
        (without_edits,) = failing([(None, all_tests)], arguments.tests)
        if without_edits:
            print("These tests fail without any edit, so they can tell nothing:", *without_edits, sep="\n    ")
            return 1
    verdicts = []
    for edit, caught_by in zip(edits, failing([(edit, edit.checks) for edit in edits], arguments.tests), strict=True):
        verdicts.append(Verdict(edit, caught_by))
        print(verdicts[-1], flush=True)
    bad = [verdict for verdict in verdicts if not verdict.good]
    excused = sum(bool(verdict.edit.proof) and verdict.good for verdict in verdicts)
    caught = len(verdicts) - len(bad) - excused
    seconds = time.monotonic() - start
    print(f"\n{len(verdicts)} edits: {caught} caught, {excused} change nothing, {len(bad)} wrong; {seconds:.0f} s")
    for verdict in bad:
        print(verdict)
    return 1 if bad or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
