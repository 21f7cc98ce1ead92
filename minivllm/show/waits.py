"""Why a request gets nothing in a step: the words for each reason that a plan gives, in their one place.

Interface: WAITS, Words; words_of, for a request that a plan skipped.
Must not know: where the words are shown.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from minivllm.show.describe import plural


class Words(NamedTuple):
    """The words for one reason, from short to long. What stands in braces is filled in."""

    short: str  # a label
    label: str  # the same, with its numbers
    why: str  # what follows "Requests 1 and 2 wait: "
    life: str  # of a run of such steps in a request's life
    answer: str  # to the question why it gets nothing in one step


WAITS: dict[str, Words] = {
    "token_budget": Words(
        "budget",
        "waits: budget",
        "{token_budget} tokens of the budget are left",
        "It waits: the budget is used up by others.",
        "Request {name} {waits} gets nothing: the budget of {budget} tokens is used up.",
    ),
    "seats": Words(
        "seats",
        "waits: all {num_running} seats taken",
        "all {num_running} seats are taken",
        "It waits for a seat: max_num_seqs is {max_num_seqs}.",
        "Request {name} waits for a seat: {taken}.",
    ),
    "blocks": Words(
        "blocks",
        "waits: {blocks_needed} blocks needed, {blocks_free} free",
        "{blocks} needed, {blocks_free} free",
        "It waits for blocks: it needs {blocks_needed}, and at most {most_free} free.",
        "Request {name} waits for blocks: it needs {needed} and {free} free.",
    ),
    "not_fit_in_budget": Words(
        "does not fit",
        "waits: does not fit",
        "its prompt does not fit in the {token_budget} tokens left",
        "It waits: its {num_missing} tokens do not fit into what is left of a step's budget.",
        "Request {name} waits: its {missing} do not fit into what is left of the budget, {left} of {budget}.",
    ),
    "preemption": Words(
        "after a preemption",
        "waits: after a preemption",
        "nobody is admitted in a step that preempts",
        "It waits: somebody was preempted, and such a step admits nobody.",
        "Request {name} waits: {were} in this step, and a step that preempts admits nobody.",
    ),
    "head_of_line": Words(
        "behind",
        "waits behind request {behind}",
        "{front} in front of it can't go",
        "It waits behind request {blocked_by}, which can't be admitted ({blocker_verdict}).",
        "Request {name} waits behind request {blocked_by}, which can't be admitted. Nobody overtakes.",
    ),
    "preempted": Words(
        "preempted",
        "waits: preempted",
        "preempted",
        "It is preempted for request {for_req}: {num_computed_tokens} computed tokens are lost.",
        "Request {name} is preempted: {lack}.",
    ),
}


def words_of(skipped: Any, name: Callable[[str], str]) -> tuple[str, str, str]:
    """`short`, `label` and `why` of a request that a plan skipped. name: what a request is called."""
    words = WAITS.get(skipped.reason)
    if words is None:
        said = skipped.reason.replace("_", " ")
        return skipped.reason, f"waits: {skipped.reason}", said
    behind = name(skipped.blocked_by) if skipped.blocked_by else None
    numbers = {
        "token_budget": skipped.token_budget,
        "num_running": skipped.num_running,
        "blocks_needed": skipped.blocks_needed,
        "blocks": plural(skipped.blocks_needed, "block"),
        "blocks_free": skipped.blocks_free,
        "behind": behind or "?",
        "front": f"request {behind}" if behind else "one",
    }
    return words.short, words.label.format(**numbers), words.why.format(**numbers)
