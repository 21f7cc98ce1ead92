"""What may happen to an engine: it dies, its caller dies, it is interrupted, closed twice, used after its end.

Whatever it is: a clear error in time, and no process, thread, folder or request is left.
"""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine.helpers import (
    MODES,
    SETTINGS,
    Surroundings,
    core_process,
    core_processes,
    greedy,
    is_alive,
    is_idle,
    run,
    socket_dirs,
    wait_until,
)
from engine.scripts import line_with, started
from faults import fault

from minivllm import LLM, SamplingParams
from minivllm.errors import EngineDeadError

both_modes = pytest.mark.parametrize("multiprocess", [False, True], ids=MODES)
PROMPT = [5, 6, 7]
WITHOUT_END = {"ignore_eos": True, "max_tokens": 90}


@pytest.fixture
def victim(tiny_folder: str, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """An engine in two processes that a test may break. Its core says a last word when it dies of SIGABRT."""
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    with LLM(tiny_folder, multiprocess=True, **SETTINGS) as llm:
        assert surroundings.cores() and surroundings.threads() and socket_dirs(surroundings.home)
        yield llm
    surroundings.check_nothing_left()


# ---------------------------------------------------------------------- the core dies


@fault(
    "The core's process",
    "killed in mid-request",
    how="SIGKILL and SIGABRT while 60 requests run",
    then="EngineDeadError with the signal and the core's last words, at once and in every later call; nothing is left",
)
@pytest.mark.parametrize(
    ("signal_number", "words"),
    [
        (signal.SIGKILL, ["signal 9 (SIGKILL)", "Make a new LLM"]),
        (signal.SIGABRT, ["signal 6 (SIGABRT)", "The last it wrote", "in run_busy_loop"]),
    ],
)
def test_core_killed_in_mid_request(
    victim: LLM, surroundings: Surroundings, signal_number: int, words: list[str]
) -> None:
    pid = core_process(victim).pid
    seen: list[Any] = []

    def kill(output: Any) -> None:
        if not seen:
            os.kill(pid, signal_number)
        seen.append(output)

    with pytest.raises(EngineDeadError) as caught:
        run(victim, [PROMPT] * 60, on_output=kill, **WITHOUT_END)  # more than a core could do before it is killed
    assert all(word in str(caught.value) for word in [*words, str(pid)]), caught.value
    assert not psutil.pid_exists(pid)
    wait_until(lambda: not list(surroundings.home.glob("minivllm-*")), "the sockets are gone")
    for _ in range(2):  # it stays dead, and says so again
        with pytest.raises(EngineDeadError, match=words[0].split()[0]):
            run(victim, PROMPT)
    with pytest.raises(EngineDeadError):
        victim.reset_prefix_cache()
    assert not victim.llm_engine.has_unfinished_requests()


@fault(
    "The core's process",
    "killed while nothing runs",
    how="SIGKILL between two calls",
    then="the next call raises EngineDeadError; nothing is left",
)
def test_core_killed_while_nobody_waits(victim: LLM) -> None:
    core_process(victim).kill()
    wait_until(lambda: victim.llm_engine.engine_core.dead is not None, "the end is noticed")
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        run(victim, PROMPT)


@fault(
    "The core's process",
    "killed while reset_prefix_cache waits",
    how="SIGSTOP, then SIGKILL",
    then="EngineDeadError; nothing is left",
)
def test_core_killed_in_a_utility_call(victim: LLM) -> None:
    """Whoever waits for an answer gets the error too."""
    core = core_process(victim)
    core.suspend()
    threading.Timer(0.3, core.kill).start()
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        victim.reset_prefix_cache()


@fault(
    "Parts and messages",
    "a message that the core can't read",
    how="a field of a wrong type",
    then="EngineDeadError with the core's traceback; nothing is left",
)
def test_core_that_cannot_read_a_message_dies_loudly(victim: LLM) -> None:
    """The caller doesn't wait for ever for an answer to what was never understood."""
    request = victim.llm_engine.input_processor.process_inputs(
        "0", victim.llm_engine.input_processor.render_cmpl(PROMPT), SamplingParams()
    )
    request.prompt_token_ids = "not a list"
    victim.llm_engine.engine_core.add_request(request)
    with pytest.raises(EngineDeadError) as caught:
        victim.llm_engine.engine_core.get_output()
    assert "exit status 1" in str(caught.value) and "ValidationError" in str(caught.value)


@fault(
    "The core's process",
    "a step fails",
    how="MemoryError in the worker",
    then="the error (in process), or EngineDeadError with it, now and later; nothing is left",
)
@both_modes
def test_a_failing_step_ends_the_engine(
    multiprocess: bool, tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a step can't be mended: the caller hears what it was, and later calls are told to make a new LLM."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'minivllm.engine.core_proc' in sys.orig_argv:\n"
        "    from minivllm.worker.model_runner import ModelRunner\n"
        "    def fail(self, plan): raise MemoryError('alas')\n"
        "    ModelRunner.prepare_inputs = fail\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with LLM(tiny_folder, multiprocess=multiprocess, **SETTINGS) as llm:
        if not multiprocess:
            runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner

            def fail(plan: Any) -> None:
                raise MemoryError("alas")

            monkeypatch.setattr(runner, "prepare_inputs", fail)
        with pytest.raises(EngineDeadError if multiprocess else MemoryError, match="alas"):
            run(llm, PROMPT)
        with pytest.raises(EngineDeadError, match="alas"):
            run(llm, PROMPT)
    surroundings.check_nothing_left()


# ---------------------------------------------------------------------- the caller dies, or leaves

LONG_RUN = """
import sys
from minivllm import LLM, SamplingParams
from minivllm.errors import EngineDeadError
print("START")
llm = LLM({folder!r}, multiprocess={multiprocess}, **{settings!r})
print("READY")
say = lambda output: print("TOKEN", output.request_id)
endless = SamplingParams(ignore_eos=True, max_tokens=90)
"""


def script(folder: str, rest: str, multiprocess: bool = True) -> str:
    return LONG_RUN.format(folder=folder, settings=SETTINGS, multiprocess=multiprocess) + rest


@fault(
    "The caller's process",
    "killed in mid-request",
    how="SIGKILL",
    then="the core notices, ends, and takes its sockets along",
)
def test_caller_killed(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    """The core notices and ends, and takes its sockets along."""
    rest = "while True: llm.generate([[5, 6, 7]] * 6, endless, use_tqdm=False, on_output=say)"
    with started(script(tiny_folder, rest), surroundings.home, tmp_path) as process:
        line_with(process, "TOKEN")
        (core,) = core_processes(psutil.Process(process.pid))
        assert socket_dirs(surroundings.home)
        process.kill()
        process.wait()
        wait_until(lambda: not is_alive(core), "the core has ended")
    assert not list(surroundings.home.iterdir())


@fault(
    "The caller's process",
    "leaves without shutdown",
    how="the script ends, raises, or calls `sys.exit`",
    then="its own exit status; nothing is left",
)
@pytest.mark.parametrize("ending", ["", "raise ValueError('alas')", "del llm; sys.exit(3)"])
def test_caller_leaves_without_goodbye(
    ending: str, tiny_folder: str, tmp_path: Path, surroundings: Surroundings
) -> None:
    rest = "llm.generate([5, 6], use_tqdm=False)\nprint('DONE')\n" + ending
    with started(script(tiny_folder, rest), surroundings.home, tmp_path) as process:
        line_with(process, "DONE")
        _, err = process.communicate(timeout=60)
    assert process.returncode == {"r": 1, "d": 3}.get(ending[:1], 0), err
    assert ("ValueError: alas" in err) is ("alas" in ending) and "EngineDeadError" not in err
    assert not list(surroundings.home.iterdir())


# ---------------------------------------------------------------------- Ctrl-C


@fault(
    "Ctrl-C",
    "in generate",
    how="SIGINT while 9 requests run",
    then="KeyboardInterrupt; the requests are given up, and the next call returns only its own",
)
@both_modes
def test_interrupted_in_generate(
    multiprocess: bool, tiny_folder: str, tmp_path: Path, surroundings: Surroundings
) -> None:
    """Ctrl-C comes through, what the call had added is given up, and the next call returns only its own."""
    rest = """
try:
    while True: llm.generate([[5, 6, 7]] * 9, endless, use_tqdm=False, on_output=say)
except KeyboardInterrupt:
    print("INTERRUPTED")
outputs = llm.generate([[8, 9], [7]], SamplingParams(temperature=0, max_tokens=4), use_tqdm=False, on_output=say)
print("IDS", [output.request_id for output in outputs], [len(output.outputs[0].token_ids) for output in outputs])
print("IDLE", llm.reset_prefix_cache(), llm.llm_engine.has_unfinished_requests())
"""
    with started(script(tiny_folder, rest, multiprocess), surroundings.home, tmp_path) as process:
        line_with(process, "TOKEN")
        process.send_signal(signal.SIGINT)
        line_with(process, "INTERRUPTED")
        said = process.stdout.read().splitlines()
        assert process.wait() == 0, process.stderr.read()
    *tokens, ids, idle = said
    own = {line.split()[1] for line in tokens}
    assert ids == f"IDS {sorted(own, key=int)} [4, 4]"
    assert idle == "IDLE True False"
    assert not list(surroundings.home.iterdir())


@fault(
    "Ctrl-C",
    "while the engine starts",
    how="SIGINT once the core's process is there",
    then="KeyboardInterrupt; nothing is left",
)
def test_interrupted_while_the_engine_starts(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    with started(script(tiny_folder, ""), surroundings.home, tmp_path) as process:
        line_with(process, "START")
        caller = psutil.Process(process.pid)
        wait_until(lambda: bool(core_processes(caller)), "the core is there")
        (core,) = core_processes(caller)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode and err.rstrip().endswith("KeyboardInterrupt")
    assert not is_alive(core)
    assert not list(surroundings.home.iterdir())


def test_ctrl_c_in_a_terminal_reaches_the_caller_alone(remote_llm: LLM) -> None:
    """A terminal sends it to the whole foreground group; the core is in a group of its own, and ignores it anyway."""
    core = core_process(remote_llm)
    assert os.getpgid(core.pid) != os.getpgid(0)
    core.send_signal(signal.SIGINT)
    assert len(greedy(remote_llm, PROMPT)[0]) == 8


class Stop(Exception):
    """Raised by a caller's own code."""


@fault(
    "Callbacks",
    "a callback raises",
    how="`on_output` raises at the third token, three times",
    then="the error; the requests are given up, and the next call is right",
)
def test_an_error_in_on_output(llm: LLM) -> None:
    def stop(output: Any) -> None:
        if len(output.outputs[0].token_ids) == 3:
            raise Stop

    for _ in range(3):
        with pytest.raises(Stop):
            run(llm, [PROMPT] * 9, on_output=stop, **WITHOUT_END)
        assert is_idle(llm)
    seen: list[Any] = []
    outputs = run(llm, [PROMPT, [9]], temperature=0, max_tokens=5, on_output=seen.append)
    assert len(outputs) == 2
    assert {output.request_id for output in seen} == {output.request_id for output in outputs}
    assert [output.outputs[0].token_ids for output in outputs] == greedy(llm, [PROMPT, [9]], 5)


# ---------------------------------------------------------------------- the end


@fault(
    "The core's process",
    "used after shutdown, and shut down again",
    how="generate and reset_prefix_cache after `shutdown()`",
    then="EngineDeadError, as often as one asks; nothing is left",
)
@both_modes
def test_shutdown_twice_and_use_after_it(multiprocess: bool, tiny_folder: str, surroundings: Surroundings) -> None:
    llm = LLM(tiny_folder, multiprocess=multiprocess, **SETTINGS)
    assert len(greedy(llm, PROMPT)) == 1
    llm.shutdown()
    surroundings.check_nothing_left()
    llm.shutdown()
    for _ in range(2):
        with pytest.raises(EngineDeadError, match=r"shut down\. Make a new LLM"):
            run(llm, PROMPT)
    with pytest.raises(EngineDeadError, match="shut down"):
        llm.reset_prefix_cache()
    assert not llm.llm_engine.has_unfinished_requests()


def test_two_engines_side_by_side(tiny_folder: str, surroundings: Surroundings) -> None:
    """Two in processes of their own and one in this one: each answers as if it were alone."""
    with (
        LLM(tiny_folder, multiprocess=True, **SETTINGS) as first,
        LLM(tiny_folder, multiprocess=True, **SETTINGS | {"max_model_len": 50}) as second,
        LLM(tiny_folder, multiprocess=False, **SETTINGS | {"block_size": 8}) as third,
    ):
        assert len(surroundings.cores()) == len(socket_dirs(surroundings.home)) == 2
        answers = []

        def ask_the_others(output: Any) -> None:
            if output.finished:
                answers.extend([greedy(second, PROMPT), greedy(third, PROMPT)])

        run(first, PROMPT, temperature=0, max_tokens=8, on_output=ask_the_others)
        assert answers == [greedy(first, PROMPT)] * 2
        second.shutdown()
        assert len(surroundings.cores()) == len(socket_dirs(surroundings.home)) == 1
        assert greedy(first, PROMPT) == greedy(third, PROMPT) == answers[0]
    surroundings.check_nothing_left()


def test_an_engine_made_and_used_in_another_thread(tiny_folder: str, surroundings: Surroundings) -> None:
    results: list[Any] = []

    def work() -> None:
        for multiprocess in (False, True):
            with LLM(tiny_folder, multiprocess=multiprocess, **SETTINGS) as llm:
                results.append(greedy(llm, PROMPT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(results) == 2 and results[0] == results[1]
    surroundings.check_nothing_left()


# ---------------------------------------------------------------------- utility calls


def test_utility_calls(llm: LLM) -> None:
    client = llm.llm_engine.engine_core
    assert client.call_utility("reset_prefix_cache") is True
    greedy(llm, [PROMPT])
    assert llm.reset_prefix_cache() is True


def test_a_utility_call_that_fails(remote_llm: LLM) -> None:
    """The error comes back, and the core goes on."""
    client = remote_llm.llm_engine.engine_core
    with pytest.raises(RuntimeError, match="no_such_method failed"):
        client.call_utility("no_such_method")
    with pytest.raises(RuntimeError, match="reset_prefix_cache failed"):
        client.call_utility("reset_prefix_cache", "too", "many")
    assert len(greedy(remote_llm, [PROMPT])[0]) == 8


def test_the_prefix_cache_is_not_reset_under_a_running_request(llm: LLM) -> None:
    answers: list[bool] = []

    def ask_once(_: Any) -> None:
        if not answers:
            answers.append(llm.reset_prefix_cache())

    run(llm, [PROMPT] * 60, on_output=ask_once, **WITHOUT_END)
    assert answers[0] is False
    assert llm.reset_prefix_cache() is True


def test_the_environment_chooses_the_mode(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIVLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with LLM(tiny_folder, **SETTINGS) as llm:
        assert type(llm.llm_engine.engine_core).__name__ == "InprocClient"
