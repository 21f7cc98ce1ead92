"""Every notebook runs from its source, offline, and gives what is committed."""

import shutil
import zlib
from base64 import b64encode
from pathlib import Path

import nbformat
import pytest
from course.notebooks.sources import SOURCES, cells

from minivllm.course.notebook import build
from minivllm.course.notebook.data import DATA, make_data, read_data
from minivllm.course.places import repo_path
from minivllm.show.page.notebook import PACKED, show
from minivllm.trace import Trace


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_outputs_are_those_that_are_committed(path: Path, default_model_path: Path) -> None:
    _, found = build.build(path)
    assert found == [], f"python -m minivllm.course.notebook.build {path.stem[:2]} builds it anew"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_pair_is_in_step(path: Path) -> None:
    committed = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(committed)
    assert [cell.source for cell in committed.cells] == [cell.text for cell in cells(path)]
    assert [cell.id for cell in committed.cells] == [f"cell-{place:02}" for place in range(len(committed.cells))]
    assert committed.metadata == nbformat.from_dict(build.METADATA)
    assert build.text_of(committed) == path.with_suffix(".ipynb").read_text(encoding="utf-8")


def test_every_ipynb_has_a_source() -> None:
    assert {path.stem for path in build.FOLDER.glob("*.ipynb")} <= {path.stem for path in SOURCES}


def test_pieces_and_traps_are_fresh(default_model_path: Path) -> None:
    assert make_data() == read_data(), f"python -m minivllm.course.notebook.build --data writes {DATA.name} anew"


# the build itself

BOOK = '# %% [markdown]\n# # A title\n\n# %% tags=["setup"]\n# SETUP\n\n# %%\n{cell}\n'


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "04_blocks.py"
    path.write_text(BOOK.format(cell='print("one")\nprint("two")\nlen(nb.trace("one"))'))
    return path


def run(path: Path, *arguments: str) -> int:
    return build.main([*arguments, "--folder", str(path.parent)])


def test_same_source_same_bytes(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = book.with_suffix(".ipynb")
    assert run(book) == 0
    assert build.setup_cell("04") in book.read_text()
    first = made.read_bytes()
    assert run(book) == 0
    assert made.read_bytes() == first
    assert run(book, "--check") == 0

    stale = made.read_text().replace('"one\\n"', '"uno\\n"')
    assert stale != made.read_text()
    made.write_text(stale)
    assert run(book, "--check") == 1
    assert made.read_text() == stale
    assert "cell 2: another output" in capsys.readouterr().out
    assert run(book) == 0  # what differs is written anew
    assert made.read_bytes() == first


def test_a_picture_s_twin_and_a_page_s_packing_are_no_difference() -> None:
    """Their bytes depend on the build of zlib; what is in them does not."""
    trace = Trace.load(repo_path("traces") / "one.jsonl.gz")
    panel = show(trace, "blocks", name="one", pieces={})
    html, other = panel._repr_html_(), show(trace, "text", name="one", pieces={})._repr_html_()
    packed = PACKED.search(html)[0]
    loosely = b64encode(zlib.compress(panel.text.encode(), 1)).decode()
    assert packed != loosely

    def cell(html: str, png: str = "") -> nbformat.NotebookNode:
        data = {"text/html": html, "image/svg+xml": "<svg/>", "image/png": png}
        return nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data)])

    assert build.same_outputs(cell(html), cell(html.replace(packed, loosely), png="other bytes"))
    assert not build.same_outputs(cell(html), cell(other))


def test_a_failing_cell_is_named(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book.write_text(BOOK.format(cell='nb.trace("no-such-trace")'))
    assert run(book) == 1
    assert "No trace 'no-such-trace' was recorded" in capsys.readouterr().err
    assert not book.with_suffix(".ipynb").exists()


def stream(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def test_an_address_in_an_output_is_refused() -> None:
    with pytest.raises(ValueError, match="0x7f0123456789"):
        build.tidy([stream("<object at 0x7f0123456789>")])


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("p = 0.5410", "p = 0.5413", True), ("p = 0.541", "p = 0.551", False), ("p = 0.541", "q = 0.541", False)],
)
def test_near(a: str, b: str, same: bool) -> None:
    assert build.near([stream(a)], [stream(b)]) == same


def test_an_installed_package_reads_its_own_traces(tmp_path: Path) -> None:
    recorded = tmp_path / "minivllm/recorded"
    recorded.mkdir(parents=True)
    shutil.copy(repo_path("traces") / "one.jsonl.gz", recorded)
    assert repo_path("traces", tmp_path) == recorded
