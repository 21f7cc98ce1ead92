"""Build the notebooks: `python -m minivllm.course.notebook.build [NAMES] [--check] [--html FOLDER] [--data]`.

Owns: the pair of files that a notebook is. NN_name.py (jupytext's percent format) is what people edit; NN_name.ipynb
is made of it and holds the outputs. The same source and the same traces give the same bytes.
Interface: read_source, execute, build, differences, main.
Must not know: what a notebook tells.

A cell with the tag `floats` shows values that a model computed: there, numbers may differ by a thousandth from machine
to machine, and the outputs that lie in the repository are kept as long as they do not differ by more.
"""

import argparse
import copy
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from minivllm.course.notebook.data import write_data
from minivllm.course.places import ROOT
from minivllm.show.page.notebook import unpacked

FOLDER = ROOT / "notebooks"
TIMEOUT = 300  # seconds, a cell
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ADDRESS = re.compile(r"0x[0-9a-f]{8,}")
FOLDED = "hide-input"  # as myst-nb calls it
RELATIVE, ABSOLUTE = 1e-3, 1e-3
NEEDS_ENGINE = ("07", "08", "13")  # they compute something themselves; the others read traces alone
SETUP = """\
import importlib.util, os, subprocess, sys

LIVE = False  # True: run the engine now (needs torch); False: read the recorded traces
if importlib.util.find_spec("minivllm") is None:  # not in the project's environment: install it, traces included
    source = os.environ.get("MINIVLLM_SOURCE") or sys.exit("Set MINIVLLM_SOURCE to the git address of minivllm.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", f"minivllm[{extras}] @ {source}"]
    subprocess.run(pip, check=True)
from minivllm.course.notebook import Notebook, array, card, cards, checks, code, diff_view, note, picture
from minivllm.course.notebook import pieces, predict, recall, table, tokens, traps, who

nb = Notebook("{number}", live=LIVE)"""
PROSE = re.compile(r"^\s*(note|picture|predict|recall|checks|traps|code|nb\.map)\(", re.MULTILINE)
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def sources(names: Sequence[str] = (), folder: Path = FOLDER) -> list[Path]:
    """The .py files of these notebooks, or of all. A name is a number, a stem or a path."""
    found = sorted(folder.glob("[0-9][0-9]_*.py"))
    stems = [Path(name).stem for name in names]
    return [path for path in found if not stems or any(path.stem == s or path.stem[:2] == s for s in stems)]


def setup_cell(number: str) -> str:
    """The first code cell: the same in all notebooks, but for the number and what is installed."""
    extras = "engine,pictures" if number in NEEDS_ENGINE else "pictures"
    return SETUP.replace("{number}", number).replace("{extras}", extras)


def fill_setup(path: Path) -> None:
    """Put the first code cell into a .py where another text stands in the cell with the tag `setup`."""
    text = path.read_text(encoding="utf-8")
    cell = re.compile(r'(?<=^# %% tags=\["setup"\]\n).*?(?=\n+# %%)', re.MULTILINE | re.DOTALL)
    filled = cell.sub(lambda _: setup_cell(path.stem[:2]), text, count=1)
    if filled != text:
        path.write_text(filled, encoding="utf-8")


def read_source(path: Path) -> NotebookNode:
    """The notebook without outputs. A cell's id comes from its place."""
    book = jupytext.read(path, fmt="py:percent")
    book.metadata = nbformat.from_dict(copy.deepcopy(METADATA))
    book.nbformat, book.nbformat_minor = 4, 5
    for place, cell in enumerate(book.cells):
        cell["id"] = f"cell-{place:02}"
        cell.metadata = nbformat.from_dict(_metadata(cell))
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return book


def _metadata(cell: NotebookNode) -> dict[str, Any]:
    """Tags; and the code of a cell that shows prose is folded, in Jupyter and on the site of the docs: who reads sees a
    text, and no answer before the question."""
    tags = [tag for tag in cell.metadata.get("tags", ()) if tag != FOLDED]
    if cell.cell_type == "code" and PROSE.search(cell.source):
        return {"jupyter": {"source_hidden": True}, "tags": [*tags, FOLDED]}
    return {"tags": tags} if tags else {}


