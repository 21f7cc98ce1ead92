"""What the notebooks are written with: cards, tables, listings, names, and where traces come from."""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from minivllm.course.notebook import (
    Notebook,
    array,
    card,
    cards,
    checks,
    code,
    diff_view,
    note,
    pieces,
    predict,
    recall,
    table,
    tokens,
    traps,
    who,
)
from minivllm.course.notebook.html import inline, text_of
from minivllm.course.places import ROOT, repo_path
from minivllm.errors import InputError
from minivllm.trace import Trace, load

Shown = Callable[[], str]


def trace(name: str) -> Trace:
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The HTML that was shown last."""
    found: list[str] = []
    for module in ("cards", "tables", "listings"):
        home = import_module(f"minivllm.course.notebook.{module}")  # the package has functions of these names
        monkeypatch.setattr(home, "show", lambda html, plain: found.append(html))
    return lambda: found[-1]


ASKED = {"question": "How many?", "answer": 16, "wrong": {15: ("an idea", "No."), 56: "Neither."}, "right": "So it is."}


def test_a_prediction_hides_each_answer_behind_its_option(shown: Shown) -> None:
    predict(**ASKED, hint="Count.")
    assert shown().count("<details") == 5
    for summary in ("15", "16", "56", "I don't know", "A hint"):
        assert f">{summary}</summary>" in shown()
    assert "✓ <b>Yes.</b> So it is." in shown()
    assert "✗ <i>an idea:</i> No." in shown()
    assert "Answer: <b>16</b>" in shown()


def test_options_are_mixed_by_the_question(shown: Shown) -> None:
    places = set()
    for number in range(8):
        predict(f"How many {number}?", 1, {2: "no", 3: "no"}, right="yes")
        places.add(shown().index(">1</summary>") < shown().index(">2</summary>"))
        once = shown()
        predict(f"How many {number}?", 1, {3: "no", 2: "no"}, right="yes")
        assert shown() == once
    assert places == {True, False}


def test_an_answer_that_is_offered_as_wrong_is_an_error() -> None:
    with pytest.raises(InputError, match=r"'16' of 'How many\?' is also offered as a wrong one"):
        predict(**{**ASKED, "answer": "16", "wrong": {16: "no"}})
    with pytest.raises(InputError, match="needs wrong options"):
        predict(**{**ASKED, "wrong": {}})


@pytest.mark.parametrize(
    ("guess", "said"), [(16, "✓ yes. So it is."), ("15", "✗ <i>an idea:</i> No."), (7, "not one of the options")]
)
def test_a_guess_gets_its_verdict(shown: Shown, guess: int | str, said: str) -> None:
    predict(**ASKED, guess=guess)
    assert said in shown()


def test_outside_a_notebook_words_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    predict(**ASKED)
    recall("Why?", "Hidden.")
    checks([("One?", "Hidden."), ("Two?", "Hidden.")])
    note("**Five** steps.")
    said = capsys.readouterr().out
    assert said.startswith("Predict: How many? Options: ")
    assert said.endswith("Recall: Why?\nOne?\nTwo?\n**Five** steps.\n")


def test_markup_of_sentences() -> None:
    assert inline("a < b & `x < 1`") == "a &lt; b &amp; <code>x &lt; 1</code>"
    assert inline("**A `b`** and *c* [d](e.md#f)") == '<b>A <code>b</code></b> and <i>c</i> <a href="e.md#f">d</a>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345, "12,345"),
        (0.5413, "0.541"),
        (True, "yes"),
        (None, "–"),
        ((0, 41), "0 → 41"),
        ([1, 2, 3], "[1, 2, 3]"),
        ({"A": 41}, "A: 41"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, … (100 in all)"),
    ],
)
def test_how_values_are_written(value: object, text: str) -> None:
    assert text_of(value) == text


def test_a_table_of_dicts_and_its_mark(shown: Shown) -> None:
    table([{"step": 1, "sent": 41}, {"step": 2, "sent": 1}], caption="A", mark={1})
    assert shown().count("<th style") == 2
    assert "<b>► 2</b>" in shown() and "<b>► 1</b>" not in shown()


def test_arrays_have_a_ruler_gaps_and_owners(shown: Shown) -> None:
    array("positions", [41, 0, 1], dtype="int64", owners=list("ABB"), borders={1}, gaps={2}, ruler="token")
    assert "<b>positions</b>" in shown() and "int64[3]" in shown()
    assert ">?</td>" in shown() and ">1</td>" in shown()  # the value is hidden, its index is not
    assert "#0072B2" in shown() and "#E69F00" in shown()
    with pytest.raises(InputError, match="owners has 2 entries for 3 values"):
        array("positions", [1, 2, 3], owners=["A", "B"])


def test_long_arrays_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    array("slot_mapping", range(16, 57))
    assert capsys.readouterr().out == "slot_mapping [41]: 16 17 18 … 54 55 56\n"


def test_pieces_show_blanks(shown: Shown) -> None:
    pieces([" a", "\n", "<|im_end|>"], hidden={0}, first=7)
    assert "␣a" not in shown() and "⏎" in shown() and "&lt;|im_end|&gt;" in shown() and ">9</td>" in shown()


def test_cards_name_the_field_that_is_not_there(shown: Shown) -> None:
    plan = trace("one").filter(kind="schedule")[0]
    card(plan, ["num_scheduled_tokens=sent"], ["num_computed_tokens"])
    assert "<b>B10 schedule</b>" in shown() and "0 → 41" in shown() and "sent" in shown()
    with pytest.raises(InputError, match="no field 'tokens'"):
        cards((plan, ["tokens"]))


def test_code_comes_from_the_file_with_its_lines(shown: Shown) -> None:
    code("minivllm/engine/core.py::EngineCore.step", mark=("scheduler.schedule()",))
    lines = (ROOT / "minivllm/engine/core.py").read_text().split("\n")
    number = next(n for n, line in enumerate(lines, 1) if "plan = self.scheduler.schedule()" in line)
    assert f"<b>{number:4} ►     plan = self.scheduler.schedule()</b>" in shown()
    assert "Returns" not in shown() and '"""' not in shown()
    assert "v1/engine/core.py#L" in shown() and "/v0.22.0/" in shown()


