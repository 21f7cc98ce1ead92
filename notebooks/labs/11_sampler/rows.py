"""Rows of logits or log-probabilities: which is wrong, how that is told, and what kind of wrong it is.

Owns: what counts as equal. Interface: first_wrong_row, tell_rows, tell_numbers, mark_of.
Must not know: how a row came about.
"""

import hashlib
import json
from collections import Counter
from typing import Any

from minivllm.course.grader.judge import Failure
from minivllm.course.grader.words import tell_list

Row = list[float | None]  # None: masked
TOLERANCE = 2e-3
SHOWN = 4  # tokens of a row that are shown


def tell_numbers(row: Row) -> str:
    """A row as text, to three digits."""
    return " ".join("-inf" if value is None else f"{value:.3g}" for value in row)


def first_wrong_row(wanted: list[Any], found: list[Any]) -> int | None:
    """The first row that is not what it should be. Of tokens with equal values only their number counts."""
    if len(wanted) != len(found):
        return 0
    for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(one, list) != isinstance(other, list):
            return index
        if not (one == other if not isinstance(one, list) else _same_row(one, other)):
            return index
    return None


def _same_row(wanted: Row, found: Row) -> bool:
    if len(wanted) != len(found) or any(value != value for value in found):
        return False
    pairs = zip(wanted, found, strict=True)
    if any(abs(one - other) > TOLERANCE for one, other in pairs if one is not None and other is not None):
        return False
    ranked = [sorted(value for value in row if value is not None) for row in (wanted, found)]
    if len(ranked[0]) != len(ranked[1]):
        return False
    return all(abs(one - other) <= TOLERANCE for one, other in zip(*ranked, strict=True))


def tell_rows(what: str, wanted: Any, found: Any) -> tuple[str, str]:
    """Two rows that differ, or two greedy tokens, in words."""
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) != len(found):
        return f"{len(wanted)} tokens in the row", f"{len(found)}"
    if not isinstance(wanted, list) or not isinstance(found, list):
        return f"token {wanted}", f"{'token' if isinstance(found, int) else 'a row'} {found}"
    kept = [[token for token, value in enumerate(row) if value is not None] for row in (wanted, found)]
    if kept[0] != kept[1] and max(map(len, kept)) <= 2 * SHOWN:
        return tuple(f"kept tokens {tell_list(tokens)}" for tokens in kept)
    if kept[0] != kept[1]:
        token = min(set(kept[0]) ^ set(kept[1]))
        return tuple(f"token {token} is {'kept' if token in tokens else 'masked'}" for tokens in kept)
    pairs = enumerate(zip(wanted, found, strict=True))
    # NaN is no number's neighbour
    token = next(token for token, (one, other) in pairs if one is not None and not abs(one - other) <= TOLERANCE)
    return tuple(f"{what} {tell_numbers(row[: max(SHOWN, token + 1)])}" for row in (wanted, found))


def mark_of(answer: Any, failure: Failure | None, rows: Any, logits: list[Row]) -> str:
    """ok, or what kind of wrong: which tokens are kept, not how large they are; of equal logits, how many."""
    if failure is None:
        return "ok"
    if answer.error is not None:
        return answer.error["kind"]
    if failure.kind == "structure":
        return "changed"
    kept = [_names(row, given) if isinstance(row, list) else row for row, given in zip(rows, logits, strict=False)]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8]


def _names(row: Row, logits: Row) -> list[Any]:
    """The kept tokens of a row; one whose logit others have too is known by its logit alone."""
    kept = [token for token, value in enumerate(row) if value is not None]
    many = {value for value, times in Counter(logits).items() if times > 1}
    return sorted(
        f"{logits[token]}" if token < len(logits) and logits[token] in many else f"token {token}" for token in kept
    )
