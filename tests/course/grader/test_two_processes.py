"""Two processes for the labs: the same every time, as the real engine has it, and without torch."""

import subprocess
import sys

import pytest

from minivllm.course.grader.two_processes import CONFIG, Conversation, converse, messages_of
from minivllm.course.places import repo_path
from minivllm.engine.messages import EngineCoreOutputs
from minivllm.engine.routing import read_output
from minivllm.lessons.lab01.check import TALKS
from minivllm.trace.replay import Trace
from minivllm.trace.schema import encode

CASES = dict(TALKS)
GIVEN_UP = CASES["three requests, of which one is given up, and a call"]
LATE_ABORT = repo_path("traces/two-process-late-abort.jsonl.gz")
NO_TORCH = """
import sys
from minivllm.lessons.lab01 import check as lab01
from minivllm.lessons.lab02 import check as lab02
from minivllm.lessons.lab03 import check as lab03
from minivllm.lessons.lab04 import check as lab04
from minivllm.lessons.lab05 import check as lab05
from minivllm.lessons.lab06 import check as lab06
from minivllm.lessons.lab12 import check as lab12
from minivllm.course.grader.two_processes import converse
converse(lab01.TALKS[0][1], {})
lab06.tokens_of_an_ample_pool()
print("torch" in sys.modules)
"""


def lines(told: Conversation) -> list[bytes]:
    return [encode(event) for event in told.trace]


def test_the_same_case_gives_the_same_trace() -> None:
    one, again = converse(GIVEN_UP, {}), converse(GIVEN_UP, {})
    assert lines(one) == lines(again) and one.taken == again.taken
    assert one.last_word == "heard" and one.calls == [True]


def test_the_core_is_one_step_ahead_of_an_abort() -> None:
    told = converse(GIVEN_UP, {})
    (abort,) = told.trace.filter(kind="abort_requests")
    ended = told.trace.filter(kind="finish_requests", request="r1")[0]
    planned = [event.step for event in told.trace.filter(kind="schedule") if "r1" in event.num_scheduled_tokens]
    assert ended.step == planned[-1] == abort.step + 1
    assert sum("r1" in taken for taken in told.taken) == 1  # the first token; that of the planned step went nowhere


def test_messages_cross_as_in_the_real_engine() -> None:
    recorded = Trace.load(LATE_ABORT)
    crossed = [message["type"] for message in messages_of(recorded)]
    num_outputs = crossed.count("OUTPUTS")
    pieces = dict.fromkeys(range(30), b"a") | {num_outputs - 1: b"Paris"}
    request = {"id": "r0", "prompt": [0] * 5, "output": list(range(30)), "stop": ["Paris"]}
    case = {"config": CONFIG | {"max_model_len": 64}, "requests": [request], "pieces": pieces}
    told = converse(case | {"acts": [[0, "add", "r0"]]}, {})
    assert [message["type"] for message in messages_of(told.trace)] == crossed
    assert told.texts == {"r0": "a" * (num_outputs - 1)}


def test_what_a_part_raises_is_raised_where_the_caller_waits() -> None:
    def broken(*arguments: object) -> EngineCoreOutputs:
        raise KeyError("nobody")

    with pytest.raises(KeyError, match="nobody"):
        converse(CASES["one request"], {"read_output": broken})


def test_an_output_that_nobody_queues_is_not_waited_for_for_ever(monkeypatch) -> None:
    from minivllm.course.grader import two_processes

    monkeypatch.setattr(two_processes, "PATIENCE_S", 0.3)

    def forgetful(frames: object, decoder: object, outputs_queue: object, utility_results: object) -> EngineCoreOutputs:
        from queue import SimpleQueue

        return read_output(frames, decoder, SimpleQueue(), utility_results)

    with pytest.raises(two_processes.Silence, match="none come"):
        converse(CASES["one request"], {"read_output": forgetful})


def test_labs_of_messages_decisions_and_text_need_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
