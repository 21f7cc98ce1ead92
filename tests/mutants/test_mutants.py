"""The mutation check, as far as CI has time for it: ten edits, and that all of them can be planted."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mutants.edits import EDITS, Edit
from mutants.plant import edited, path_of

SCRIPT = Path(__file__).with_name("run.py")


def test_there_are_many() -> None:
    assert sum(not edit.proof for edit in EDITS) >= 45
    assert len({edit.what for edit in EDITS}) == len(EDITS)
    rooms = {edit.path.removeprefix("minivllm/").removesuffix(".py").partition("/")[0] for edit in EDITS}
    assert rooms >= {"core", "worker", "sample", "engine", "llm"}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.what)
def test_an_edit_can_be_planted(edit: Edit) -> None:
    source = path_of(edit).read_text()
    changed = edited(source, edit)
    assert changed != source
    if edit.path.endswith(".py"):
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


@pytest.mark.slow
def test_ten_of_them_are_caught(default_model_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--sample", "10", "--tests", "1", "--trust"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10 edits: 10 caught" in result.stdout
