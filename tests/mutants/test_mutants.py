"""The mutation check, as far as CI has time for it: ten edits, and that all of them can be planted."""

import ast

import pytest
from mutants.edits import EDITS, Edit
from mutants.plant import edited, path_of
from mutants.run import check_all, sample


def test_there_are_many() -> None:
    assert sum(not edit.proof for edit in EDITS) >= 45
    assert len({edit.what for edit in EDITS}) == len(EDITS)
    assert {edit.module.partition(".")[0] for edit in EDITS} == {"core", "worker", "sample", "engine", "llm"}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.what)
def test_an_edit_can_be_planted(edit: Edit) -> None:
    source = path_of(f"minivllm.{edit.module}").read_text()
    changed = edited(source, edit.symbol, edit.old, edit.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


def test_ten_of_them_are_caught() -> None:
    verdicts = check_all(sample(10), stop_after=1)
    assert [str(verdict) for verdict in verdicts if not verdict.good] == []
