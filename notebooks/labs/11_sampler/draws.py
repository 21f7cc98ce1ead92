"""Experiments with draws, for lab 11: whether they follow the probabilities, and what a seed fixes.

Owns: the experiments and what must come out of them. Interface: check_draws, check_forward.
Must not know: how somebody draws; the tokens of the engine are nobody's answer.
"""

from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Failure, Outcome
from minivllm.course.grader.words import count, tell_list
from minivllm.lessons.lab11.rows import tell_numbers

Case = dict[str, Any]
PROBS = [0.5, 0.3, 0.15, 0.05, 0.0]
LIMIT = 21.1  # of chi-square with three degrees of freedom: once in 10,000 experiments
SIZE = 1000  # tokens of equal probability


def check_draws(ask: Ask) -> Outcome:
    """Draws follow the probabilities, and a seed fixes a row's tokens, whatever stands beside it."""
    outcome = Outcome()
    for own in (False, True):
        asked = {"probs": PROBS, "draws": 400 if own else 4000, "calls": 10 if own else 1, "own": own}
        answer = ask.student("lab11.observe:counted", asked)
        if evidence.ends_the_check(answer, outcome):
            return outcome
        told = f"4000 draws from the probabilities {tell_numbers(PROBS)}" + (", each row with its own seed" * own)
        wanted = f"about {' '.join(str(round(4000 * p)) for p in PROBS)}, and nothing of probability 0"
        right = answer.error is None and _fits(answer.value)
        name = "frequencies" if not answer.value or not answer.value[-1] else "a token of probability 0"
        _note(
            outcome,
            answer,
            f"{name}{', own seeds' * own}",
            told,
            wanted,
            right,
            lambda counts: f"counts {tell_list(counts)}",
        )
    for name, rows, wanted, judge in EXPERIMENTS:
        answers = [ask.student("lab11.observe:sequences", _asked(*one)) for one in rows]
        for answer in answers:
            if evidence.ends_the_check(answer, outcome):
                return outcome
        broken = next((answer for answer in answers if answer.error is not None), None)
        right = broken is None and judge(*(answer.value for answer in answers))
        told = " · then ".join(_tell_seeds(*one) for one in rows)
        shown = broken or answers[-1]
        tokens = " · then ".join(_tell_drawn(answer.value) for answer in answers if answer.error is None)
        _note(outcome, shown, name, told, wanted, right, lambda _, tokens=tokens: f"tokens {tokens}")
    return outcome


def _asked(seeds: tuple[int | None, ...], default: int) -> Case:
    return {"seeds": list(seeds), "default": default, "calls": 6, "size": SIZE}


def _tell_seeds(seeds: tuple[int | None, ...], default: int) -> str:
    words = ["no seed" if seed is None else f"seed {seed}" for seed in seeds[:3]]
    rows = f"{count(len(seeds), 'row')} ({', '.join(words)}{' …' * (len(seeds) > 3)})"
    return f"{rows}, the default generator at {default}"


def _tell_drawn(drawn: list[list[int]]) -> str:
    return "; ".join(tell_list(row) for row in drawn[:3])


EXPERIMENTS = (
    (
        "same seed",
        (((7,), 1), ((7,), 2)),
        "the same tokens for the same seed, whatever the default generator is",
        lambda one, other: one == other,
    ),
    (
        "successive draws",
        (((7,), 1),),
        "other tokens from call to call: the generator goes on",
        lambda drawn: len(set(drawn[0])) > 1,
    ),
    (
        "other seeds",
        (((7, 8), 1),),
        "other tokens for another seed",
        lambda drawn: drawn[0] != drawn[1],
    ),
    (
        "rows differ",
        (((None,) * 8, 1),),
        "rows without a seed do not share their noise",
        lambda drawn: len({row[0] for row in drawn}) > 4,
    ),
    (
        "unseeded company",
        (((7,), 1), ((7, None), 1)),
        "the row with seed 7 draws the same, alone and beside a row without a seed",
        lambda alone, beside: alone[0] == beside[0],
    ),
    (
        "behind an unseeded row",
        (((7,), 1), ((None, 7), 1)),
        "the row with seed 7 draws the same, in whichever row it stands",
        lambda alone, behind: alone[0] == behind[1],
    ),
    (
        "seeded company",
        (((7,), 1), ((8, 7), 1)),
        "the row with seed 7 draws the same, alone and beside a row with seed 8",
        lambda alone, beside: alone[0] == beside[1],
    ),
    (
        "the neighbour's seed",
        (((7, None), 1), ((7, None), 2)),
        "a row without a seed does not follow the seed of its neighbour",
        lambda one, other: one[1] != other[1],
    ),
)


