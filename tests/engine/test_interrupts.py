"""Ctrl-C at the wrong moment, and a caller that dies while it ends its engine."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine.helpers import MODES, SETTINGS, Surroundings, core_processes, greedy, is_alive, is_idle, run, wait_until
from engine.scripts import line_with, started
from faults import fault

from minivllm import LLM

PROMPT = [5, 6, 7]
both_modes = pytest.mark.parametrize("multiprocess", [False, True], ids=MODES)
START = """
import os, signal, sys, time
from minivllm import LLM, SamplingParams
from minivllm.engine.core_manager import CoreEngineProcManager
llm = LLM({folder!r}, multiprocess={multiprocess}, **{settings!r})
endless = SamplingParams(ignore_eos=True, max_tokens=90)
"""


def script(folder: str, rest: str, multiprocess: bool = True) -> str:
    return START.format(folder=folder, settings=SETTINGS, multiprocess=multiprocess) + rest


@fault(
    "Ctrl-C",
    "in the middle of a step",
    how="SIGINT from within the worker",
    then="the step is done, then KeyboardInterrupt; the requests are given up, the next call is right",
)
def test_ctrl_c_in_a_step(local_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    right = greedy(local_llm, PROMPT)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = local_llm.llm_engine.engine_core.engine_core.model_executor
    execute, done = worker.execute_model, []

    def execute_model(plan: Any) -> Any:
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        result = execute(plan)
        done.append(True)
        return result

    try:
        with monkeypatch.context() as patch:
            patch.setattr(worker, "execute_model", execute_model)
            with pytest.raises(KeyboardInterrupt):
                run(local_llm, [PROMPT] * 3, ignore_eos=True, max_tokens=20)
        assert len(done) == 3
    finally:
        signal.signal(signal.SIGINT, before)
    assert is_idle(local_llm) and greedy(local_llm, PROMPT) == right


@fault(
    "Ctrl-C",
    "twice, the second time while the engine ends",
    how="SIGINT in generate; SIGINT again while a core that is stopped is waited for",
    then="the end is completed first, then KeyboardInterrupt; nothing is left",
)
def test_ctrl_c_twice(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    rest = """
try:
    try:
        llm.generate([[5, 6, 7]] * 60, endless, use_tqdm=False, on_output=lambda output: print("TOKEN"))
    except KeyboardInterrupt:
        os.kill(llm.llm_engine.engine_core.manager.process.pid, signal.SIGSTOP)
        terminate = CoreEngineProcManager.wait
        def wait(self, timeout=None):
            if timeout == 5:
                print("ENDING")
            return terminate(self, timeout)
        CoreEngineProcManager.wait = wait
        llm.shutdown()
except KeyboardInterrupt:
    print("AGAIN", llm.llm_engine.engine_core.state)
"""
    with started(script(tiny_folder, rest), surroundings.home, tmp_path) as process:
        line_with(process, "TOKEN")
        (core,) = core_processes(psutil.Process(process.pid))
        process.send_signal(signal.SIGINT)
        line_with(process, "ENDING")
        process.send_signal(signal.SIGINT)
        assert line_with(process, "AGAIN") == "ended"
        assert process.wait() == 0, process.stderr.read()
    assert not is_alive(core)
    assert not list(surroundings.home.iterdir())


@fault(
    "The caller's process",
    "killed while it ends its engine",
    how="SIGKILL between SIGTERM to the core and the rest",
    then="the core ends by itself and takes the sockets along",
)
def test_a_caller_killed_in_shutdown(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    rest = """
def shutdown(self):
    self.process.terminate()
    print("ENDING")
    time.sleep(1000)
CoreEngineProcManager.shutdown = shutdown
llm.shutdown()
"""
    with started(script(tiny_folder, rest), surroundings.home, tmp_path) as process:
        line_with(process, "ENDING")
        process.kill()
        process.wait()
        wait_until(lambda: not list(surroundings.home.iterdir()), "the sockets are gone")


@fault(
    "The caller's process",
    "ended by a signal's handler in the middle of a call",
    how="SIGTERM whose handler calls `llm.shutdown()` and `sys.exit(4)`, in generate",
    then="exit status 4; nothing is left",
)
@both_modes
def test_a_handler_that_shuts_down(
    multiprocess: bool, tiny_folder: str, tmp_path: Path, surroundings: Surroundings
) -> None:
    rest = """
def leave(*_):
    llm.shutdown()
    sys.exit(4)
signal.signal(signal.SIGTERM, leave)
while True:
    llm.generate([[5, 6, 7]] * 60, endless, use_tqdm=False, on_output=lambda output: print("TOKEN"))
"""
    with started(script(tiny_folder, rest, multiprocess), surroundings.home, tmp_path) as process:
        line_with(process, "TOKEN")
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 4
    assert not list(surroundings.home.iterdir())


HANDLER = """
#include <signal.h>
static void ignore(int number) { (void)number; }
__attribute__((constructor)) static void before_python(void) { signal(SIGINT, ignore); }
"""


@fault(
    "Surroundings",
    "a SIGINT handler that was set in C",
    how="a library that is loaded before Python sets one, as a program does that embeds Python",
    then="it is left alone, and the engine answers",
)
@both_modes
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_handler_set_in_c(
    multiprocess: bool, tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, library = tmp_path / "handler.c", tmp_path / "handler.so"
    source.write_text(HANDLER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    rest = """
print("HANDLER", BEFORE, signal.getsignal(signal.SIGINT))
os.kill(os.getpid(), signal.SIGINT)
print("TOKENS", len(llm.generate([[5, 6, 7]], SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids))
llm.shutdown()
"""
    text = "import signal\nBEFORE = signal.getsignal(signal.SIGINT)\n" + script(tiny_folder, rest, multiprocess)
    with started(text, surroundings.home, tmp_path, own_handler=False) as process:
        assert line_with(process, "HANDLER") == "None None"
        assert line_with(process, "TOKENS") == "4"
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert not list(surroundings.home.iterdir())
