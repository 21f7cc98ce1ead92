"""Questions of lab 11: what is kept, with which probability, and whose tokens change when somebody leaves."""

import math
from random import Random
from typing import Any

from minivllm.course.grader.seeds import Question
from minivllm.lessons.lab11 import observe as observe_sampler

workload_free = True
SIZE = 7  # tokens that are not out of question
VOCAB_SIZE = 48
FAR = -30.0  # the logit of all others
MAX_TRIES = 2000


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The rows as Markdown, and the questions with their keys."""
    random = Random(f"lab 11 {seed}")
    cut, kept, _ = _draw(random, _make_cut, lambda probs: 2 <= len(probs) <= 5)
    bent, probs, shares = _draw(random, _make_bent, lambda probs: len(probs) >= 3)
    token = random.choice(sorted(probs))
    seeds, leaving = _make_company(random)
    follow = [f"r{row}" for row in range(leaving + 1, len(seeds)) if seeds[row] is None]
    return _told(cut, bent, seeds), [
        Question(
            "Q1",
            10,
            "Row a: which tokens can still be drawn when everything has been applied? Their ids, rising.",
            sorted(kept),
            "B20 sampler.forward, `process` of row a: temperature, min_p, top_k, top_p, in this order, each on what "
            "the one before has left.",
        ),
        Question(
            "Q2",
            15,
            f"Row b: with which probability is token {token} drawn, in percent, rounded to a whole number?",
            round(100 * shares[token]),
            "B20 sampler.forward, `process` of row b: the penalties on the logits of tokens in the prompt or the "
            "output, then temperature and top_k; the softmax is of the tokens that are left.",
        ),
        Question(
            "Q3",
            15,
            f"Rows r0 to r{len(seeds) - 1} draw once. Then all generators are set back, r{leaving} is taken out, the "
            "rows behind it move up, and they draw again. The noise comes from one generator, row after row, for all "
            "rows; then a row with a seed takes noise from its own instead. Which requests may get another token than "
            "before? Their ids, in order.",
            follow,
            f"B20 sampler.forward, `random_sample`: who stood behind r{leaving} takes the noise of the row before it, "
            "unless its noise is its own.",
        ),
    ]


def _draw(random: Random, make: Any, interesting: Any) -> tuple[dict[str, Any], dict[int, float], dict[int, float]]:
    for _ in range(MAX_TRIES):
        row = make(random)
        found = observe_sampler.rows_processed({}, {"rows": [row]}, [])["rows"][0]
        shares = {token: math.exp(value) for token, value in enumerate(found) if value is not None and token < SIZE}
        if interesting(shares) and _is_clear(row, shares):
            return row, shares, shares
    raise RuntimeError(f"nothing of interest in {MAX_TRIES}")


def _is_clear(row: dict[str, Any], shares: dict[int, float]) -> bool:
    """No token stands at the edge of a cut, and no percentage at the edge of rounding."""
    for change in (-0.02, 0.02):
        sampling = dict(row["sampling"])
        for name in ("top_p", "min_p"):
            if sampling.get(name):
                sampling[name] = min(max(sampling[name] + change, 0.001), 1.0)
        moved = observe_sampler.rows_processed({}, {"rows": [row | {"sampling": sampling}]}, [])["rows"][0]
        if [token for token, value in enumerate(moved[:SIZE]) if value is not None] != sorted(shares):
            return False
    return all(abs(100 * share % 1 - 0.5) > 0.1 for share in shares.values())


def _row(random: Random, sampling: dict[str, Any], prompt: list[int], output: list[int]) -> dict[str, Any]:
    logits = random.sample([number / 2 for number in range(-4, 9)], SIZE) + [FAR] * (VOCAB_SIZE - SIZE)
    return {
        "sampling": sampling,
        "prompt_token_ids": prompt,
        "output_token_ids": output,
        "bad_words_token_ids": [],
        "logits": logits,
    }


def _make_cut(random: Random) -> dict[str, Any]:
    sampling = {
        "temperature": random.choice((1.0, 2.0)),
        "top_k": random.choice((0, 3, 4, 5)),
        "top_p": random.choice((0.7, 0.8, 0.9, 0.95)),
        "min_p": random.choice((0.0, 0.1, 0.2)),
    }
    return _row(random, sampling, [SIZE], [])


def _make_bent(random: Random) -> dict[str, Any]:
    sampling = {
        "temperature": random.choice((1.0, 2.0)),
        "top_k": random.choice((3, 4, 5)),
        "presence_penalty": random.choice((0.0, 0.5, 1.0)),
        "frequency_penalty": random.choice((0.5, 1.0)),
        "repetition_penalty": random.choice((1.0, 2.0)),
    }
    output = [random.randrange(SIZE) for _ in range(4)]
    return _row(random, sampling, [random.randrange(SIZE)], output)


def _make_company(random: Random) -> tuple[list[int | None], int]:
    """The seed of each row, and the row that leaves; two or more rows without a seed stand behind it."""
    while True:
        seeds = [random.choice((None, random.randint(1, 99))) for _ in range(8)]
        leaving = random.randrange(4)
        if seeds[leaving + 1 :].count(None) >= 2 and seeds.count(None) <= 6:
            return seeds, leaving


def _told(cut: dict[str, Any], bent: dict[str, Any], seeds: list[int | None]) -> str:
    lines = ["## Your rows", "", f"All tokens that are not shown have a logit of {FAR:g}: leave them out.", ""]
    lines += [f"| row | {' | '.join(f'token {token}' for token in range(SIZE))} | sampling | prompt | output |"]
    lines += ["|---" * (SIZE + 4) + "|"]
    for name, row in (("a", cut), ("b", bent)):
        settings = ", ".join(f"{key} {value:g}" for key, value in row["sampling"].items())
        tables = " | ".join(str(row[key]) for key in ("prompt_token_ids", "output_token_ids"))
        logits = " | ".join(f"{value:g}" for value in row["logits"][:SIZE])
        lines.append(f"| {name} | {logits} | {settings} | {tables} |")
    told = ", ".join(f"r{row} {'none' if seed is None else seed}" for row, seed in enumerate(seeds))
    return "\n".join([*lines, "", f"Seeds of the rows of question 3: {told}."])
