"""Questions by seed: different for different students, the same for the same one, and not to be guessed."""

import os
from collections import Counter

import pytest

from minivllm.labs import seeds
from minivllm.labs.catalog import Lab, all_labs

LABS = all_labs()
EACH_LAB = pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.number)
NUM_SEEDS = 300 if os.environ.get("LABS_FULL") else 60  # make labs-full takes all
MIN_ANSWERS = 12
MAX_SHARE = 0.20 if os.environ.get("LABS_FULL") else 0.30  # of the commonest answer; few seeds scatter more
POINTS = 40


def seed_numbers() -> range:
    return range(NUM_SEEDS)


@EACH_LAB
def test_answers_cant_be_guessed(lab: Lab) -> None:
    answers: dict[str, Counter[str]] = {}
    for seed in seed_numbers():
        for question in seeds.ask(lab, seed).questions:
            answers.setdefault(question.id, Counter())[str(question.key)] += 1
    assert list(answers) == ["Q1", "Q2", "Q3"]
    for name, counts in answers.items():
        assert len(counts) >= MIN_ANSWERS, f"{name} has {len(counts)} answers"
        commonest, times = counts.most_common(1)[0]
        assert times <= MAX_SHARE * NUM_SEEDS, f"{name}: {commonest} is the answer {times} times of {NUM_SEEDS}"


@EACH_LAB
def test_a_seed_always_gives_the_same_questions(lab: Lab) -> None:
    one, again, other = (seeds.ask(lab, seed) for seed in (7, 7, 8))
    assert one.workload == again.workload and one.questions == again.questions
    assert (one.workload, one.told) != (other.workload, other.told)
    assert sum(question.points for question in one.questions) == POINTS


@EACH_LAB
def test_right_answers_get_all_points_and_the_key_is_nowhere(lab: Lab, tmp_path) -> None:
    asked = seeds.ask(lab, 11)
    path = tmp_path / "answers.toml"
    path.write_text("".join(f"{q.id} = {q.key!r}\n" for q in asked.questions))
    graded = seeds.grade_answers(lab, 11, path)
    assert sum(result["points"] for result in graded) == POINTS
    path.write_text(seeds.format_answers(asked))
    graded = seeds.grade_answers(lab, 11, path)
    assert [result["status"] for result in graded] == ["not_answered"] * 3
    assert not any("key" in result for result in graded)


def test_the_id_makes_the_seed_and_case_and_spaces_do_not() -> None:
    lab = LABS[0]
    assert seeds.seed_of(lab, "Ada Lovelace") == seeds.seed_of(lab, "adalovelace ")
    assert seeds.seed_of(lab, "ada") != seeds.seed_of(lab, "bob")
    assert seeds.seed_of(lab, "ada", "2026") != seeds.seed_of(lab, "ada", "2027")


@pytest.mark.parametrize(
    ("answer", "key", "same"),
    [
        ([1, 2], [1, 2], True),
        ("1, 2", [1, 2], True),
        ("[1 2]", [1, 2], True),
        ([2, 1], [1, 2], False),
        (7, "7", True),
        ("R1 3", ["r1", 3], True),
        ("", [], True),
        (70, 7, False),
    ],
)
def test_how_answers_are_compared(answer: object, key: object, same: bool) -> None:
    assert seeds.same(answer, key) is same


def test_questions_that_ignore_the_seed_would_be_noticed(monkeypatch) -> None:
    real = seeds.ask
    monkeypatch.setattr(seeds, "ask", lambda lab, seed: real(lab, 1))
    with pytest.raises(AssertionError):
        test_answers_cant_be_guessed(LABS[0])
