"""docs/reliability.md says what the tests say."""

from pathlib import Path

import pytest
from faults import PAGE, page, rows


def test_the_page_is_current() -> None:
    """If not: python tests/faults.py"""
    assert PAGE.read_text(encoding="utf-8") == page(rows())


def test_a_place_that_there_is_not_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("@fault('Moon', 'a', how='b', then='c')\ndef test_y(): pass\n")
    with pytest.raises(ValueError, match=r"test_x\.py::test_y: there is no place 'Moon'"):
        rows(tmp_path)
