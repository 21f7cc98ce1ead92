"""Notebook 14: the numbers of its story that do not depend on a clock, and that times come out as ratios."""

import pytest

from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons import facts_14 as facts
from minivllm.trace import Trace, load


def trace(name: str) -> Trace:
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


def story(name: str, cast: str) -> Story:
    return Story(trace(name), cast)


def test_bytes_of_a_step() -> None:
    one = trace("one")
    weights, cell = facts.weight_bytes(one.header.model), facts.kv_bytes(one.header.model)
    assert (weights, cell, -(-weights // cell)) == (538_060_032, 46_080, 11_677)
    known = one.filter(step=9, kind="prepare_inputs")[0].seq_lens[0]
    assert f"{known * cell / weights:.1%}" == "0.4%"
    assert -(-weights // cell) // 64 == 182


def test_a_hole_in_a_stream() -> None:
    pool = story("pool-8", "A B C")
    assert facts.hole(pool, "C") == (7, 8, 16)
    assert facts.refused(pool, "C") == [10, 11, 12, 13, 14, 15]
    assert facts.stretches(pool, "C") == [
        ("prefill", 2),
        ("decode", 6),
        ("preempted", 7),
        ("recompute", 1),
        ("decode", 16),
    ]
    assert facts.waits(pool, "A") == list(range(1, 16))


def test_the_dials() -> None:
    most = {}
    for name in ("late-nc", "late", "late16-nc"):
        one = story(name, "A C")
        most[name] = max(sum(one.sent(step).values()) for step in range(2, 9)), one.first_word("C")
    assert most == {"late-nc": (37, 5), "late": (21, 5), "late16-nc": (16, 7)}
    turns = [story(name, "A A′ B C F") for name in ("again", "again-nc")]
    assert [(facts.prompt_tokens(one), one.steps) for one in turns] == [(101, 84), (229, 85)]
    assert story("seats1", "A B").first_word("B") - story("together", "A B C").first_word("B") == 15
    assert [story(f"pool-{n}", "A B C").steps for n in (7, 8, 9, 10)] == [32, 32, 26, 25]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32, 64])
def test_a_crowd_decodes_in_one_step(size: int) -> None:
    crowd = trace(f"batch-{size}")
    step = facts.decode_step(crowd)
    assert crowd.filter(step=step, kind="prepare_inputs")[0].num_tokens == size
    shares = facts.parts(crowd)
    assert sum(shares.values()) == pytest.approx(1)
    assert all(part >= 0 for part in shares.values())
    assert facts.relative({1: trace("batch-1"), size: crowd})[1] == 1


def test_company_is_cheap() -> None:
    """vLLM's were 1.4 and 3.7 times, on another machine."""
    longer = facts.relative({size: trace(f"batch-{size}") for size in (1, 4, 16, 64)})
    assert longer[4] < 1.15 < longer[16] < 2 < longer[64] < 4
    assert facts.parts(trace("batch-1"))["scheduling"] < 0.01


def test_the_way_to_the_first_token() -> None:
    ratio, shares = facts.way_to_first_token(trace("one-wall"))
    assert ratio > 1
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=shares.get) == "step 1"


def test_shares_in_words() -> None:
    assert [facts.share(part) for part in (0.0001, 0.003, 0.5)] == ["below 0.1%", "0.3%", "50.0%"]