def test_code_can_begin_later_and_be_cut(shown: Shown) -> None:
    code("minivllm/engine/core.py::EngineCore.step", lines=2, start="result = ")
    assert "def step" not in shown() and "more lines" in shown()


@pytest.mark.parametrize(
    ("symbol", "more", "message"),
    [
        ("minivllm/engine/nowhere.py::X", {}, "no file 'minivllm/engine/nowhere.py'"),
        ("elsewhere/core.py::X", {}, "no file 'elsewhere/core.py'"),
        ("minivllm/engine/core.py::EngineCore.leap", {}, "defines no 'EngineCore.leap'"),
        ("minivllm/engine/core.py::EngineCore.step", {"mark": ("leap",)}, "No shown line of .* holds 'leap'"),
        ("minivllm/engine/core.py::EngineCore.step", {"start": "leap"}, "no line with 'leap'"),
        ("minivllm/engine/core.py::EngineCore.step", {"vllm": "v1/x.py::Y"}, "has no v1/x.py::Y"),
    ],
)
def test_code_that_is_not_there(symbol: str, more: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        code(symbol, **more)


def test_diff_view_has_the_first_difference_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    diff_view(trace("one"), trace("chunk-16"), lines=3, names=("64", "16"))
    caption, head, first, *rest = capsys.readouterr().out.splitlines()
    assert caption.startswith("Changed: `max_num_batched_tokens` 64 → 16. ") and "lines are left out" in caption
    assert head == "where | what | 64 | 16"
    assert first == "first difference: step 1, B10 schedule | `num_scheduled_tokens.0` | 41 | 16"
    assert len(rest) == 2


def test_diff_view_of_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    diff_view(trace("one"), trace("one"))
    assert "No difference in what the engine did." in capsys.readouterr().out


def test_traps_are_those_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    traps({20: "section 8"})
    assert "The computed tokens are counted when the step is planned" in capsys.readouterr().out
    with pytest.raises(InputError, match="no trap 4711"):
        traps([4711])


def test_names_of_the_cast() -> None:
    assert list(who(trace("again")).values()) == ["A", "A′", "B", "C", "F"]
    assert list(who(trace("n2")).values()) == ["A0", "A1"]
    assert tokens([504, 7042, 4711_4711]) == ["The", " Paris", "⟨47114711⟩"]


def test_a_trace_that_was_not_recorded() -> None:
    with pytest.raises(InputError, match="No trace 'nothing' was recorded"):
        Notebook("04").trace("nothing")
    with pytest.raises(InputError, match="no notebook '99'"):
        Notebook("99")


def test_live_runs_the_scenario(default_model_path: Path) -> None:
    """The same plans as those that were recorded; what no scenario makes is still read from its file."""
    plans = [
        [plan.num_scheduled_tokens for plan in notebook.trace("max-tokens-1").filter(kind="schedule")]
        for notebook in (Notebook("10", live=True), Notebook("10"))
    ]
    assert plans[0] == plans[1] != []


def test_nothing_heavy_is_imported() -> None:
    asked = "import sys, minivllm.course.notebook as n; n.Notebook('04').trace('one'); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(result.stdout.split())
    assert "minivllm.trace.replay" in loaded
    assert not {"torch", "transformers", "zmq", "matplotlib", "tokenizers"} & loaded
