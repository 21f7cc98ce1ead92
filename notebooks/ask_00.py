"""The questions of notebook 00: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons import facts_00 as facts


def recall_before() -> None:
    """The recall at the beginning."""
    recall(
        "A model gets a prompt in one piece and answers with fifteen tokens. How often does it run?",
        "Fifteen times. The run over the prompt gives the first token, and each later run one more.",
    )


def section_5(came: Any, wall: Any, asked: Any) -> None:
    """A prediction of section 5."""
    predict(
        f"{came} tokens come back. How many times was `schedule()` called?",
        facts.num_calls(wall, "schedule"),
        {
            came: (
                "a step happens because a token is wanted",
                "A step also happens because the worker must still be told that a request is gone.",
            ),
            asked + came: (
                "one call per token, the prompt included",
                f"A whole prompt can travel in one step; {asked} tokens did.",
            ),
        },
        right=f"{came} with work, and one to say goodbye. [Notebook 11](11_reclamation.ipynb) meets it.",
        hint="The last token is known. Has everybody who must hear of the end heard of it?",
    )


def section_8(one: Any) -> None:
    """A prediction of section 8."""
    before, after = one.computed("A", 1)
    predict(
        "Step 1 is planned, and nothing has been computed. What does `num_computed_tokens` say?",
        after,
        {
            before: (
                "it counts what is finished",
                "It counts what is spoken for; it moves when the step is planned, not when results come.",
            ),
            after - 1: (
                "the last token is sampled, not computed",
                f"All {after} prompt tokens are fed; the next one is sampled from the last of them.",
            ),
        },
        right="So every question about a counter needs a moment, and the trace gives both sides of each event.",
        hint="The other counter of this call moved when the step was planned, not when the model ran.",
    )


def what_if(short: Any, taken: Any) -> None:
    """A question of the what-ifs."""
    predict(
        f"H has {len(short.prompt('H'))} prompt tokens and {len(short.outputs('H'))} output tokens. How often is "
        "memory taken from the pool for H?",
        facts.num_calls(short.trace, "get_new_blocks"),
        {
            len(short.outputs("H")): ("each new token needs memory", "A block has room for several tokens."),
            taken: ("once for the prompt, once for the answer", "The prompt's last block has room for the answer."),
        },
        right="All of H fits into the blocks that it takes at its start.",
        hint=f"A block has room for {short.config('block_size')} tokens (section 4). How many blocks does the prompt "
        "take, and how many tokens fit into those?",
    )


def check_yourself(one: Any, held: Any, came: Any, taken: Any, size: Any) -> None:
    """The closing questions."""
    moved = next(step for step in range(2, one.steps) if len(one.table("A", step)) > len(held))
    checks(
        [
            (
                "Which of these run in the caller's process: chat template, scheduling, taking memory, detokenizing?",
                "The first and the last.",
            ),
            ("Name the only two stops where bytes cross.", "B7 and B22. An abort (B26) uses B7's road."),
            (
                f"Why can {came} outputs need the pool only {taken} times?",
                f"A block holds {size} tokens: {len(held)} blocks at once, and one more at position "
                f"{one.batch(moved).positions[0]} in step {moved} (event {one.event('get_new_blocks', moved).seq}).",
            ),
        ]
    )
