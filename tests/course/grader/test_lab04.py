"""What is special about lab 04: a plain list is right, and loses the points for constant work."""

from pathlib import Path

import pytest

from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.judge import grade
from minivllm.course.grader.report import format_result
from minivllm.course.grader.wrong import solution

PLAIN_LIST = """
class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        self.blocks = list(blocks)

    @property
    def num_free_blocks(self):
        return len(self.blocks)

    def popleft(self):
        if not self.blocks:
            raise ValueError
        return self.blocks.pop(0)

    def popleft_n(self, n):
        if n > len(self.blocks):
            raise ValueError
        taken, self.blocks = self.blocks[:n], self.blocks[n:]
        return taken

    def remove(self, block):
        if block not in self.blocks:
            raise RuntimeError
        self.blocks.remove(block)

    def append(self, block):
        self.blocks.append(block)

    def append_n(self, blocks):
        self.blocks.extend(blocks)

    def get_all_free_blocks(self):
        return list(self.blocks)
"""


@pytest.fixture
def with_a_list(tmp_path: Path) -> Path:
    path = tmp_path / "starter.py"
    path.write_text(solution(get_lab("04")) + PLAIN_LIST)
    return path


def test_a_plain_list_is_right_but_searches(with_a_list: Path) -> None:
    result = grade(get_lab("04"), with_a_list, fork=True)
    assert {task.id: task.points for task in result.tasks} == {"4.1": 15, "4.2": 15, "4.3": 10, "4.4": 15}
    assert "A block that knows its neighbours needs no search" in format_result(result, [])
