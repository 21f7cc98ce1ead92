"""Rows of logits to play with in the notebook of lab 11.

Owns: nothing. Interface: probabilities, kept, row, draws.
Must not know: what is graded.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minivllm.course.grader.play import parts_of_file
from minivllm.lessons.lab11 import observe as observe_sampler

NUM_TOKENS = 100


def probabilities(
    logits: Sequence[float],
    starter: str | Path | None = None,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    **sampling: Any,
) -> list[float]:
    """What is drawn from, when everything has been applied. Temperature is 1 unless it is given.

    starter: a student's file; None: the engine's own parts. prompt, output: tokens that were said before.
    """
    recorded = {
        "sampling": {"temperature": 1.0, **sampling},
        "prompt_token_ids": list(prompt),
        "output_token_ids": list(output),
        "bad_words_token_ids": [],
        "logits": list(logits),
    }
    parts = {} if starter is None else parts_of_file(Path(starter))
    (found,) = observe_sampler.rows_processed(parts, {"rows": [recorded]}, [])["rows"]
    return [0.0 if value is None else math.exp(value) for value in found]


def kept(logits: Sequence[float], **how: Any) -> list[int]:
    """The tokens that can still be drawn. how: as in `probabilities`."""
    return [token for token, share in enumerate(probabilities(logits, **how)) if share]


def row(name: str, logits: Sequence[float], **how: Any) -> dict[str, str]:
    """A row for `minivllm.course.notebook.table`: the probability of each token."""
    shares = probabilities(logits, **how)
    return {"": name} | {f"token {token}": f"{share:.2f}" if share else "-" for token, share in enumerate(shares)}


def draws(seeds: Sequence[int | None], calls: int, starter: str | Path | None = None) -> list[list[int]]:
    """What each row draws, call after call, from 100 equally likely tokens. seeds: None is a row without a seed."""
    parts = {} if starter is None else parts_of_file(Path(starter))
    asked = {"seeds": list(seeds), "default": 1, "calls": calls, "size": NUM_TOKENS}
    return observe_sampler.sequences(parts, asked, [])
