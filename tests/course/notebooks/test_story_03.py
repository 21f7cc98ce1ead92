"""Notebook 03: the numbers of its story, in the recorded traces. They are the real vLLM's."""

import pytest

from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons.facts_03 import budgets, discarded_draws, reasons, turns
from minivllm.trace import load


def story(name: str, cast: str) -> Story:
    return Story(load(str(repo_path("traces") / f"{name}.jsonl.gz")), cast)


def sent(told: Story, step: int) -> list[int]:
    return [told.sent(step)[name] for name in told.cast]


def test_the_budget_is_spent_to_the_last_token() -> None:
    told = story("together-nc", "A B C")
    assert [len(told.prompt(name)) for name in "ABC"] == [41, 41, 36]
    assert sent(told, 1) == [41, 23, 0]
    assert sent(told, 2) == [1, 18, 36]
    assert told.plan(2).token_budget == (64, 9)
    assert [told.first_word(name) for name in "ABC"] == [1, 2, 2]
    assert [told.last_step(name) for name in "ABC"] == [15, 16, 25]
    assert told.skips("C")[1].reason == "token_budget"


def test_the_turns_of_a_step() -> None:
    rows = turns(story("together-nc", "A B C"), 2)
    assert [(row["turn"], row["from"]) for row in rows] == [("A", "running"), ("B", "running"), ("C", "waiting")]
    assert [(row["left before"], row["wants"], row["gets"], row["left after"]) for row in rows] == [
        (64, 1, 1, 63),
        (63, 18, 18, 45),
        (45, 36, 36, 9),
    ]
    assert [(row["wants"], row["gets"]) for row in turns(story("together-nc", "A B C"), 1)] == [(41, 41), (41, 23)]


def test_a_decode_before_a_newcomer() -> None:
    told = story("late16-nc", "A C")
    assert [sent(told, step) for step in (4, 5, 6, 7, 8)] == [[1, 0], [1, 15], [1, 15], [1, 6], [1, 1]]
    assert told.steps == 30


def test_what_is_drawn_in_mid_prompt() -> None:
    told = story("chunk-16-values", "A")
    first, second = discarded_draws(told.trace)
    assert (first["first choice"], first["first probability"]) == ("`␣a`", pytest.approx(0.257, abs=1e-3))
    assert (second["first choice"], second["first probability"]) == ("`␣of`", pytest.approx(0.757, abs=1e-3))
    assert "trained by" in first["the chunk ends with"]
    assert "the capital" in second["the chunk ends with"]
    assert len(told.outputs("A")) == 1


def test_the_head_of_the_line() -> None:
    told = story("queue-LC", "A L C")
    assert (told.first_step("L"), told.first_step("C"), told.steps) == (16, 21, 24)
    assert told.free(2) == (4, 4)
    assert sent(told, 16) == [0, 64, 0]
    rows = reasons(told, "C", (2, 16, 17))
    assert [(row["reason"], row["behind"]) for row in rows] == [
        ("head_of_line", "L"),
        ("token_budget", None),
        ("blocks", None),
    ]
    assert (rows[2]["blocks needed"], rows[2]["blocks free"]) == (3, 1)
    assert told.skips("L")[2].blocks_needed == 6
    swapped = story("queue-CL", "A C L")
    assert (swapped.last_step("C"), swapped.steps) == (5, 20)


def test_smaller_budgets() -> None:
    names = {64: "one", **{n: f"chunk-{n}" for n in (41, 40, 16, 8, 1)}}
    rows = budgets({n: story(name, "A") for n, name in names.items()})
    assert [row["first word in step"] for row in rows] == [1, 1, 2, 3, 6, 41]
    assert [row["steps in all"] for row in rows] == [15, 15, 16, 17, 20, 55]
    assert rows[3]["chunks of the prompt"] == "16 + 16 + 9"
    assert rows[5]["chunks of the prompt"] == "41 times 1"


@pytest.mark.parametrize(
    ("name", "first", "steps"),
    [("together-nc128", [41, 41, 36], 24), ("together-nc", [41, 23, 0], 25), ("together-nc-nochunk", [41, 0, 0], 26)],
)
def test_larger_budgets_and_no_chunks(name: str, first: list[int], steps: int) -> None:
    told = story(name, "A B C")
    assert (sent(told, 1), told.steps) == (first, steps)


def test_one_seat() -> None:
    told = story("seats1", "A B")
    waits = told.skips("B")
    assert list(waits) == list(range(1, 16))
    assert {wait.reason for wait in waits.values()} == {"seats"}
    assert told.free(1)[1] == 28


def test_a_threshold_for_long_prompts() -> None:
    few = story("threshold-10", "A")
    assert [sent(few, step)[0] for step in range(1, 6)] == [10, 10, 10, 10, 1]
    two = story("threshold-32", "A V")
    assert sent(two, 1) == [32, 32]
    assert two.first_word("A") == 2


def test_the_end_of_the_context() -> None:
    told = story("max-len-48", "A")
    (update,) = told.event("update_from_output", told.last_step("A")).updates
    assert len(told.outputs("A")) == 7
    assert (update.finish_reason, update.num_computed_tokens) == ("length", 47)
