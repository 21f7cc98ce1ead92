"""What is special about lab 11: rows without a number, and mistakes that are known whichever tied token they cut."""

from pathlib import Path

from minivllm.course.grader.catalog import get_lab
from minivllm.course.grader.judge import Failure, grade
from minivllm.course.grader.wrong import looks_like, solution

LAB = get_lab("11")
TIES = "        ascending = ascending.masked_fill(ascending < kth_largest, MASKED)\n"
CUT_THE_LATER = """\
        descending = logits.sort(dim=-1, descending=True, stable=True)[1]
        ranks = descending.argsort(dim=-1).gather(1, order)
        ascending = ascending.masked_fill(ranks >= k[:, None], MASKED)
"""


def shown(tmp_path: Path, task: str, old: str, new: str) -> Failure:
    text = solution(LAB)
    assert text.count(old) == 1
    path = tmp_path / "starter.py"
    path.write_text(text.replace(old, new))
    result = grade(LAB, path, tasks=[task], fork=True)
    looks_like(LAB, result.tasks)
    return min(result.tasks[0].failures, key=lambda failure: failure.size)


def test_a_row_that_is_no_number_is_told(tmp_path: Path) -> None:
    failure = shown(tmp_path, "11.1", "return logits / divisor[:, None]", "return logits * float('nan')")
    assert "nan" in failure.got and failure.input and failure.expected


def test_whichever_tied_token_is_cut_it_looks_the_same(tmp_path: Path) -> None:
    failure = shown(tmp_path, "11.2", TIES, CUT_THE_LATER)
    assert (failure.expected, failure.got) == ("kept tokens [0 1 2]", "kept tokens [0 1]")
    assert "of tokens with the same logit" in failure.looks_like
