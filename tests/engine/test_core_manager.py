"""The core's process from outside: how it is started, watched and ended. A small program stands in for the core."""

import os
import sys
from pathlib import Path

import pytest
from engine.helpers import wait_until

from minivllm.engine import core_manager
from minivllm.engine.core_manager import CoreEngineProcManager


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Start":
    return Start(tmp_path, monkeypatch)


class Start:
    """Starts a shell script in the core's place."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch

    def __call__(self, script: str) -> CoreEngineProcManager:
        program = self.folder / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with self.monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(program))
            return CoreEngineProcManager("ipc:///nowhere")


def test_how_it_is_started(started: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a group of its own, past the files of the caller's folder; the caller's own settings win."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    manager = started('echo "$1 $2 $3 $OMP_WAIT_POLICY $GOMP_SPINCOUNT" > "$0.said"; sleep 100')
    said = tmp_path / "program.said"
    wait_until(lambda: said.exists() and said.read_text().endswith("\n"), "it has started")
    assert said.read_text().split() == ["-P", "-m", "minivllm.engine.core_proc", "ACTIVE", "2000"]
    assert os.getpgid(manager.process.pid) == manager.process.pid != os.getpgid(0)
    os.killpg(manager.process.pid, 9)
    assert manager.wait() and manager.describe_end().startswith(f"The engine core (process {manager.process.pid})")


def test_a_process_that_does_not_end_is_killed(started: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_manager, "TERM_TIMEOUT_SECONDS", 0.2)
    manager = started("trap '' TERM; echo ready >&2; while :; do sleep 0.05; done")
    wait_until(lambda: manager.stderr_lines, "it is ready")
    assert manager.wait(0.01) is False and manager.is_alive()
    manager.shutdown()
    assert manager.process.returncode == -9 and "by signal 9 (SIGKILL)" in manager.describe_end()


def test_the_last_lines_are_kept_even_if_they_are_no_text(started: Start) -> None:
    manager = started("for i in $(seq 100); do echo line $i; done >&2; printf '\\377 last\\n' >&2; exit 0")
    end = manager.describe_end()
    assert "ended with exit status 0. Make a new LLM." in end
    assert end.endswith("  line 99\n  line 100\n  \ufffd last")
    assert len(manager.stderr_lines) == core_manager.STDERR_LINES_KEPT
