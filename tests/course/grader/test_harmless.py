"""Edits that look like mistakes and are none: every one is kept with its proof, and gets all points of its task."""

from pathlib import Path

import pytest

from minivllm.course.grader.catalog import Lab, all_labs
from minivllm.course.grader.judge import grade
from minivllm.course.grader.report import exit_status, format_result
from minivllm.course.grader.wrong import edited, read_harmless, read_wrong

LABS = [lab for lab in all_labs() if read_harmless(lab)]


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
def test_what_harms_nobody_gets_all_points(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "starter.py"
    entries = read_harmless(lab)
    assert not {entry.id for entry in entries} & {wrong.id for wrong in read_wrong(lab)}
    for entry in entries:
        assert entry.proof.endswith("."), entry.id
        path.write_text(edited(lab, entry))
        result = grade(lab, path, [entry.task], fork=True)
        assert exit_status(result) == 0, f"{entry.id}: {format_result(result, [])}"
