"""vLLM 0.22.0's own unit tests on minivllm's classes: `make test-vllm`.

Prints every test that is not simply passed, with its reason. The exit status is 1 if one has none.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # a name of the hub stands for the default model

sys.path.insert(0, str(Path(__file__).parents[1]))

from vllm_own import shim, source, verdicts


class Outcomes:
    """A pytest plugin: what became of the cases of each test function, and why."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))  # test -> outcome -> reasons

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._note(report.nodeid, report.outcome, report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._note(report.nodeid, report.outcome, report.longrepr)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._note(item.nodeid, "skipped", "another tokenizer of the hub")

    def _note(self, nodeid: str, outcome: str, why: Any) -> None:
        test = nodeid.partition("[")[0].rpartition("/")[2]
        if isinstance(why, tuple):  # of a skip: (file, line, text)
            reason = why[2].removeprefix("Skipped").removeprefix(": ") or "vLLM skips it"
        else:
            reason = (str(why).strip().splitlines() or [""])[-1]
        self.of[test][outcome].append(reason)


def judge(test: str, outcomes: dict[str, list[str]]) -> tuple[str, str]:
    """(passed, out of scope, different or unexplained; why) of one test function."""
    different, out_of_scope = verdicts.DIFFERENT.get(test), verdicts.OUT_OF_SCOPE.get(test)
    failed, skipped = outcomes.get("failed", []), outcomes.get("skipped", [])
    if failed:
        if different or out_of_scope:
            return ("different", different) if different else ("out of scope", out_of_scope)
        return "unexplained", f"fails: {failed[0]}"
    reasons = {reason: out_of_scope or _reason_of(reason) for reason in skipped}
    unknown = [reason for reason, known in reasons.items() if known is None]
    if unknown:
        return "unexplained", f"skipped: {unknown[0]}"
    if outcomes.get("passed"):
        if different or (out_of_scope and not skipped):
            return "unexplained", "passes, though the table says why it can't"
        return "passed", "; ".join(sorted({f"but for {known}" for known in reasons.values()}))
    return "out of scope", "; ".join(sorted(set(reasons.values())))


def _reason_of(used: str) -> str | None:
    """The reason of the longest known name that begins what a skipped test used."""
    known = [name for name in verdicts.OUT_OF_SCOPE_NAMES if used.startswith(name)]
    return verdicts.OUT_OF_SCOPE_NAMES[max(known, key=len)] if known else None


def main(arguments: list[str]) -> int:
    shim.install()
    folder = source.tests_of_vllm(verdicts.FILES + verdicts.HELPERS)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    cpu_test\n    skip_global_cleanup\n    asyncio\n")
    outcomes = Outcomes()
    command = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "vllm_own.plugin", "--show-capture=no"]
    status = pytest.main([*command, "-W", "ignore", *(arguments or verdicts.FILES)], plugins=[outcomes])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return int(status)
    judged = {test: judge(test, found) for test, found in sorted(outcomes.of.items())}
    print()
    for verdict in ("passed", "out of scope", "different", "unexplained"):
        those = {test: why for test, (kind, why) in judged.items() if kind == verdict}
        print(f"{verdict}: {len(those)}")
        for test, why in those.items():
            if why:
                print(f"    {test}: {why}")
    stale = {*verdicts.DIFFERENT, *verdicts.OUT_OF_SCOPE} - set(judged) if not arguments else set()
    for test in sorted(stale):
        print(f"    {test}: the table names it, and there is no such test")
    return 1 if stale or any(kind == "unexplained" for kind, _ in judged.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
