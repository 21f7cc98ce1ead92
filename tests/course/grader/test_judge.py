"""Hostile and broken solutions: each ends in time, with a message of its own."""

import re
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from minivllm.course.grader import child, evidence, judge
from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.judge import Ask, Check, Failure, LabResult, Limits, Outcome, Subject, grade
from minivllm.course.grader.report import exit_status, format_result
from minivllm.course.grader.wrong import solution

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


def test_who_ignores_sigterm_is_ended(tmp_path: Path) -> None:
    before = "import os, signal, sys\nfor one in (15, 2, 1): signal.signal(one, signal.SIG_IGN)\n"
    path = tmp_path / "starter.py"
    path.write_text(in_touch("__import__('time').sleep(60)", before))
    with Subject(LAB, path, Limits(call_s=0.1), fork=True) as subject:
        (answer,) = subject.call_many("4.3", "observe:pool_program", [{"program": [["touch", 1]]}])
        assert subject.pid is None, "its process is gone"
    assert answer.error["kind"] == "hang" and "by the clock" in answer.error["message"]


def test_what_forks_and_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"(os.fork(), open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')) and exec('while True: pass')"
    result = graded(tmp_path, in_touch(code))
    assert result.tasks[0].status == "timeout"
    found = {int(pid) for pid in pids.read_text().split()}
    assert len(found) > 1
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in found if psutil.pid_exists(pid)], timeout=10)
    assert not alive


def test_a_file_that_hangs_while_it_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    path.write_text("while True: pass\n")
    result = grade(LAB, path, ["4.3"], Limits(load_s=0.3), fork=True)
    assert exit_status(result) == 2 and "0.3 s by the clock" in format_result(result, [])


def test_input_is_empty_and_so_is_all_around_it(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    added = "{'LC_CTYPE', 'OMP_WAIT_POLICY'}"  # by Python, and by what is imported
    around = f"repr(sys.stdin.read()), sorted(set(os.environ) - {added}), sorted(os.listdir())"
    places = "len({os.path.realpath(place) for place in (os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'])})"
    path.write_text(f"import os, sys\nprint({around}, {places})\n{solution(LAB)}")
    with Subject(LAB, path, LIMITS) as subject:
        assert subject.load() is None
        (line,) = subject.output()
    assert line == "'' ['HOME', 'LANG', 'OMP_NUM_THREADS', 'PATH', 'TMPDIR'] ['output.txt', 'starter.py'] 1"


def test_a_fresh_process_goes_on_with_the_next_task(tmp_path: Path) -> None:
    text, missing = re.subn(r'raise NotImplementedError\("Lab 4\.2.*"\)', "while True: pass", solution(LAB, ("4.3",)))
    assert missing
    path = tmp_path / "starter.py"
    path.write_text(text)
    second, third = grade(LAB, path, ["4.2", "4.3"], LIMITS, fork=True).tasks
    assert (second.status, third.status, third.points) == ("timeout", "pass", 10)


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
        ("import os\nos._exit(0)\n", "ended with status 0 before it answered"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
        ("x = '9' * (8 << 30)\n", "MemoryError"),
    ],
)
def test_what_cant_be_loaded_is_exit_2(tmp_path: Path, text: str, said: str) -> None:
    result = graded(tmp_path, text)
    assert exit_status(result) == 2 and result.tasks == []
    assert said in format_result(result, [])


def test_a_package_that_we_lack_is_not_the_students_fault(tmp_path: Path, monkeypatch) -> None:
    def lacks(lab) -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr(child, "engine_symbols", lacks)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        graded(tmp_path, solution(LAB))


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
    (strict,) = grade(replace(lab, strict=True), path, ["3.3"], fork=True).tasks
    assert strict.points == 0 and all(check.points == 0 for check in strict.checks)


# ---------------------------------------------------------------------- what a check is


def with_checks(monkeypatch, *checks: Check) -> None:
    monkeypatch.setattr(judge, "checks_of", lambda lab: {"4.3": checks})


def right(ask: Ask) -> Outcome:
    outcome = Outcome()
    outcome.add(None, None)
    return outcome


def wrong(ask: Ask) -> Outcome:
    outcome = Outcome()
    outcome.add(None, Failure("decision", "a case", 1, "input", "this", "that"))
    return outcome


def test_later_checks_still_run_unless_they_need_the_one_that_failed(tmp_path: Path, monkeypatch) -> None:
    with_checks(
        monkeypatch,
        Check("first", "", 3, wrong),
        Check("second", "", 3, right),
        Check("third", "", 4, right, needs=("first",)),
        Check("fourth", "", 5, right, needs=("second",)),
    )
    result = graded(tmp_path, build_starter(LAB))
    assert [check.points for check in result.tasks[0].checks] == [0, 3, 0, 5]
    assert "third: after first is right" in format_result(result, [])


def test_the_time_of_a_task_is_limited_too(tmp_path: Path, monkeypatch) -> None:
    def ask_often(ask: Ask) -> Outcome:
        outcome = Outcome()
        for _ in range(9):
            answer = ask.student("observe:pool_program", {"program": [["touch", 1]]})
            failure = evidence.error_failure(answer.error, "often", "", 1) if answer.error else None
            outcome.add(None, failure)
        return outcome

    with_checks(monkeypatch, Check("often", "", 10, ask_often))
    path = tmp_path / "starter.py"
    path.write_text(in_touch("sum(range(3_000_000))"))
    limits = Limits(call_s=2.0, task_s=0.05)
    (task,) = grade(LAB, path, ["4.3"], limits, fork=True).tasks
    assert task.status == "timeout" and 0 < task.checks[0].outcome.passed < 9
    assert "0.05 s, all that a task has" in task.failures[-1].got
    assert grade(LAB, path, ["4.3"], Limits(call_s=2.0), fork=True).tasks[0].status == "pass"


def test_valid_schedules_that_vllm_does_not_make_are_told_so(tmp_path: Path, monkeypatch) -> None:
    with_checks(monkeypatch, Check("families", "", 5, wrong), Check("invariants", "", 5, right))
    result = graded(tmp_path, build_starter(LAB))
    assert result.points == 5
    assert "valid, but vLLM decides otherwise" in format_result(result, [])
