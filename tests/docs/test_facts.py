"""The numbers in the docs are those of the traces, none is typed by hand; each question is answered with a trace."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import facts
import pytest
from docs.pages import ROOT, pages, prose, sections
from trace_facts import QUANTITIES

from minivllm.proof.refs.lock import read_lock

FAQ = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
WITH_FACTS = [path for path in pages() if facts.FACT.search(path.read_text(encoding="utf-8"))]
NO_TRACE = {"How do I know that vLLM does the same?"}
REFERENCE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
# A number may be a name: of a request, a step, a version.
LABELLED = re.compile(
    r"(?i)\b(requests?|steps?|positions?|places?|blocks?|slots?|seeds?|temperature|vllm|python|plan)"
    r"[ -]\d[\d.]*((,| and| or| to) \d+)*"
)
# The labs' own rules (points, limits) are decided, not measured.
RULES = re.compile(r"<!-- rules -->.*?<!-- /rules -->", re.DOTALL)


def hand_typed(text: str) -> list[str]:
    """Numbers that are neither facts, names nor rules, each with the words before it."""
    text = " ".join(prose(RULES.sub("", text)).split())
    return re.findall(r"(?:\S+ ){0,4}(?<![\w.])\d\S*", LABELLED.sub("", text))


def questions() -> dict[str, str]:
    return sections(FAQ, 3)


@pytest.mark.parametrize("path", WITH_FACTS, ids=lambda path: path.name)
def test_numbers_are_fresh(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert facts.refreshed(page) == page, "python docs/facts.py writes them anew"


@pytest.mark.parametrize("name", ["faq.md", "glossary.md", "instructor.md"])
def test_no_number_is_typed_by_hand(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert hand_typed(text) == []


def test_at_least_25_questions_each_answered_with_a_trace_and_vllm_symbols() -> None:
    assert len(questions()) >= 25
    for title, answer in questions().items():
        assert title.endswith("?")
        assert title in NO_TRACE or facts.FACT.search(answer), title
    of_vllm = [answer for answer in questions().values() if REFERENCE.search(answer)]
    assert len(of_vllm) >= len(questions()) - 2


def test_each_term_has_one_sentence_one_number_and_one_symbol() -> None:
    terms = sections(GLOSSARY, 3)
    assert len(terms) >= 50
    for title, text in terms.items():
        says, *rest = [paragraph for paragraph in text.strip().split("\n\n") if paragraph]
        assert len(re.findall(r"[.!?](?=\s|$)", prose(says))) == 1, title
        assert facts.FACT.search("".join(rest)), title
        assert REFERENCE.search(rest[-1]) or rest[-1].startswith("vLLM: none, "), title


def test_terms_are_in_order() -> None:
    for terms in sections(GLOSSARY, 2).values():
        titles = [title.lower() for title in sections(terms, 3)]
        assert titles == sorted(titles)


def test_every_symbol_is_locked() -> None:
    named = {reference for page in (FAQ, GLOSSARY) for reference in REFERENCE.findall(page)}
    named = {(path, name) for path, name in named if not path.startswith("tests/")}
    assert len(named) >= 30
    assert named - set(read_lock().entries) == set()


def test_a_mark_at_the_start_of_a_line_would_hide_markup() -> None:
    """Markdown takes such a line as HTML, and shows it as it stands."""
    for path in WITH_FACTS:
        lines = path.read_text(encoding="utf-8").split("\n")
        assert [line for line in lines if line.startswith("<!-- fact") and not line.endswith(" -->")] == [], path.name


def test_every_quantity_is_used() -> None:
    marks = [match[1] for path in WITH_FACTS for match in facts.FACT.finditer(path.read_text(encoding="utf-8"))]
    used = {mark.split()[1] for mark in marks}
    assert set(QUANTITIES) - used == set()


def test_the_listing_for_instructors_runs() -> None:
    """A scheduler that does nothing of its own equals all recordings."""
    (listing,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs/instructor.md").read_text(), re.DOTALL | re.MULTILINE
    )
    result = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) >= 60
    assert all(line.endswith(" equal") for line in lines)


# the marks themselves


@pytest.fixture
def stale() -> Iterator[tuple[str, str]]:
    """A page with a stale number, and the same when it is fresh."""
    page = "Hits: <!-- fact: again hits -->{}<!-- /fact -->, of `16`.\n"
    yield page.format("0, 31"), page.format("0, 32, 32, 16, 48")


def test_a_stale_number_is_written_anew(stale: tuple[str, str]) -> None:
    old, new = stale
    assert facts.refreshed(old) == new
    assert facts.refreshed(new) == new


def test_check_names_stale_pages_and_changes_nothing(
    stale: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(stale[0])
    monkeypatch.setattr(facts, "PAGES", [page])
    monkeypatch.setattr(facts, "ROOT", tmp_path)
    assert facts.main(["--check"]) == 1
    assert page.read_text() == stale[0]
    assert capsys.readouterr().out == "page.md: not fresh\n"
    assert facts.main([]) == 0
    assert page.read_text() == stale[1]
    assert facts.main(["--check"]) == 0


@pytest.mark.parametrize(
    "fact", ["again no_such_quantity", "again hit 17", "one skipped 0 1 reason", "again slot 0 4711", "one hit"]
)
def test_a_fact_that_can_not_be_read_is_named(fact: str) -> None:
    with pytest.raises(ValueError, match=f"fact '{fact}'"):
        facts.value(fact)


def test_a_scenario_without_a_trace_is_named() -> None:
    with pytest.raises(ValueError, match="no-such-scenario"):
        facts.value("no-such-scenario hits")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It hits 32 tokens, in float32.", True),
        ("In step 9 of `chunk-16`, requests 0 and 1, vLLM 0.22.0, float32.", False),
        ("It hits <!-- fact: again hit 1 -->32<!-- /fact --> of <!-- fact: a b -->41<!-- /fact --> tokens.", False),
        ("[Trap 62](traps.md)", True),
        ("[a trap](traps.md#trap-62)", False),
    ],
)
def test_what_counts_as_typed_by_hand(text: str, found: bool) -> None:
    assert bool(hand_typed(text)) == found
