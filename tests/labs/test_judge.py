"""Hostile and broken solutions: each ends in time, with a message of its own."""

from pathlib import Path

import pytest

from minivllm.labs.catalog import get_lab
from minivllm.labs.judge import LabResult, Limits, Subject, grade
from minivllm.labs.report import exit_status, format_result
from minivllm.labs.wrong import solution

LAB = get_lab("04")
TOUCH = (
    "            if block.ref_cnt == 0 and not block.is_null:\n                self.free_block_queue.remove(block)\n"
)
LIMITS = Limits(call_s=0.5)


def graded(tmp_path: Path, text: str, fork: bool = True) -> LabResult:
    path = tmp_path / "starter.py"
    path.write_text(text)
    return grade(LAB, path, ["4.3"], LIMITS, fork=fork)


def in_touch(code: str, before: str = "import os, sys\n") -> str:
    """The solution with `code` at the place where touch does its work."""
    text = solution(LAB)
    assert text.count(TOUCH) == 1
    return before + text.replace(TOUCH, f"            {code}\n")


@pytest.mark.parametrize("fork", [True, False])
def test_an_endless_loop_is_stopped_and_the_line_is_shown(tmp_path: Path, fork: bool) -> None:
    result = graded(tmp_path, in_touch("while True: pass"), fork)
    (task,) = result.tasks
    assert task.status == "timeout" and task.points == 0
    _, failure = result.worst()
    assert "while True" in failure.line and failure.kind == "hang"
    assert "stopped" in format_result(result, [])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(0)", "ended before it answered"),
        ("sys.exit(0)", "ended before it answered"),
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError"),
        ("bytearray(8 << 30)", "MemoryError"),
        ("raise KeyError(block)", "KeyError"),
    ],
)
def test_what_crashes_is_told(tmp_path: Path, code: str, said: str) -> None:
    result = graded(tmp_path, in_touch(code))
    assert result.points == 0 and exit_status(result) == 1
    assert any(said in failure.got for failure in result.tasks[0].failures)


def test_a_loop_that_catches_everything_is_killed(tmp_path: Path) -> None:
    code = "exec('while True:\\n try:\\n  while True: pass\\n except BaseException: pass')"
    result = graded(tmp_path, in_touch(code))
    assert result.tasks[0].status == "timeout"


def test_a_flood_of_prints_is_cut_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text(solution(LAB) + "\nfor _ in range(3000): print('x' * 1000)\nprint('the end')\n")
    with Subject(LAB, path, LIMITS, fork=True) as subject:
        assert subject.load() is None
        assert (subject.folder / "output.txt").stat().st_size <= 1 << 20
        assert len(subject.output()) <= 40


def test_a_full_disk_is_not_ours(tmp_path: Path) -> None:
    result = graded(tmp_path, in_touch("open('big', 'wb').write(bytes(2 << 20))"))
    assert any("OSError" in failure.got for failure in result.tasks[0].failures)


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    code = f"os.fork() or (__import__('time').sleep(3), open({str(marker)!r}, 'w'))"
    path = tmp_path / "starter.py"
    path.write_text(f"import os\n{code}\n" + solution(LAB))
    with Subject(LAB, path, LIMITS, fork=True) as subject:
        assert subject.load() is None
    import time

    time.sleep(3.2)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module\n", "no_such_module"),
        ("x = 1\n", "is missing"),
        ("import os\nos._exit(0)\n", "ended"),
    ],
)
def test_what_cant_be_loaded_is_exit_2(tmp_path: Path, text: str, said: str) -> None:
    result = graded(tmp_path, text)
    assert exit_status(result) == 2 and result.tasks == []
    assert said in format_result(result, [])


def test_a_changed_signature_is_refused(tmp_path: Path) -> None:
    result = graded(tmp_path, solution(LAB).replace("def touch(self, blocks:", "def touch(self, blocks, more, others:"))
    assert exit_status(result) == 2 and "other arguments" in format_result(result, [])


def test_printing_that_all_is_well_gains_nothing(tmp_path: Path) -> None:
    result = graded(tmp_path, in_touch("print('passed 60/60')"))
    assert result.points == 0
    assert "passed 60/60" in format_result(result, [])


def test_a_status_that_is_forgotten_is_seen_when_the_request_is_aborted(tmp_path: Path) -> None:
    lab = get_lab("03")
    text, line = solution(lab), "        request.status = RequestStatus.RUNNING\n"
    assert text.count(line) == 1
    path = tmp_path / "starter.py"
    path.write_text(text.replace(line, ""))
    (task,) = grade(lab, path, ["3.3"], fork=True).tasks
    assert 0 < task.points < task.max
    assert any("WAITING" in failure.got for failure in task.failures)
