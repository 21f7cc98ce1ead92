"""However an engine with a process of its own ends, everybody who waits hears why, now and later, and nothing is left.

One test, at least, for each row of the table of waits in core_client.py.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from engine.helpers import (
    MODES,
    PATIENCE_SECONDS,
    SETTINGS,
    Surroundings,
    core_process,
    greedy,
    is_idle,
    run,
    wait_until,
)
from faults import fault

from minivllm import LLM
from minivllm.engine import core_client
from minivllm.engine.messages import ENGINE_CORE_DEAD
from minivllm.errors import EngineDeadError

both_modes = pytest.mark.parametrize("multiprocess", [False, True], ids=MODES)
PROMPT = [5, 6, 7]
WITHOUT_END = {"ignore_eos": True, "max_tokens": 90}


@pytest.fixture
def victim(tiny_folder: str, surroundings: Surroundings) -> Iterator[LLM]:
    """An engine in two processes that a test may break."""
    with LLM(tiny_folder, multiprocess=True, **SETTINGS) as llm:
        yield llm
    surroundings.check_nothing_left()


class Waiter(threading.Thread):
    """Calls something in a thread of its own, and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.call()
        except Exception as error:
            self.error = error

    def result(self) -> Exception | None:
        """What was raised; the call must have come back."""
        self.join(timeout=PATIENCE_SECONDS)
        assert not self.is_alive(), "it waits for ever"
        return self.error


def check_dead(llm: LLM, words: str) -> None:
    """The core has ended, and every later call says why."""
    wait_until(lambda: not psutil.pid_exists(llm.llm_engine.engine_core.manager.process.pid), "the core has ended")
    errors = []
    for call in (lambda: run(llm, PROMPT), llm.reset_prefix_cache, lambda: run(llm, PROMPT)):
        with pytest.raises(EngineDeadError, match=words) as raised:
            call()
        errors.append(raised.value)
    assert len(set(map(id, errors))) == len(errors)  # a traceback belongs to one
    assert not llm.llm_engine.has_unfinished_requests()


def part(folder: Path, text: str) -> str:
    """The path of a file with parts, between engine and test."""
    path = folder / f"part_{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    return str(path)


# ---------------------------------------------------------------------- shutdown, while others wait


@both_modes
@fault(
    "Threads and forks",
    "shutdown while another thread generates",
    how="200 requests in one thread, `shutdown()` in another",
    then="generate raises EngineDeadError, now and later; nothing is left",
)
def test_shutdown_while_another_thread_generates(
    multiprocess: bool, tiny_folder: str, surroundings: Surroundings
) -> None:
    llm = LLM(tiny_folder, multiprocess=multiprocess, **SETTINGS)
    begun = threading.Event()
    waiter = Waiter(lambda: run(llm, [PROMPT] * 200, on_output=lambda _: begun.set(), **WITHOUT_END))
    assert begun.wait(PATIENCE_SECONDS)
    llm.shutdown()
    error = waiter.result()
    assert isinstance(error, EngineDeadError) and "shut down" in str(error)
    with pytest.raises(EngineDeadError, match="shut down"):
        run(llm, PROMPT)
    surroundings.check_nothing_left()


@fault(
    "Threads and forks",
    "shutdown while others wait for a core that is stopped",
    how="SIGSTOP; one thread waits in generate and one in reset_prefix_cache; `shutdown()` in two more at once",
    then="both raise EngineDeadError; the core is killed after 5 s; nothing is left",
)
def test_shutdown_wakes_everybody(victim: LLM) -> None:
    core_process(victim).suspend()
    waiters = [Waiter(lambda: run(victim, PROMPT)), Waiter(victim.reset_prefix_cache)]
    client = victim.llm_engine.engine_core
    wait_until(lambda: victim.llm_engine.has_unfinished_requests() and bool(client.utility_results), "both wait")
    other = Waiter(client.shutdown)
    victim.shutdown()
    assert other.result() is None
    assert client.state == "ended"
    for waiter in waiters:
        error = waiter.result()
        assert isinstance(error, EngineDeadError) and "shut down" in str(error)


# ---------------------------------------------------------------------- what the output thread can't read

RAISES_ONCE = """
from minivllm.engine import routing
def read_output(frames, decoder, outputs_queue, utility_results):
    raise KeyError("alas, a beginner's mistake")
"""


