"""The editor of source text: it edits one symbol, and refuses what is not there exactly once."""

from pathlib import Path

import pytest

from minivllm.proof.edits import EditError, apply, span

PYTHON = "def f():\n    return 1\n\n\nclass A:\n    @staticmethod\n    def f():\n        return 1\n\n    x = 1\n"
SCRIPT = """\
const a = 1;
export function f(x) {
  if (x) {
    return 1;
  }
}
const table = {
  f(x) {
    return 1;
  },
};
class A {
  g(x) {
    return f(x) + 1;
  }
}
"""
PAGE = Path(__file__).parents[2] / "minivllm/show/page/page-files"


def test_an_edit_stays_in_its_symbol() -> None:
    assert apply(PYTHON, "A.f", "1", "2") == PYTHON.replace("        return 1", "        return 2")
    assert apply(PYTHON, "f", "1", "2") == PYTHON.replace("return 1", "return 2", 1)
    assert apply(SCRIPT, "g", "1", "2", python=False) == SCRIPT.replace("+ 1", "+ 2")
    assert apply(SCRIPT, "a", "1", "2", python=False) == SCRIPT.replace("= 1", "= 2")
    assert apply(SCRIPT, "", "table", "rows", python=False) == SCRIPT.replace("table", "rows")
    assert span(SCRIPT, "table", python=False) == (7, 11)


@pytest.mark.parametrize(
    ("text", "symbol", "old", "python", "said"),
    [
        (PYTHON, "A", "1", True, "'1' stands 2 times in A"),
        (PYTHON, "", "3", True, "'3' stands 0 times in the file"),
        (PYTHON, "A.g", "1", True, "there is no A.g"),
        (SCRIPT, "h", "1", False, "there are 0 lines that begin h"),
        (SCRIPT, "f", "1", False, "there are 2 lines that begin f"),
    ],
)
def test_what_is_not_there_once_is_refused(text: str, symbol: str, old: str, python: bool, said: str) -> None:
    with pytest.raises(EditError, match=said):
        apply(text, symbol, old, "2", python)


def test_functions_of_the_page_are_found_to_their_end() -> None:
    for path in PAGE.glob("*.js"):
        text = path.read_text()
        lines = text.splitlines()
        for line in lines:
            if line.startswith("export function "):
                first, last = span(text, line.removeprefix("export function ").partition("(")[0], python=False)
                assert lines[first - 1] == line and lines[last - 1] == "}", (path.name, line)