def _fits(counts: list[int]) -> bool:
    total = sum(counts)
    if any(count and not p for count, p in zip(counts, PROBS, strict=True)):
        return False
    means = [(count, p * total) for count, p in zip(counts, PROBS, strict=True) if p]
    return sum((count - mean) ** 2 / mean for count, mean in means) < LIMIT


def _note(outcome: Outcome, answer: Any, name: str, told: str, wanted: str, right: bool, tell: Any) -> None:
    failure = None
    if answer.error is not None:
        failure = evidence.error_failure(answer.error, name, told, 2000)
        failure.expected = wanted
    elif not right:
        failure = Failure(
            "decision", name, 2000, told, wanted, tell(answer.value), says="probability, and the docstring"
        )
    outcome.add("ok" if failure is None else f"wrong: {name}", failure)


ROW = [1.0, 1.5, 2.0, 0.5, 1.9, 1.2]
FORWARDS = (  # name, sampling of each row, discarded rows of each call, what holds, whether it does
    (
        "greedy rows stay greedy",
        [{"temperature": 0}, {"temperature": 5.0}],
        [[]] * 8,
        "token 2 in every call for the row with temperature 0, the likeliest",
        lambda drawn: set(drawn[0]) == {2} and len(set(drawn[1])) > 1,
    ),
    (
        "processed, not raw",
        [{"temperature": 1.0, "top_k": 1}],
        [[]] * 8,
        "token 2 in every call: top_k 1 leaves nothing else",
        lambda drawn: set(drawn[0]) == {2},
    ),
    (
        "its own generator",
        [{"temperature": 5.0, "seed": 11}, {"temperature": 5.0, "seed": 11}],
        [[]] * 8,
        "the same tokens for two rows with the same seed",
        lambda drawn: drawn[0] == drawn[1],
    ),
    (
        "a discarded row draws nothing",
        [{"temperature": 5.0, "seed": 11}, {"temperature": 5.0, "seed": 11}],
        [[0], [0], *[[]] * 8],
        "row 0 begins with what row 1 began with: its generator has not moved while its tokens were thrown away",
        lambda drawn: drawn[0] == drawn[1][:8],
    ),
    (
        "rows without a seed",
        [{"temperature": 5.0}] * 6,
        [[]] * 4,
        "tokens that differ from row to row and from call to call",
        lambda drawn: len({tuple(row) for row in drawn}) > 1 and any(len(set(row)) > 1 for row in drawn),
    ),
)


def check_forward(ask: Ask) -> Outcome:
    """Sampler.forward: whose token counts, and whose generator moves."""
    outcome = Outcome()
    for name, sampling, discarded, wanted, judge in FORWARDS:
        asked = {"logits": ROW, "sampling": sampling, "discarded": discarded}
        answer = ask.student("lab11.observe:forwarded", asked)
        if evidence.ends_the_check(answer, outcome):
            return outcome
        rows = "; ".join(", ".join(f"{key} {value}" for key, value in one.items()) for one in sampling[:2])
        told = f"logits {tell_numbers(ROW)}, {count(len(sampling), 'row')} ({rows}), {len(discarded)} calls"
        told += f", row 0 discarded in the first {sum(map(bool, discarded))}" if discarded[0] else ""
        right = answer.error is None and judge(answer.value)
        _note(outcome, answer, name, told, wanted, right, lambda drawn: f"tokens {_tell_drawn(drawn)}")
    return outcome
