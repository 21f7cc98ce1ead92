"""Mutation check: plants one wrong edit at a time and says which tests notice.

    python tests/mutants/run.py              all of them (make mutants)
    python tests/mutants/run.py --sample 10  ten, always the same
    python tests/mutants/run.py --only salt  those that have this word in their description

Each edit gets a pytest of its own, with quick tests of its part of the engine; the edit is made while the module is
imported, so no file changes. The same tests must pass without any edit. Exit status 0 only if every edit is noticed,
except those with a proof that they change nothing, which nobody may notice.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from mutants.edits import EDITS, Edit  # noqa: E402
from mutants.plant import VARIABLE  # noqa: E402

SAMPLE_SEED = 22
AT_ONCE = 2  # pytests
SECONDS_FOR_A_TEST = 60  # an edit can make the engine run for ever: that is noticed too
FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - |$)", re.MULTILINE)


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
        lines = [f"{verdict}: {self.edit.what} ({self.edit.module}, {self.edit.symbol})"]
        return "\n    ".join([*lines, *([self.edit.proof] if self.edit.proof else []), *self.caught_by])


def sample(count: int) -> list[Edit]:
    """Some edits; always the same ones."""
    return random.Random(SAMPLE_SEED).sample([edit for edit in EDITS if not edit.proof], count)


def check(edit: Edit, stop_after: int = 3) -> Verdict:
    """Run the tests with the edit in place; at most `stop_after` failures are waited for."""
    return Verdict(edit, failing(edit.checks, edit, stop_after))


def failing(tests: Iterable[str], edit: Edit | None = None, stop_after: int = 3) -> list[str]:
    """Run tests in a process of their own, with an edit in place or without; returns those that fail."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]), "OMP_NUM_THREADS": "1"}
    if edit is not None:
        planted = {"module": f"minivllm.{edit.module}", "symbol": edit.symbol, "old": edit.old, "new": edit.new}
        environment[VARIABLE] = json.dumps(planted)
    command = [sys.executable, "-m", "pytest", "-p", "mutants.plant", "-p", "no:cacheprovider", "-q", "--no-header"]
    command += ["--tb=no", "-rfE", f"--maxfail={stop_after}", f"--timeout={SECONDS_FOR_A_TEST}", *tests]
    result = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    failed = FAILED_TEST.findall(result.stdout)
    if result.returncode != 0 and not failed:
        failed = [f"pytest ends with status {result.returncode}"]
    return failed


def check_all(edits: list[Edit], stop_after: int = 3) -> list[Verdict]:
    """The verdicts, in the order of the edits; printed as they come."""
    verdicts = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for verdict in pool.map(lambda edit: check(edit, stop_after), edits):
            print(verdict, flush=True)
            verdicts.append(verdict)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, metavar="N", help="N edits in place of all")
    parser.add_argument("--only", metavar="WORD", help="edits with this word in description, module or symbol")
    arguments = parser.parse_args()
    edits = EDITS if arguments.sample is None else sample(arguments.sample)
    if arguments.only:
        edits = [edit for edit in edits if arguments.only in f"{edit.what} {edit.module} {edit.symbol}"]
    start = time.monotonic()
    all_tests = dict.fromkeys(test for edit in edits for test in edit.checks)
    if without_edits := failing(all_tests):
        print("These tests fail without any edit, so they can tell nothing:", *without_edits, sep="\n    ")
        return 1
    verdicts = check_all(edits)
    bad = [verdict for verdict in verdicts if not verdict.good]
    excused = sum(bool(verdict.edit.proof) for verdict in verdicts)
    print(f"\n{len(verdicts)} edits: {len(verdicts) - len(bad) - excused} caught, {excused} change nothing, ", end="")
    print(f"{len(bad)} wrong, {time.monotonic() - start:.0f} s")
    for verdict in bad:
        print(verdict)
    return 1 if bad or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
