"""Notebook 06: the numbers of its story, in the recorded traces. They are the real vLLM's."""

import pytest

from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons.facts_06 import by_row, labels, news, slot_of, spans
from minivllm.trace import load


def story(name: str, cast: str) -> Story:
    return Story(load(str(repo_path("traces") / f"{name}.jsonl.gz")), cast)


@pytest.fixture(scope="module")
def late() -> Story:
    return story("late", "A C")


@pytest.fixture(scope="module")
def three() -> Story:
    return story("together", "A B C")


@pytest.fixture(scope="module")
def shuffled() -> Story:
    return story("pool-8-nc", "A B C")


def test_the_first_step_of_a() -> None:
    one = story("one", "A")
    batch = one.batch(1)
    assert (batch.positions, batch.slot_mapping) == (list(range(41)), list(range(16, 57)))
    assert (batch.query_start_loc, batch.seq_lens, batch.logits_indices) == ([0, 41], [41], [40])
    again = story("again", "A A′ B C F")
    assert slot_of(again, "A′", again.first_step("A′"), 32) == 80


def test_ask_the_table(late: Story) -> None:
    assert (late.table("C", 5), late.table("A", 9)) == ([1, 4, 5], [1, 2, 3, 6])
    assert slot_of(late, "A", 9, 48) == 96


def test_two_requests_in_one_row(late: Story) -> None:
    batch = late.batch(5)
    assert (batch.positions, batch.slot_mapping) == ([44, *range(16, 36)], [60, *range(64, 84)])
    assert (batch.query_start_loc, batch.seq_lens) == ([0, 1, 21], [45, 36])
    assert labels(late, 5) == ["A"] + ["C"] * 20
    assert [(row["positions"], row["slots"]) for row in by_row(late, 5)] == [("44", "60"), ("16..35", "64..83")]


def test_three_requests_without_padding(three: Story) -> None:
    batch = three.batch(1)
    assert (batch.query_start_loc, batch.seq_lens) == ([0, 41, 50, 64], [41, 41, 30])
    assert batch.logits_indices == [40, 49, 63]
    assert [row["draw"] for row in by_row(three, 1)] == ["kept", "kept", "thrown away"]
    assert three.batch(2).query_start_loc == [0, 1, 2, 8]


def test_rows_move(three: Story) -> None:
    assert (three.rows(15), three.rows(16)) == (["A", "B", "C"], ["C"])
    assert three.event("update_states", 16).moved == {three.ids["C"]: (2, 0)}


def test_what_travels_to_the_worker(late: Story) -> None:
    assert [(row["as"], row["blocks"]) for row in news(late, 5)] == [("new", [1, 4, 5]), ("known", "None")]
    assert [(row["as"], row["blocks"]) for row in news(late, 9)] == [("known", [6]), ("known", "None")]


def test_the_shuffled_batch(shuffled: Story) -> None:
    assert list(shuffled.sent(16).items())[:2] == [("B", 49), ("C", 15)]
    assert shuffled.rows(16) == ["C", "B"]
    assert [(row["block table"], row["slots"]) for row in by_row(shuffled, 16)] == [
        ([3], "48..62"),
        ([6, 5, 4, 7], "96..111 80..95 64..79 112"),
    ]
    assert shuffled.batch(16).logits_indices == [14, 63]
    assert [row["draw"] for row in by_row(shuffled, 16)] == ["thrown away", "kept"]
    assert shuffled.known("B", 16) == 49


def test_neighbours_far_apart(shuffled: Story) -> None:
    assert shuffled.table("C", 17) == [3, 2, 1]
    assert [slot_of(shuffled, "C", 17, position) for position in (15, 16, 32)] == [63, 32, 16]
    with pytest.raises(LookupError, match="feeds no token 14 of C"):
        slot_of(shuffled, "C", 17, 14)


def test_blocks_of_32_tokens() -> None:
    wide = story("block-32", "A A′")
    assert spans(wide.batch(1).slot_mapping) == "32..72"
    assert (wide.table("A", 1), wide.table("A", 9), slot_of(wide, "A", 9, 48)) == ([1, 2], [1, 2], 80)


def test_without_hits_the_newcomer_sends_it_all() -> None:
    bare = story("late-nc", "A C")
    assert [row["positions"] for row in by_row(bare, 5)] == ["44", "0..35"]


def test_given_up() -> None:
    given = story("abort", "A B")
    assert (given.rows(5), given.rows(6)) == (["A", "B"], ["B"])
    assert given.batch(6).slot_mapping == [77]
    assert given.state(6).free_order[-1] == 3


def test_spans() -> None:
    assert spans([]) == ""
    assert spans([5, 6, 7, 9, 20, 21]) == "5..7 9 20..21"
