"""Notebook 10 as the storyboard tells it: how A's text grows, and who ended it."""

import pytest

from minivllm.course.notebook import Notebook
from minivllm.lessons.facts_10 import grown_text, marked, verdict
from minivllm.lessons.facts_11 import late_abort

NB = Notebook("10")
A_TEXT = "The capital of France is Paris and the capital of Italy is Rome."


def test_the_pieces_of_a() -> None:
    grown = grown_text(NB.trace("one"))
    assert [one.piece for one in grown][:7] == ["The", " capital", " of", " France", " is", " Paris", " and"]
    assert (len(grown), grown[-1].token_id, grown[-1].piece) == (15, 2, "")
    assert all(one.shown == one.piece and not one.held for one in grown)


def test_the_chopped_stream() -> None:
    grown = grown_text(NB.trace("stop-string"))
    assert [one.shown for one in grown] == ["", "The cap", "ita", "l of Fr", "anc", "e is "]
    assert max(len(one.held) for one in grown) == 4
    assert [one.token_id for one in grown][-1] == 7042  # in the ids, not in the text
    assert grown[-1].stop_string == "Paris"


def test_the_blank_of_a_stop_token() -> None:
    by_string, by_token = verdict(NB.trace("stop-string")), verdict(NB.trace("stop-token"))
    assert (by_string.text, by_string.stop_reason) == ("The capital of France is ", "Paris")
    assert (by_token.text, by_token.stop_reason) == ("The capital of France is", 7042)
    assert (by_string.core_said, by_token.core_said) == (None, "stop")
    assert (by_string.num_aborts, by_token.num_aborts) == (1, 0)


def test_a_character_of_three_tokens() -> None:
    assert [one.piece for one in grown_text(NB.trace("smiley"))] == ["", "", "👌", "", "", "👌", ""]


def test_the_caller_overrules_the_core() -> None:
    both = verdict(NB.trace("stop-and-length"))
    assert (both.core_said, both.finish_reason, both.stop_reason, both.num_aborts) == ("length", "stop", "Paris", 0)


def test_min_tokens_guards_a_match_for_ever() -> None:
    guarded = verdict(NB.trace("stop-min-tokens"))
    assert (guarded.text, guarded.stop_reason, guarded.num_output_tokens) == (A_TEXT, None, 15)


def test_the_late_abort() -> None:
    late = late_abort(NB.trace("two-process-late-abort"))
    assert (late.found_in, late.planned, late.sampled, late.delivered) == (6, 7, 7, 6)
    in_process = late_abort(NB.trace("stop-string"))
    assert (in_process.sampled, in_process.delivered, in_process.abort_bytes) == (6, 6, None)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("max-tokens-14", A_TEXT, ("length", None)),
        ("stop-included", "The capital of France is Paris", ("stop", "Paris")),
        ("stop-over-border", "The capital of France ", ("stop", "is Pa")),
        ("stop-order-short", "The capital of France is ", ("stop", "Par")),
        ("stop-order-long", "The capital of France is ", ("stop", "Paris")),
        ("ignore-eos", A_TEXT + "\nsystem\n", ("length", None)),
    ],
)
def test_what_if(name: str, text: str, reason: tuple) -> None:
    found = verdict(NB.trace(name))
    assert (found.text, (found.finish_reason, found.stop_reason)) == (text, reason)


def test_the_same_text_is_64_characters_long() -> None:
    assert len(verdict(NB.trace("max-tokens-14")).text) == 64


def test_blanks_and_line_ends_can_be_seen() -> None:
    assert marked(" Rome\n") == "'␣Rome⏎'"