@fault(
    "Parts and messages",
    "a part of the output thread raises",
    how="`parts={'read_output': ...}`, which raises KeyError",
    then="generate raises EngineDeadError with that error, later calls too; the core is ended; nothing is left",
)
def test_a_part_that_raises_in_the_output_thread(tiny_folder: str, tmp_path: Path, surroundings: Surroundings) -> None:
    parts = {"read_output": f"{part(tmp_path, RAISES_ONCE)}:read_output"}
    with LLM(tiny_folder, multiprocess=True, parts=parts, **SETTINGS) as llm:
        with pytest.raises(EngineDeadError, match="a beginner's mistake") as caught:
            run(llm, PROMPT)
        assert isinstance(caught.value.__cause__, KeyError)
        check_dead(llm, "a beginner's mistake")
    surroundings.check_nothing_left()


@fault(
    "Parts and messages",
    "somebody else's bytes on the output socket",
    how="another process of the same user sends three bytes",
    then="EngineDeadError names what could not be read; the core is ended; nothing is left",
)
def test_bytes_that_are_no_message(victim: LLM) -> None:
    client = victim.llm_engine.engine_core
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(client._output_address)
        socket.send(b"\xff\xfe\xfd")
        wait_until(lambda: client.state == "ended", "the end")
    check_dead(victim, "could not be read")


@fault(
    "Parts and messages",
    "a last word that isn't the core's",
    how="another process sends ENGINE_CORE_DEAD; the core runs on",
    then="after 5 s EngineDeadError says so; the core is ended; nothing is left",
)
def test_a_last_word_of_somebody_else(victim: LLM) -> None:
    client = victim.llm_engine.engine_core
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(client._output_address)
        socket.send(ENGINE_CORE_DEAD)
        wait_until(lambda: client.state == "ended", "the end")
    check_dead(victim, "its process ran on")


def test_strangers_in_the_handshake_are_passed_over(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the core's own identity counts."""
    manager_class = core_client.CoreEngineProcManager
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)

    def start(address: str) -> Any:
        stranger.connect(address)
        stranger.send(b"nonsense")
        stranger.send_multipart([b"more", b"nonsense"])
        return manager_class(address)

    monkeypatch.setattr(core_client, "CoreEngineProcManager", start)
    with LLM(tiny_folder, multiprocess=True, **SETTINGS) as llm:
        assert len(greedy(llm, PROMPT)[0]) == 8
    context.destroy(linger=0)


# ---------------------------------------------------------------------- the core's process


@fault(
    "The core's process",
    "ended by a signal without a name",
    how="signal 35 in mid-request",
    then="EngineDeadError with the signal's number; nothing is left",
)
def test_a_signal_without_a_name(victim: LLM) -> None:
    pid = core_process(victim).pid
    with pytest.raises(EngineDeadError, match=r"by signal 35\. Make a new LLM"):
        run(victim, [PROMPT] * 60, on_output=lambda _: os.kill(pid, 35), **WITHOUT_END)
    check_dead(victim, "by signal 35")


