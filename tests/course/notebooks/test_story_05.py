"""Notebook 05: the numbers of its story, in the recorded traces. They are the real vLLM's."""

import pytest

from minivllm.course.notebook.names import tokens
from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons.facts_05 import cells_written, preemptions, resumption, shortages, sides, tries, turns
from minivllm.trace import load

WRONG = "A: Paris is a city in France. Rome is a city in Italy. Madrid is a city in Spain. Berlin"
RIGHT = "The correct answer is: Athens is a city in Greece."


def story(name: str, cast: str) -> Story:
    return Story(load(str(repo_path("traces") / f"{name}.jsonl.gz")), cast)


@pytest.fixture(scope="module")
def eight() -> Story:
    return story("pool-8", "A B C")


@pytest.fixture(scope="module")
def case() -> Story:
    return story("poison-as-vllm", "V R")


def test_the_moment_of_shortage(eight: Story) -> None:
    assert [eight.table(name, 2) for name in "ABC"] == [[1, 2, 3], [1, 2, 4], [1, 5, 6]]
    assert eight.free(2)[1] == 1
    assert [(row["who"], row["what"], row["blocks"]) for row in turns(eight, 9)] == [
        ("A", "takes", "7"),
        ("B", "refused", "–"),
        ("C", "preempted: gives back", "1 5 6"),
        ("B", "takes", "6"),
    ]
    assert eight.state(9).free_order == [5]


def test_what_the_victim_loses_and_keeps(eight: Story) -> None:
    before, after = sides(eight, "C", 9)
    assert (before["status"], after["status"]) == ("RUNNING", "PREEMPTED")
    assert (before["computed"], after["computed"]) == (42, 0)
    assert (before["known"], after["known"], after["own words"]) == (43, 43, 7)
    assert (after["block table"], after["in the waiting queue"]) == ([], "place 0")
    assert 5 in eight.state(9).block_hashes


def test_six_tries(eight: Story) -> None:
    rows = tries(eight, "C")
    assert [row["step"] for row in rows] == list(range(10, 16))
    assert {(row["found"], row["blocks needed"], row["blocks free"]) for row in rows} == {("1 5", 2, 1)}
    assert eight.blocks_for("C") == 3


def test_coming_back(eight: Story) -> None:
    back = resumption(eight, "C")
    assert back == (16, 32, 11, 7, 10, [1, 5, 7])
    assert eight.known("C", 16) == 43
    assert eight.event("update_states", 16).num_computed_tokens == [32]
    assert eight.batch(16).positions == list(range(32, 43))


def test_pools_of_four_sizes() -> None:
    rows = shortages({f"pool-{n}": story(f"pool-{n}", "A B C") for n in (10, 9, 8, 7)})
    assert [row["steps in all"] for row in rows] == [25, 26, 32, 32]
    assert [row["computed on return"] for row in rows] == [None, 1, 11, 27]
    assert [row["of them, twice"] for row in rows] == [None, 0, 10, 26]
    assert [row["victim"] for row in rows] == [None, "C in step 15", "C in step 9", "C in step 9"]


def test_without_names() -> None:
    rows = shortages({name: story(name, "A B C") for name in ("pool-12-nc", "pool-8-nc")})
    assert [row["steps in all"] for row in rows] == [26, 40]
    assert (rows[1]["victim"], rows[1]["computed on return"]) == ("B in step 10", 49)


def test_a_preempted_request_says_the_same() -> None:
    whole, *small = (story(name, "A B C") for name in ("together", "pool-9", "pool-8", "pool-7", "pool-8-nc"))
    for told in small:
        assert [told.text(name) for name in "ABC"] == [whole.text(name) for name in "ABC"]


def test_the_case_evidence_one(case: Story) -> None:
    assert (len(case.prompt("V")), case.steps) == (148, 43)
    assert [(row["who"], row["what"], row["tokens"], row["blocks"]) for row in turns(case, 5)] == [
        ("V", "takes", 20, "11 12"),
        ("R", "refused", 1, "–"),
        ("V", "preempted: gives back", "–", "1 2 3 4 5 6 7 8 11 12"),
        ("R", "takes", 1, "12"),
    ]
    (step, victim, numbers), *_ = preemptions(case)
    assert (step, victim, numbers.was_scheduled, numbers.num_computed_tokens) == (5, "V", True, 128)
    assert case.sent(5) == {"R": 1, "V": 0}


def test_the_case_evidence_two(case: Story) -> None:
    assert set(case.state(5).block_hashes) == set(range(1, 12))
    written = cells_written(case, 20)
    assert [written.get(block, 0) for block in (1, 2, 3, 4, 5, 6, 7, 8, 11)] == [16] * 8 + [0]


def test_the_case_evidence_three(case: Story) -> None:
    back = resumption(case, "V")
    assert (back.step, back.found, back.computed) == (20, 144, 4)
    assert back.table == [1, 2, 3, 4, 5, 6, 7, 8, 11, 12]
    unseen = "".join(tokens(case.prompt("V")[128:144]))
    assert unseen.startswith(". Oslo is a city in Norway. Which city is in Greece?")
    assert case.text("V") == WRONG


def test_the_cure() -> None:
    cured = story("poison", "V R")
    (forgot,) = cured.trace.filter(kind="forget_uncomputed_blocks")
    back = resumption(cured, "V")
    assert (forgot.step, forgot.block_ids) == (5, [11])
    assert (back.step, back.found, back.computed, cured.text("V")) == (20, 128, 20, RIGHT)


@pytest.mark.parametrize("room", [14, 64])
def test_more_room(room: int) -> None:
    told = story(f"poison-pool-{room}", "V R")
    assert (preemptions(told), told.text("V")) == ([], RIGHT)


def test_first_come_first_served() -> None:
    told = story("poison-fcfs", "V R")
    (step, victim, numbers), *_ = preemptions(told)
    assert (step, victim, numbers.was_scheduled) == (5, "R", False)
    assert (numbers.num_computed_tokens, resumption(told, "R").found, told.text("V")) == (48, 48, RIGHT)
