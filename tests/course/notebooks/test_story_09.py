"""Notebook 09 as the storyboard tells it: step 7 of A under each knob."""

import pytest

from minivllm.course.notebook import Notebook
from minivllm.lessons.facts_09 import choices, drawn_token, draws, kept, params
from minivllm.lessons.facts_10 import verdict

NB = Notebook("09")
A_TEXT = "The capital of France is Paris and the capital of Italy is Rome."


def near(*values: float) -> object:
    return pytest.approx(values, abs=6e-4)


def test_the_five_best() -> None:
    best = choices(NB.trace("sampler"))
    assert [one.text for one in best] == [" and", ",", " (", ".", " while"]
    assert [one.raw for one in best] == near(0.541, 0.418, 0.021, 0.011, 0.002)


def test_temperature() -> None:
    for name, processed in (("0.5", 0.626), ("2", 0.192)):
        best = choices(NB.trace(f"sampler-temperature-{name}"))[0]
        assert (best.raw, best.processed) == near(0.541, processed)  # the report does not change


def test_top_k_top_p_min_p() -> None:
    assert [one.processed for one in choices(NB.trace("sampler-top-k-2"))[:3]] == near(0.564, 0.436, 0.0)
    assert [kept(NB.trace(f"sampler-{name}")) for name in ("top-p-0.5", "top-p-0.55", "min-p-0.1")] == [1, 2, 2]


def test_the_puzzle() -> None:
    odd = drawn_token(NB.trace("sampler-repetition-1.3"))
    assert (odd.text, odd.raw_rank, odd.processed_rank) == (" (", 3, 1)
    assert (odd.raw, odd.processed) == near(0.021, 0.640)


def test_presence_is_deaf_to_the_prompt() -> None:
    for one in choices(NB.trace("sampler-presence-1"), step=7):
        assert one.processed == pytest.approx(one.raw, abs=5e-4)


def test_a_seed_belongs_to_a_request() -> None:
    alone, company = NB.trace("seed-0"), NB.trace("seed-0-company")
    assert verdict(alone).text == verdict(company).text
    assert verdict(alone).text == "The capital of France is Paris, and the capital of Italy is Rome."


def test_greedy_beside_a_draw() -> None:
    mixed = NB.trace("sampler-mixed")
    event = mixed.filter(kind="sampler.forward")[0]
    assert (event.all_greedy, event.all_random) == (False, False)
    assert drawn_token(mixed, row=0).text == " and"
    assert drawn_token(mixed, row=1).text != " and"
    assert params(mixed) == ["temperature 0", "temperature 1, seed 2"]


def test_rows_of_incomplete_prompts() -> None:
    events = NB.trace("chunk-16-values").filter(kind="sampler.forward")
    assert [event.discarded_rows for event in events] == [[0], [0], []]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bad-words", A_TEXT.replace("Rome", "Florence")),
        ("logit-bias", A_TEXT.replace("Paris", "City of Culture,")),
        ("repetition-1.1", A_TEXT),
        ("presence-1", A_TEXT),
    ],
)
def test_what_if(name: str, text: str) -> None:
    assert verdict(NB.trace(f"sampler-{name}")).text == text


def test_what_if_it_goes_on() -> None:
    assert verdict(NB.trace("sampler-repetition-1.3-whole")).text.startswith("The Capital: Paris (Le Grand Jardin)")
    assert verdict(NB.trace("sampler-min-tokens-16")).text.startswith(A_TEXT + " These two European cities")


def test_six_seeds_ramble() -> None:
    texts = [verdict(NB.trace("rambling"), seed).text for seed in "012345"]
    assert len(set(texts)) == 6
    assert not any("Paris" in text and "Rome" in text for text in texts)


def test_the_race_gives_the_probabilities() -> None:
    counts = draws([0.5, 0.25], times=4000, seed=1)
    assert counts == draws([0.5, 0.25], times=4000, seed=1)
    assert [count / 4000 for count in counts] == pytest.approx([0.5, 0.25], abs=0.03)
