"""CoreEngineProcManager: the core process itself: started, watched, ended.

Owns: the child process and the last lines it wrote to stderr.
Must not know: messages, or what the core does.

The child is started as a program (`python -m …`), not forked or spawned from this one, so a script without a main
guard, a script on stdin and a notebook all work.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

TERM_TIMEOUT_SECONDS = 5
# Of the core's process, unless the caller's own says otherwise.
ENVIRONMENT = {
    # torch's threads don't spin for long while they wait, which on a busy machine costs most of the time. GNU's OpenMP
    # takes a number: some microseconds, so that a thread is still awake when the next product begins.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "2000",
    # glibc keeps what a step has freed for the next one, in place of giving it back and asking again, page by page
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),  # the most that it takes
}
STDERR_LINES_KEPT = 20


class CoreEngineProcManager:
    """vLLM: v1/engine/utils.py::CoreEngineProcManager (starts a program in place of a multiprocessing child)"""

    def __init__(self, handshake_address: str) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
        self.stderr_lines: deque[str] = deque(maxlen=STDERR_LINES_KEPT)
        self.process = subprocess.Popen(
            # -P: a file of the caller's folder must not stand in for a module
            [sys.executable, "-P", "-m", "minivllm.engine.core_proc", handshake_address, str(os.getpid())],
            env={**ENVIRONMENT, **os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal goes to the caller alone
        )
        self._stderr_thread = threading.Thread(target=self._forward_stderr, name="EngineCoreStderr", daemon=True)
        self._stderr_thread.start()

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the process has ended, `timeout` seconds at most; returns whether it has."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def describe_end(self) -> str:
        """How the process ended, with the last it wrote to stderr."""
        self.process.wait()
        self._stderr_thread.join(timeout=1)
        how = _describe_status(self.process.returncode)
        text = f"The engine core (process {self.process.pid}) ended {how}. Make a new LLM."
        if self.stderr_lines:
            text += " The last it wrote:\n" + "".join(f"  {line}" for line in self.stderr_lines).rstrip()
        return text

    def shutdown(self) -> None:
        """Ask it to end; kill it if it doesn't.

        vLLM: v1/utils.py::shutdown
        """
        if self.is_alive():
            self.process.terminate()
            if not self.wait(TERM_TIMEOUT_SECONDS):
                self.process.kill()
                self.process.wait()
        self._stderr_thread.join(timeout=1)

    def _forward_stderr(self) -> None:
        """What the core writes to stderr is seen at once, and its end is kept for an error message.

        It is read to its end, whatever becomes of ours: a core that can't write to its stderr dies of it.
        """
        with self.process.stderr as stream:
            for raw in stream:
                line = raw.decode(errors="replace")
                self.stderr_lines.append(line)
                with suppress(Exception):  # sys.stderr may be None, closed, or any object with an error of its own
                    sys.stderr.write(line)
                    sys.stderr.flush()


def _describe_status(code: int) -> str:
    """How a process ended, as subprocess tells it: below 0 by a signal, which need not have a name."""
    if code >= 0:
        return f"with exit status {code}"
    name = next((f" ({known.name})" for known in signal.Signals if known == -code), "")
    return f"by signal {-code}{name}"
