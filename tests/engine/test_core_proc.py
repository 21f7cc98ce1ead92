"""The parts of the core's process, each by itself and in this process: queues, the last word, how it is left."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import zmq
from engine.helpers import PATIENCE_SECONDS, SETTINGS, wait_until

from minivllm import SamplingParams
from minivllm.config import EngineConfig
from minivllm.engine import core_proc
from minivllm.engine.assemble import get_executor_class
from minivllm.engine.core_proc import EngineCoreProc, make_core
from minivllm.engine.handshake import SOCKET_DIR_PREFIX
from minivllm.engine.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
)
from minivllm.engine.serial import MsgpackEncoder
from minivllm.models.model_config import load_model_config

ADD, ABORT, UTILITY = EngineCoreRequestType.ADD, EngineCoreRequestType.ABORT, EngineCoreRequestType.UTILITY


@pytest.fixture
def core(tiny_folder: str) -> EngineCoreProc:
    config = EngineConfig(model=tiny_folder, **SETTINGS)
    return make_core(config, get_executor_class()(config, load_model_config(tiny_folder)), config.parts)


def request(request_id: str) -> EngineCoreRequest:
    return EngineCoreRequest(request_id, [5, 6, 7], SamplingParams(max_tokens=2), arrival_time=1.0, external_req_id="0")


def taken(queue: SimpleQueue) -> list[Any]:
    return [queue.get() for _ in range(queue.qsize())]


def test_all_that_has_arrived_is_taken_in_before_a_step(core: EngineCoreProc) -> None:
    for name in "abc":
        core.input_queue.put((ADD, core.preprocess_add_request(request(name))))
    core.input_queue.put((ABORT, ["b"]))
    core._process_input_queue()
    assert [one.request_id for one in core.scheduler.waiting] == ["a", "c"]
    assert core.input_queue.empty()


def test_aborts_are_forgotten_when_nothing_runs(core: EngineCoreProc) -> None:
    """They come through two queues; the one that is read in mid-step would grow for ever."""
    for number in range(3):
        core.aborts_queue.put([str(number)])
        core.input_queue.put((ABORT, [str(number)]))
    loop = threading.Thread(target=core.run_busy_loop, daemon=True)
    loop.start()
    try:
        wait_until(core.aborts_queue.empty, "the aborts are forgotten")
    finally:
        core.request_shutdown()
        loop.join()


def test_a_request_without_sense_ends_with_an_error(core: EngineCoreProc, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise ValueError("no such prompt")

    monkeypatch.setattr(core, "preprocess_add_request", refuse)
    core.receive([ADD.value, *MsgpackEncoder().encode(request("a"))])
    (message,) = taken(core.output_queue)
    (output,) = message.outputs
    assert (output.request_id, output.finish_reason, output.new_token_ids) == ("a", FinishReason.ERROR, [])
    assert core.input_queue.empty()


def test_a_utility_call_is_answered_whatever_becomes_of_it(core: EngineCoreProc) -> None:
    for call_id, method in enumerate(["reset_prefix_cache", "no_such_method"]):
        core._handle_client_request(UTILITY, (call_id, method, []))
    right, wrong = (message.utility_output for message in taken(core.output_queue))
    assert (right.call_id, right.result, right.failure_message) == (0, True, None)
    assert (wrong.call_id, wrong.result) == (1, None) and "no_such_method failed: " in wrong.failure_message


def test_a_step_with_nothing_to_say_sends_nothing(core: EngineCoreProc, monkeypatch: pytest.MonkeyPatch) -> None:
    message = EngineCoreOutputs()
    said: list[Any] = [None, message]
    monkeypatch.setattr(core, "step", lambda: (said.pop(0), True))
    core._process_engine_step()
    assert core.output_queue.empty()
    core._process_engine_step()
    assert taken(core.output_queue) == [message]


def test_a_core_that_waits_hears_that_it_shall_end(core: EngineCoreProc) -> None:
    loop = threading.Thread(target=core.run_busy_loop, daemon=True)
    loop.start()
    core.request_shutdown()
    loop.join(PATIENCE_SECONDS)
    ended = not loop.is_alive()
    core.input_queue.put((EngineCoreRequestType.WAKEUP, None))
    assert ended


def test_the_last_word_goes_out_as_it_is(core: EngineCoreProc, tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        address = f"ipc://{tmp_path}/out"
        socket.bind(address)
        core.output_queue.put(EngineCoreOutputs([EngineCoreOutput("a", [1])]))
        core.output_queue.put(ENGINE_CORE_DEAD)
        core.process_output_sockets(context, address)
        messages = []
        while socket.poll(1000):
            messages.append(socket.recv_multipart())
    assert len(messages) == 2 and messages[-1] == [ENGINE_CORE_DEAD]


# ---------------------------------------------------------------------- how the process is left


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The exit statuses with which the process would have been left."""
    found: list[int] = []

    def leave(status: int) -> None:
        found.append(status)
        raise SystemExit(status)

    monkeypatch.setattr(core_proc.os, "_exit", leave)
    yield found


@pytest.mark.parametrize(("name", "stays"), [(f"{SOCKET_DIR_PREFIX}x", False), ("somebody-elses", True)])
def test_the_folder_of_the_sockets_goes_and_no_other(
    name: str, stays: bool, tmp_path: Path, statuses: list[int]
) -> None:
    (tmp_path / name).mkdir()
    with contextlib.suppress(SystemExit):
        core_proc._leave(0, tmp_path / name)
    assert (tmp_path / name).exists() == stays and statuses == [0]


def test_a_thread_that_fails_ends_the_process_with_its_error(
    tmp_path: Path, statuses: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        core_proc._end_with(lambda: 1 // 0, socket_dir=tmp_path)
    assert statuses == [1] and "ZeroDivisionError" in capsys.readouterr().err
