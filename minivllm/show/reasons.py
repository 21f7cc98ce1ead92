"""Explanations as data: a verdict, the numbers behind it, sentences, and the events that they rest on.

Interface: Explanation, Reason; words for numbers, requests, blocks and steps that the sentences share.
Must not know: how a verdict is found.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minivllm.show.describe import plural

MAX_NAMED = 8  # requests or blocks that a sentence names one by one


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence of an explanation."""

    code: str  # turn, budget, cache, tokens, blocks, …; of a whole request the phase or what it waited for
    sentence: str
    seqs: tuple[int, ...] = ()  # events that it rests on
    failed: bool = False  # the test that decided against the request
    label: str = ""  # what stands before the sentence; "": the code

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request got what it got: in one step, or, with step None, in its whole life.

    verdict, of a step: scheduled, in_vain; token_budget, seats, blocks, not_fit_in_budget, preemption, head_of_line,
    preempted (as in a plan's `skipped`); not_arrived, on_its_way, finished; unknown.
    verdict, of a life: eos, stop_token, stop_string, max_tokens, max_model_len, abort, error, not_finished.
    """

    request_id: str  # internal
    name: str  # as the caller knows it
    step: int | None
    verdict: str
    sentence: str  # the answer
    numbers: dict[str, Any] = field(default_factory=dict)  # requests by the caller's names
    reasons: tuple[Reason, ...] = ()  # in the order in which the scheduler asks

    @property
    def seqs(self) -> tuple[int, ...]:
        """All events that it rests on, in order."""
        return tuple(sorted({seq for reason in self.reasons for seq in reason.seqs}))

    def reason(self, code: str) -> Reason | None:
        """The first reason with this code."""
        return next((reason for reason in self.reasons if reason.code == code), None)


# ---------------------------------------------------------------------- words


def some(count: int, total: int, word: str) -> str:
    """`14 of 20 tokens`, or `the 20 tokens` for all of them."""
    if count == total:
        return f"the one {word}" if count == 1 else f"the {plural(count, word)}"
    return f"{count} of the {plural(total, word)}"


def are(count: int, one: str = "is", many: str = "are") -> str:
    """`1 is`, `2 are`, `0 are`."""
    return f"{count} {one if count == 1 else many}"


def listed(words: Iterable[Any]) -> str:
    """`1`, `1 and 2`, `1, 2 and 3`; a long list is cut."""
    names = [str(word) for word in words]
    if len(names) > MAX_NAMED:
        names = [*names[: MAX_NAMED - 1], f"{len(names) - MAX_NAMED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"


def requests(names: Sequence[str]) -> str:
    """`request 0`, `requests 0 and 1`."""
    return f"request{'s' * (len(names) != 1)} {listed(names)}"


def blocks(block_ids: Sequence[int]) -> str:
    """`block 1`, `blocks 1, 2 and 3`."""
    return f"block{'s' * (len(block_ids) != 1)} {listed(block_ids)}"


def shares(tokens: Mapping[str, int]) -> str:
    """`request 0 took 41, request 1 took 9`, from name -> tokens."""
    named = [f"request {name} took {count}" for name, count in tokens.items()]
    if len(named) > MAX_NAMED:
        rest = sum(list(tokens.values())[MAX_NAMED - 1 :])
        named = [*named[: MAX_NAMED - 1], f"{len(tokens) - MAX_NAMED + 1} more took {rest}"]
    return ", ".join(named)


def span(first: int, last: int, word: str) -> str:
    """`step 9`, `steps 10 to 15`."""
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"
