"""What every notebook has, and what none may hold."""

import ast
import json
import re
from pathlib import Path

import pytest
from course.notebooks.sources import (
    NUMBERS,
    SOURCES,
    calls,
    cells,
    code_cells,
    markdown,
    product_lines,
    questions,
    sentences,
    triples,
    typed_numbers,
)
from docs.pages import ROOT, anchors, broken_links

from minivllm.course.notebook import build

HEADINGS = ("The puzzle", "What if …", "Traps", "The code", "Left out", "Summary", "Check yourself", "Next")
MAX_STATEMENTS, MAX_LINES = 6, 18
each = pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)


def headings(path: Path, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", markdown(path), re.MULTILINE)


def test_all_fifteen_are_there() -> None:
    assert tuple(path.stem[:2] for path in SOURCES) == NUMBERS


@each
def test_sections(path: Path) -> None:
    (title,) = headings(path, 1)
    assert title.startswith(f"{path.stem[:2]} · ")
    text = markdown(path)
    assert "**The question.**" in text and "**Before.**" in text
    assert "**Recall" in text or calls(path, "recall") or any("**Recall" in cell.text for cell in code_cells(path))
    found = headings(path, 2)
    assert [one for one in found if one in HEADINGS] == list(HEADINGS)
    numbered = [one for one in found if re.match(r"\d+ · ", one)]
    assert [int(one.split(" ")[0]) for one in numbered] == list(range(1, len(numbered) + 1))
    assert 6 <= len(numbered) <= 14


@each
def test_first_code_cell_is_the_setup(path: Path) -> None:
    first = next(cell for cell in cells(path) if cell.kind == "code")
    assert first.tags == ("setup",)
    assert first.text == build.setup_cell(path.stem[:2])
    assert len(first.text.splitlines()) <= 12
    assert calls(path, "map")


@each
def test_predictions_traps_and_checks(path: Path) -> None:
    predictions = calls(path, "predict")
    assert len(predictions) >= 3
    for call in predictions:
        given = {keyword.arg for keyword in call.keywords} | set(
            ("question", "answer", "wrong", "right")[: len(call.args)]
        )
        assert {"question", "answer", "wrong", "right"} <= given, ast.unparse(call.args[0])
    (shown,) = calls(path, "traps")
    numbers = shown.args[0]
    assert len(numbers.keys if isinstance(numbers, ast.Dict) else numbers.elts) >= 3
    answers = [call.args[0] for call in calls(path, "checks")]
    hidden = sum(len(one.elts) for one in answers if isinstance(one, ast.List | ast.Tuple))
    closing = markdown(path).partition("## Check yourself")[2]
    assert hidden + closing.count("<details>") >= 3


@each
def test_vllm_is_named_by_symbol(path: Path) -> None:
    assert calls(path, "code")


@each
def test_links_to_the_notebooks_before_and_after(path: Path) -> None:
    place = NUMBERS.index(path.stem[:2])
    before, after = (Path(one).stem for one in (SOURCES[place - 1], SOURCES[(place + 1) % len(SOURCES)]))
    if place > 0:
        assert f"({before}.ipynb" in markdown(path).partition("## The puzzle")[0]
    if place < len(SOURCES) - 1:
        assert f"({after}.ipynb" in markdown(path).partition("## Next")[2] + "".join(
            c.text for c in code_cells(path)[-1:]
        )


@each
def test_code_cells_are_short(path: Path) -> None:
    for cell in code_cells(path):
        body = ast.parse(cell.text).body
        statements = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
        assert len(statements) <= MAX_STATEMENTS, cell.text
        lines = cell.text.splitlines()
        assert len(lines) <= MAX_LINES and max(map(len, lines)) <= 120, cell.text
        defined = [node for node in ast.walk(ast.parse(cell.text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        assert not defined, f"a definition belongs into minivllm/course/notebook/:\n{cell.text}"


def test_no_cell_copies_the_engine() -> None:
    ours = product_lines()
    copied = [
        f"{path.stem}, cell {cell.place}: {three[0]!r} and two more lines are in {ours[three]}"
        for path in SOURCES
        for cell in code_cells(path)
        for _, three in triples(cell.text)
        if three in ours
    ]
    assert copied == []


@each
def test_no_number_is_typed_by_hand(path: Path) -> None:
    found = {}
    for cell in cells(path):
        texts = [cell.text] if cell.kind == "markdown" else [] if "setup" in cell.tags else sentences(cell.text)
        numbers = [number for text in texts for number in typed_numbers(text)]
        if numbers:
            found[f"cell {cell.place}"] = numbers
    asked = [number for text in sentences(questions(path)) for number in typed_numbers(text)]
    assert (found, asked) == ({}, [])


@each
def test_no_answer_stands_before_its_question(path: Path) -> None:
    """On GitHub a cell's code stands above what it shows."""
    shown = "\n".join(cell.text for cell in code_cells(path))
    assert not re.search(r"\b(predict|recall|checks)\(", shown)
    defined = {node.name for node in ast.parse(questions(path)).body if isinstance(node, ast.FunctionDef)}
    assert defined == set(re.findall(r"\bask\.(\w+)\(", shown))


# links, pictures, size: as they stand in the .ipynb


def shown(path: Path) -> str:
    """Sources and outputs of a notebook as text: Markdown and HTML."""
    parts = []
    for cell in json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append("".join(cell["source"]))
        for output in cell.get("outputs", ()):
            for kind in ("text/markdown", "text/html"):
                parts.append("".join(output.get("data", {}).get(kind, "")))
    return "\n\n".join(parts)


@each
def test_links_hold(path: Path) -> None:
    text = shown(path)
    links = {one for _, one in re.findall(r"(!?)\[[^\]]*\]\(([^()\s]+)\)", re.sub(r"`[^`]*`", "", text))}
    links |= set(re.findall(r'<(?:a|img)[^>]* (?:href|src)="([^"]+)"', text))
    broken = []
    for link in sorted(links):
        if re.match(r"(https?|data):", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in _places(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


def _places(target: Path) -> set[str]:
    """Anchors: GitHub's, and in a notebook Jupyter's as well, where blanks become hyphens and nothing else changes."""
    if target.suffix == ".md":
        return anchors(target.read_text(encoding="utf-8"))
    source = target.with_suffix(".py")
    return {one.replace(" ", "-") for level in (1, 2, 3) for one in headings(source, level)} | anchors(markdown(source))


@each
def test_pictures_say_in_words_what_they_show(path: Path) -> None:
    for cell in json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
            assert "image/svg+xml" in data or not any(kind.startswith("image/") for kind in data), "pictures are SVG"
            for drawing in re.findall(
                r"<svg.*?</svg>", data.get("image/svg+xml", "") + data.get("text/html", ""), re.DOTALL
            ):
                words = re.search(r"<desc[^>]*>(.+?)</desc>", drawing, re.DOTALL)
                assert "<title" in drawing and words, "a drawing needs <title> and <desc>"
                assert len(words[1].split()) >= 8, words[1]
            for image in re.findall(r"<img[^>]*>", data.get("text/html", "")):
                assert re.search(r'alt="[^"]{20,}"', image), image[:200]
    for alt in re.findall(r"!\[([^\]]*)\]", markdown(path)):
        assert len(alt.split()) >= 5, alt


@each
def test_size(path: Path) -> None:
    assert path.with_suffix(".ipynb").stat().st_size <= 400_000


def test_the_list_of_notebooks_is_right() -> None:
    readme = build.FOLDER / "README.md"
    assert broken_links(readme) == []
    rows = re.findall(
        r"^\| (\d\d) \| \[(.+?)\]\((.+?)\) \| (.+?) \| (\d+) \|$", readme.read_text("utf-8"), re.MULTILINE
    )
    said = []
    for path in SOURCES:
        number, _, title = headings(path, 1)[0].partition(" · ")
        text = " ".join(markdown(path).split())
        question = re.search(r"\*\*The question\.\*\* (.+?) \*\*Before\.\*\*", text)[1]
        minutes = re.search(r"Plan (\d+) minutes", text)[1]
        said.append((number, title, f"{path.stem}.ipynb", question, minutes))
    assert rows == said


# the rules themselves


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 41 tokens.", True),
        ("It takes `41` tokens, at B7 in step 9, of float32; blocks 4 and 5.", False),
        ("[Notebook 04](04_blocks.ipynb) and vLLM 0.22.0", False),
        ("## 3 · The budget\n\nTwo requests.", False),
        ("1. first\n2. second", False),
        ("about 0.7 s", True),
    ],
)
def test_what_counts_as_typed_by_hand(text: str, found: bool) -> None:
    assert bool(typed_numbers(text)) == found


def test_sentences_of_a_cell() -> None:
    text = 'note(f"A has {len(a)} of 41 tokens")\npredict("How many 3?", 1, {"a 15": "all 16 of them"})\nx = "k 1"'
    found = set(sentences(text))
    assert found == {"A has `x` of 41 tokens", "How many 3?", "all 16 of them", "k 1"}


def test_a_copy_of_the_engine_is_found() -> None:
    source = (ROOT / "minivllm/engine/core.py").read_text(encoding="utf-8")
    step = source[source.index("plan = self.scheduler.schedule()") :][:400]
    assert any(three in product_lines() for _, three in triples(step))