@fault(
    "The core's process",
    "stopped for a while, and continued",
    how="SIGSTOP in mid-request, SIGCONT 1 s later",
    then="the right tokens; one line on the silence (after 60 s; 0.2 s in the test)",
)
def test_a_core_that_sleeps(victim: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    right = greedy(victim, PROMPT, 20)
    monkeypatch.setattr(core_client, "SILENCE_SECONDS", 0.2)
    core = core_process(victim)
    stopped: list[bool] = []

    def stop_once(_: Any) -> None:
        if not stopped:
            stopped.append(True)
            core.suspend()
            threading.Timer(1, core.resume).start()

    outputs = run(victim, [PROMPT], temperature=0, max_tokens=20, on_output=stop_once)
    assert [output.outputs[0].token_ids for output in outputs] == right
    silent = [record.getMessage() for record in caplog.records if "has said nothing" in record.getMessage()]
    assert len(silent) == 1 and str(core.pid) in silent[0]


class TestLastWords:
    """What the core said before it died comes first; the death comes after it."""

    DIES = """
import sys
if "minivllm.engine.core_proc" in sys.orig_argv:
    import os, time, zmq
    send = zmq.Socket.send_multipart
    def send_and_die(self, frames, **kwargs):
        send(self, frames, **kwargs)
        if self.socket_type == zmq.PUSH and zmq.Socket.num_left == 0:
            time.sleep(0.2)  # it is on its way
            os._exit(7)
        if self.socket_type == zmq.PUSH:
            zmq.Socket.num_left -= 1
    zmq.Socket.num_left = {num_left}
    zmq.Socket.send_multipart = send_and_die
"""
    SLOW = """
import time
from minivllm.engine import routing
def read_output(frames, decoder, outputs_queue, utility_results):
    time.sleep({seconds})
    return routing.read_output(frames, decoder, outputs_queue, utility_results)
"""

    def engine(self, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_left: int, slow: float) -> LLM:
        (tmp_path / "sitecustomize.py").write_text(self.DIES.format(num_left=num_left))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        parts = {"read_output": f"{part(tmp_path, self.SLOW.format(seconds=slow))}:read_output"}
        return LLM(folder, multiprocess=True, parts=parts, **SETTINGS)

    @fault(
        "The core's process",
        "dies right after its answer",
        how="`os._exit(7)` behind the last message; the caller takes 0.7 s to decode it",
        then="the answer is returned; the next call raises EngineDeadError",
    )
    def test_an_answer_before_the_death(
        self, tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.engine(tiny_folder, tmp_path, monkeypatch, num_left=0, slow=0.7) as llm:
            assert len(greedy(llm, PROMPT, max_tokens=1)[0]) == 1
            check_dead(llm, "exit status 7")
        surroundings.check_nothing_left()

    @fault(
        "The core's process",
        "dies while the caller is busy with an earlier message",
        how="`os._exit(7)` behind the last message; `on_output` waits until the end has been noticed",
        then="the messages that had arrived are still given out, the answer too",
    )
    def test_answers_that_wait_in_the_queue(
        self, tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.engine(tiny_folder, tmp_path, monkeypatch, num_left=3, slow=0) as llm:
            client = llm.llm_engine.engine_core

            def dawdle(_: Any) -> None:
                wait_until(lambda: client.dead is not None, "the end is noticed")

            (output,) = run(llm, PROMPT, temperature=0, max_tokens=4, ignore_eos=True, on_output=dawdle)
            assert len(output.outputs[0].token_ids) == 4
            check_dead(llm, "exit status 7")
        surroundings.check_nothing_left()


# ---------------------------------------------------------------------- start

PHASES = {
    "import": "die()",
    "model": "from minivllm.worker.executor import UniProcExecutor as place; place.__init__ = die",
    "cache": "from minivllm.worker.executor import UniProcExecutor as place; place.initialize_from_config = die",
    "first message": "from minivllm.engine.core import EngineCore as place; place.ready_response = die",
    "ready": "import gc as place; place.freeze = die",
}
WITH_A_TRACE = {
    "model": PHASES["model"],
    "ready": PHASES["ready"],
    "meeting": "from minivllm.trace.rendezvous import CoreSide as place; place.run_busy_loop = die",
}
DIES_AT_START = """
import sys
if "minivllm.engine.core_proc" in sys.orig_argv:
    import os
    def die(*_, **__):
        print("the last words of a core", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    {phase}
"""


@pytest.mark.parametrize("phase", PHASES)
@fault(
    "Start",
    "the core dies while it starts",
    how="SIGKILL at its imports, in the model, at the cache, before its first message, before READY",
    then="LLM() raises EngineDeadError with the signal and the core's own last words; nothing is left",
)
def test_death_at_each_phase_of_the_start(
    phase: str, tiny_folder: str, tmp_path: Path, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES_AT_START.format(phase=PHASES[phase]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(EngineDeadError) as caught:
        LLM(tiny_folder, multiprocess=True, **SETTINGS)
    assert "SIGKILL" in str(caught.value) and "the last words of a core" in str(caught.value)
    surroundings.check_nothing_left()


@pytest.mark.parametrize("clock", ["monotonic", "logical"])
@pytest.mark.parametrize("phase", WITH_A_TRACE)
@fault(
    "Start",
    "the core dies while it starts with a trace",
    how="SIGKILL in the model, before READY, before the two processes take turns",
    then="EngineDeadError, of LLM() or of the first call; nothing is left, of the trace neither if LLM() failed",
)
def test_death_at_the_start_of_a_recording(
    phase: str,
    clock: str,
    tiny_folder: str,
    tmp_path: Path,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(DIES_AT_START.format(phase=WITH_A_TRACE[phase]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    target = tmp_path / "traces" / "trace.jsonl"
    if phase == "meeting" and clock == "monotonic":  # there is no meeting
        LLM(tiny_folder, multiprocess=True, trace=str(target), trace_clock=clock, **SETTINGS).shutdown()
        assert [path.name for path in target.parent.iterdir()] == ["trace.jsonl"]
    else:
        started = False
        settings = SETTINGS | {"trace": str(target), "trace_clock": clock}
        with pytest.raises(EngineDeadError), LLM(tiny_folder, multiprocess=True, **settings) as llm:
            started = True  # the meeting comes after READY: LLM() may have returned when the death is noticed
            llm.generate([[5, 6]], use_tqdm=False)
        assert phase == "meeting" or not started
        assert [path.name for path in target.parent.iterdir()] == (["trace.jsonl"] if started else [])
    surroundings.check_nothing_left()


@fault(
    "Start",
    "the core's program can't be started",
    how="`sys.executable` names no file",
    then="OSError; nothing is left",
)
def test_a_program_that_is_not_there(
    tiny_folder: str, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="no/such/python"):
        LLM(tiny_folder, multiprocess=True, **SETTINGS)
    surroundings.check_nothing_left()


# ---------------------------------------------------------------------- a stderr that can't be written


class Stubborn:
    """A stream that raises whatever it likes."""

    def write(self, text: str) -> int:
        raise RuntimeError("not today")


@pytest.fixture(params=["None", "closed", "raising"])
def broken_stderr(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = open(os.devnull, "w")  # noqa: SIM115
    closed.close()
    monkeypatch.setattr(sys, "stderr", {"None": None, "closed": closed, "raising": Stubborn()}[request.param])


TALKS = """
import sys
if "minivllm.engine.core_proc" in sys.orig_argv:
    from minivllm.engine.core import EngineCore
    add = EngineCore.preprocess_add_request
    def add_request(self, request):
        for number in range(3000):  # more than a pipe holds
            print("a long line of the core's, which nobody reads" * 2, number, file=sys.stderr, flush=True)
        return add(self, request)
    EngineCore.preprocess_add_request = add_request
"""


@fault(
    "Surroundings",
    "the caller's stderr can't be written",
    how="`sys.stderr` is None, closed, or raises; the core writes 3,000 lines to its own",
    then="the engine answers as ever, and an EngineDeadError still has the core's last lines",
)
def test_a_stderr_that_cannot_be_written(
    tiny_folder: str,
    tmp_path: Path,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
    broken_stderr: None,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(TALKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with LLM(tiny_folder, multiprocess=True, **SETTINGS) as llm:
        for _ in range(2):
            assert len(greedy(llm, PROMPT)[0]) == 8
        core_process(llm).kill()
        with pytest.raises(EngineDeadError, match=r"which nobody reads 2999"):
            run(llm, PROMPT)
    surroundings.check_nothing_left()


# ---------------------------------------------------------------------- messages

FUSSY = """
from minivllm.core import block_hash
def extend_block_hashes(block_hashes, token_ids, block_size, none_hash, cache_salt=None):
    if list(token_ids[:4]) == [66, 66, 66, 66]:
        raise ValueError("no hash for 66")
    block_hash.extend_block_hashes(block_hashes, token_ids, block_size, none_hash, cache_salt)
"""


@fault(
    "Parts and messages",
    "a request that the core can't make sense of",
    how="`parts={'extend_block_hashes': ...}`, which raises for one prompt of three",
    then='that request ends with finish_reason "error", the others are answered; the core goes on',
)
def test_a_refused_request_is_answered(
    tiny_folder: str, tmp_path: Path, remote_llm: LLM, surroundings: Surroundings, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = {"extend_block_hashes": f"{part(tmp_path, FUSSY)}:extend_block_hashes"}
    with LLM(tiny_folder, multiprocess=True, parts=parts, **SETTINGS) as llm:
        first, refused, last = run(llm, [PROMPT, [66] * 9, [8] * 9], temperature=0, max_tokens=8)
        assert [refused.outputs[0].finish_reason, refused.outputs[0].token_ids] == ["error", []]
        right = greedy(remote_llm, [PROMPT, [8] * 9])
        assert [first.outputs[0].token_ids, last.outputs[0].token_ids] == right
        assert is_idle(llm)
    surroundings.check_nothing_left()
