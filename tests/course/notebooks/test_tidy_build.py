"""What a build keeps, compares and refuses, with cells made by hand in place of a kernel's."""

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from minivllm.course.notebook import build


def stream(text: str) -> NotebookNode:
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def shown(html: str = "", png: str = "") -> NotebookNode:
    data = {"text/html": html, "image/svg+xml": "<svg/>", "image/png": png}
    return nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data)])


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook with one cell; what the cell gives is the text in `given`, beside it."""
    path, given = tmp_path / "04_blocks.py", tmp_path / "given"
    path.write_text("# %%\n1\n")
    given.write_text("one")

    def execute(made: NotebookNode, _: Path) -> NotebookNode:
        made.cells[0].outputs = [stream(given.read_text())]
        return made

    monkeypatch.setattr(build, "execute", execute)
    return path


def run(book: Path, *arguments: str) -> int:
    return build.main([*arguments, "--folder", str(book.parent)])


def test_what_differs_is_written_anew_and_a_check_only_says_so(book: Path) -> None:
    made = book.with_suffix(".ipynb")
    assert run(book, "--check") == 1 and not made.exists()
    assert run(book) == 0 and run(book, "--check") == 0
    first = made.read_bytes()
    (book.parent / "given").write_text("two")
    assert run(book, "--check") == 1 and made.read_bytes() == first
    assert run(book) == 0 and run(book, "--check") == 0
    assert b"two" in made.read_bytes() != first


@pytest.mark.parametrize(("other", "same"), [("p = 0.5413", True), ("p = 0.551", False), ("q = 0.541", False)])
def test_floats_may_differ_by_a_thousandth(other: str, same: bool) -> None:
    assert build.near([stream("p = 0.541")], [stream(other)]) == same


def test_packing_and_a_picture_s_twin_are_no_difference() -> None:
    assert build.same_outputs(shown(png="some bytes"), shown(png="other bytes"))
    assert not build.same_outputs(shown("<b>1</b>"), shown("<b>2</b>"))


def test_a_page_is_compared_by_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "unpacked", lambda html: html.replace("packed well", "page").replace("packed", "page"))
    assert build.same_outputs(shown("packed well"), shown("packed"))


def test_outputs_are_tidied() -> None:
    assert [output.text for output in build.tidy([stream("a"), stream("b")])] == ["ab"]
    with pytest.raises(ValueError, match="0x7f0123456789"):
        build.tidy([stream("<object at 0x7f0123456789>")])


@pytest.mark.parametrize(("number", "extras"), [("04", "[pictures]"), ("07", "[engine,pictures]")])
def test_what_a_notebook_installs(number: str, extras: str) -> None:
    assert f"minivllm{extras}" in build.setup_cell(number)
