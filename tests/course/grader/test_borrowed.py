"""Calling the engine's own in place of doing the work."""

import re
from pathlib import Path

import pytest

from minivllm.course.grader.borrowed import borrowed
from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.cut import build_starter
from minivllm.course.grader.judge import grade
from minivllm.course.grader.right import right_solutions
from minivllm.course.grader.wrong import solution

LAB = get_lab("04")


@pytest.mark.parametrize(
    "code",
    [
        "        return super().touch(blocks)",
        "        given.BlockPool.touch(self, blocks)",
        "        from minivllm.core.block_pool import BlockPool as Own\n        Own.touch(self, blocks)",
        '        return getattr(super(), "touch")(blocks)',
    ],
)
def test_borrowed_code_counts_nothing(tmp_path: Path, code: str) -> None:
    path = tmp_path / "starter.py"
    label = '        raise NotImplementedError("Lab 4.3: count one owner more")'
    path.write_text(build_starter(LAB).replace(label, code))
    reasons = borrowed(LAB, path)
    assert set(reasons) == {"BlockPool.touch"} and "touch" in reasons["BlockPool.touch"]
    tasks = grade(LAB, path, ["4.3", "4.4"], fork=True, borrowed=reasons).tasks
    assert [(task.points, task.status) for task in tasks] == [(0, "refused")] * 2
    assert re.match(r"line \d+ ", tasks[0].refused)


@pytest.mark.parametrize(
    ("code", "symbol", "line"),
    [
        ("\nBlockPool.touch = given.BlockPool.touch\n", "BlockPool.touch", True),
        (
            "\nimport minivllm.core.block_pool as engine\nFreeKVCacheBlockQueue = engine.FreeKVCacheBlockQueue\n",
            "",
            True,
        ),
        ("\nsetattr(BlockPool, 'touch', vars(given.BlockPool)['touch'])\n", "BlockPool.touch", False),
    ],
)
def test_what_was_not_written_in_the_file_counts_nothing(tmp_path: Path, code: str, symbol: str, line: bool) -> None:
    path = tmp_path / "starter.py"
    path.write_text(solution(LAB) + code)
    result = grade(LAB, path, ["4.1", "4.2", "4.3"], fork=True, borrowed=borrowed(LAB, path))
    refused = {task.id: task for task in result.tasks if task.status == "refused"}
    assert set(refused) == ({"4.3"} if symbol else {"4.1"}), "the other tasks count"
    (task,) = refused.values()
    assert task.points == 0 and ("line" in task.refused) is line
    assert any(name.startswith(symbol or "FreeKVCacheBlockQueue") for name in result.borrowed)
    assert line or "was not written in this file, but in block_pool.py" in task.refused


def test_right_solutions_are_not_called_borrowed(tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    for text in right_solutions(LAB).values():
        path.write_text(text)
        assert borrowed(LAB, path) == {}