def execute(book: NotebookNode, folder: Path = FOLDER) -> NotebookNode:
    """Run all cells in a new kernel, in `folder`, with no way out to a network, and tidy the outputs.

    Raises nbclient.exceptions.CellExecutionError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        offline = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
        env = os.environ | ENVIRONMENT | offline | {"IPYTHONDIR": scratch, "no_proxy": "127.0.0.1,localhost"}
        if shutil.which("nvidia-smi") is None:
            env["TRITON_INTERPRET"] = "1"
        client = NotebookClient(
            book,
            timeout=TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
            extra_arguments=["--HistoryManager.enabled=False", "--log-level=40"],
        )
        client.execute(env=env)
    book.metadata = nbformat.from_dict(copy.deepcopy(METADATA))  # without the kernel's own version of Python
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = tidy(cell.outputs)
    return book


def tidy(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Neighbouring streams joined, nothing that differs from run to run. Raises ValueError for a memory address."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and kept and kept[-1].get("name") == output.name:
            kept[-1].text += output.text
            continue
        if "metadata" in output:  # the width of a picture stays
            output.metadata = nbformat.from_dict({k: v for k, v in output.metadata.items() if k == "image/png"})
        if output.output_type == "execute_result":
            output.execution_count = None
        kept.append(output)
    found = ADDRESS.search(nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=kept)])))
    if found:
        raise ValueError(f"An output holds the address {found[0]}, which is another one in the next run.")
    return kept


def text_of(book: NotebookNode) -> str:
    """The notebook as its file holds it."""
    return nbformat.writes(book, indent=1).rstrip("\n") + "\n"


def build(source: Path) -> tuple[NotebookNode, list[str]]:
    """Execute a notebook, and say in which cells it differs from its .ipynb; outputs that are near enough are kept."""
    book = execute(read_source(source), source.parent)
    committed = source.with_suffix(".ipynb")
    if not committed.exists():
        return book, ["there is no .ipynb yet"]
    old = nbformat.read(committed, as_version=4)
    found = differences(old, book)
    if len(old.cells) == len(book.cells):
        for before, after in zip(old.cells, book.cells, strict=True):
            if after.cell_type == "code" and same_outputs(before, after):
                after.outputs = before.outputs
    return book, found or (["the file's layout"] if text_of(book) != committed.read_text(encoding="utf-8") else [])


def differences(old: NotebookNode, new: NotebookNode) -> list[str]:
    """The cells whose source or outputs are not the same, in words."""
    if len(old.cells) != len(new.cells):
        return [f"{len(old.cells)} cells in the .ipynb, {len(new.cells)} in the .py"]
    found = []
    for place, (before, after) in enumerate(zip(old.cells, new.cells, strict=True)):
        if (before.cell_type, before.source, before.metadata) != (after.cell_type, after.source, after.metadata):
            found.append(f"cell {place}: the source is not that of the .py")
        elif not same_outputs(before, after):
            found.append(f"cell {place}: another output, of {after.source.strip().splitlines()[-1][:60]!r}")
    return found


def same_outputs(before: NotebookNode, after: NotebookNode) -> bool:
    """Whether two cells show the same; a PNG is that of the SVG beside it, and its bytes depend on zlib's version."""
    shown = [without_twins(cell.get("outputs", ())) for cell in (before, after)]
    return near(*shown) if "floats" in after.metadata.get("tags", ()) else shown[0] == shown[1]


def without_twins(outputs: Sequence[NotebookNode]) -> list[Any]:
    """Outputs without the PNG of a picture that is there as SVG too, and with the pages in them unpacked."""
    kept = copy.deepcopy(list(outputs))
    for output in kept:
        data = output.get("data", {})
        if "image/svg+xml" in data:
            data.pop("image/png", None)
        if "text/html" in data:
            data["text/html"] = unpacked(data["text/html"])
    return kept


def near(a: Any, b: Any) -> bool:
    """Whether two outputs are equal but for small differences of the numbers in them."""
    a, b = (json.dumps(one, sort_keys=True) for one in (a, b))
    if NUMBER.split(a) != NUMBER.split(b):
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(math.isclose(float(x), float(y), rel_tol=RELATIVE, abs_tol=ABSOLUTE) for x, y in pairs)


def to_html(book: NotebookNode, path: Path) -> None:
    """One page for a look in a browser. Needs nbconvert."""
    from nbconvert import HTMLExporter

    path.write_text(HTMLExporter().from_notebook_node(book)[0], encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if with --check anything differs, or if a cell failed."""
    parser = argparse.ArgumentParser(
        prog="python -m minivllm.course.notebook.build", description=__doc__.split("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="numbers or names of notebooks; all, if none is given")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if an .ipynb is not what comes out")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="write a page of each as well, to look at")
    parser.add_argument("--data", action="store_true", help="first write data.json anew: after new traces or traps")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are (default: notebooks/)")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks at the same time (default: 2)")
    given = parser.parse_args(arguments)
    if given.data:
        write_data()
    paths = sources(given.names, given.folder)
    if not paths:
        print("No such notebook." if given.names else f"{given.folder}/ holds no notebook yet.")
        return int(bool(given.names))
    with ThreadPoolExecutor(given.jobs) as pool:
        return max(pool.map(lambda path: _one(path, given.check, given.html), paths))


def _one(source: Path, check: bool, html: Path | None) -> int:
    try:
        if not check:
            fill_setup(source)
        book, found = build(source)
    except Exception as error:  # of any cell: the others are still built
        print(f"{source.stem}: failed\n{error}", file=sys.stderr)
        return 1
    target = source.with_suffix(".ipynb")
    if not check:
        target.write_text(text_of(book), encoding="utf-8")
    if html:
        html.mkdir(parents=True, exist_ok=True)
        to_html(book, html / f"{source.stem}.html")
    said = "".join(f"\n  {one}" for one in found) if check else f", {len(found)} differences" * bool(found)
    print(f"{source.stem}: {len(text_of(book).encode()) / 1000:.0f} kB{said}")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
