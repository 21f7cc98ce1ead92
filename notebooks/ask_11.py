"""The questions of notebook 11: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons.facts_11 import BLOCKS


def recall_before(two: Any, plans: Any) -> None:
    """The recall at the beginning."""
    tokens_out = sum(
        len(update.new_token_ids) for event in two.filter(kind="update_from_output") for update in event.updates
    )
    recall(f"How many times is the scheduler called for A's {tokens_out} output tokens?", f"{len(plans)} times.")


def section_1(wall: Any, meeting: Any) -> None:
    """A prediction of section 1."""
    first = {next(iter(found)) for found in (wall, meeting)}
    predict(
        "In which order do the three happen?",
        "the blocks; then the caller and the worker, either of them first" if first == {BLOCKS} else "it depends",
        {
            "the caller, the worker, the blocks": (
                "clean up after delivery",
                "The blocks are free before the last message is even encoded.",
            ),
            "the worker, the blocks, the caller": ("from the inside out", "The worker is told last, in the next plan."),
        },
        right="Blocks return inside the step that ends the request. The other two follow, each in a process of "
        "its own.",
        hint="Which of the three needs a message, and which needs another plan?",
    )


def section_2(after: Any) -> None:
    """A prediction of section 2."""
    owners = {
        "the worker (row 0)": after["row of the worker"] != "none",
        "until the message, the caller": after["open for the caller"] == "yes",
    }
    predict(
        "Right after this update: who still knows A?",
        " and, ".join(who for who, still in owners.items() if still),
        {
            "nobody": (
                "finished is finished",
                "The worker gets news only with a plan, and no plan has been made since.",
            ),
            "the scheduler": ("it keeps finished ones in a list", "Only the id, as a note to pass on."),
        },
        right="Three owners, three moments.",
    )


def section_4(carrier: Any) -> None:
    """A prediction of section 4."""
    predict(
        "In one process, with five requests one after another: when does A's flush run?",
        "with the next generate" if carrier.num_scheduled_tokens else "at once",
        {
            "at once": ("the core loops by itself", "In one process nobody steps it once the caller is content."),
            "never": ("it is only for two processes", "The row must go in any case, or rows would leak."),
        },
        right="The note waits for the next plan, and that is made when somebody asks again.",
    )


def section_5(again: Any, carrier: Any) -> None:
    """A prediction of section 5."""
    shared = [b for b in again.table("A′", carrier.step) if b in again.table("A", carrier.step - 1)]
    leaves_first = again.ids["A"] in again.event("update_states", carrier.step).removed
    predict(
        f"Step {carrier.step} gives blocks {' and '.join(map(str, shared))} to A′, while the worker still has A's "
        "row. Is that safe?",
        "yes, with any content" if leaves_first else "no",
        {
            "no": (
                "a row owns blocks",
                "Rows are copies of block tables. Owners are counted in the pool, and A is none any more.",
            ),
            "only because A and A′ are equal": (
                "the content saves us",
                "The worker drops the rows of finished requests before it adds new ones.",
            ),
        },
        right="The order inside one method is the whole protection.",
    )


def section_7(story_of: Any) -> None:
    """A prediction of section 7."""
    predict(
        "How many tokens are sampled for this request, and how many are delivered?",
        f"{story_of.sampled} and {story_of.delivered}",
        {
            "6 and 6": (
                "the abort arrives in time",
                f"Step {story_of.planned} was planned before the caller had read the token before.",
            ),
            "7 and 7": ("the extra one is delivered too", "The update finds the request gone, and drops its token."),
        },
        right="In one process the two numbers are equal: there the core waits for the caller.",
    )


def check_yourself(state: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "What would clearing `finished_req_ids` in place break?",
                "The plan holds the same set. The worker would never hear of the end, and its rows would leak "
                "(section 9).",
            ),
            (
                "Why must results for unknown ids be ignored?",
                "Because of late aborts: the request can be gone when results come (section 7).",
            ),
            (
                "Which counter proves that nothing leaked?",
                f"The free blocks at rest: {len(state.free_blocks)}, all usable ones (section 10).",
            ),
        ]
    )
