"""What may go wrong, as the tests bring it about: the rows of docs/reliability.md.

A test that injects a fault says so in one line of the page; `pytest -m fault` runs all of these tests.

    from faults import fault

    @fault("Model folders", "a cut safetensors file", how="100 bytes are missing", then="ModelError names the file")
    def test_a_cut_file(...):

The first word is a heading of the page, one of PLACES. All four are plain texts, since the page is read off the source:
`python tests/faults.py` writes it anew (`make docs` does), and tests/docs/test_reliability.py fails while it is stale.
What stands under `then` must be what the test asserts. A test with parameters is one row.
"""

import ast
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reliability.md"
PLACES = (
    "Start",
    "The core's process",
    "The caller's process",
    "Ctrl-C",
    "Threads and forks",
    "Callbacks",
    "Requests",
    "Parts and messages",
    "Memory and kernels",
    "Model folders",
    "Traces and other files",
    "Surroundings",
    "Soak",
)
HEAD = """# What may go wrong

Each row is a fault that a test brings about, how it does so, and what happens then: the test fails if anything else
does. "Nothing is left" is looked up: no process, no thread, no socket, no temporary file. The tests are run by
`.venv/bin/python -m pytest -m fault`; `make soak` does all of it at random for half an hour.

<!-- made by tests/faults.py; do not edit -->
"""


def fault(place: str, what: str, *, how: str, then: str) -> "object":
    """Mark a test that injects a fault. place: a heading, of PLACES. what, how, then: the columns of its row."""
    import pytest

    return pytest.mark.fault(place=place, what=what, how=how, then=then)


class Row(NamedTuple):
    """A line of the page."""

    place: str
    what: str
    how: str
    then: str
    test: str  # path::name


def rows(folder: Path = TESTS) -> list[Row]:
    """The rows of all tests in `folder`, by place, then by file."""
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "fault":
                        found.append(_row(call, f"{path.relative_to(folder.parent).as_posix()}::{node.name}"))
    return sorted(found, key=lambda row: PLACES.index(row.place))


def _row(call: ast.Call, test: str) -> Row:
    place, what = map(ast.literal_eval, call.args)
    words = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    if place not in PLACES:
        raise ValueError(
            f"{test}: there is no place {place!r} in tests/faults.py. The places are: {', '.join(PLACES)}."
        )
    return Row(place, what, words["how"], words["then"], test)


def page(found: list[Row]) -> str:
    """docs/reliability.md."""
    lines = [HEAD]
    for place in PLACES:
        of_place = [row for row in found if row.place == place]
        if of_place:
            lines += [
                f"## {place}",
                "",
                "| what | how it is brought about | what happens | test |",
                "|---|---|---|---|",
            ]
            lines += [f"| {row.what} | {row.how} | {row.then} | `{row.test}` |" for row in of_place] + [""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(rows()), encoding="utf-8")
