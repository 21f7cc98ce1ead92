"""The questions of notebook 02: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall, tokens
from minivllm.lessons import facts_02 as facts


def recall_before() -> None:
    """The recall at the beginning."""
    recall(
        "What does `generate` look at to know that it is done?",
        "Its own table of open requests ([notebook 01](01_facade.ipynb)).",
    )


def section_2(slept: Any) -> None:
    """A prediction of section 2."""
    times = slept.computing // slept.reading
    predict(
        f"After the nap, the {slept.calls} calls of `step()` take, all together, …",
        "less than a tenth of one step" if slept.reading * 10 < slept.one_step else "more than that",
        {
            "as long as the computing": (
                "`step()` runs the model",
                "Look at who was awake: the core finished everything, its flush included, while you slept.",
            ),
            "as long as one step": (
                "the first call must start the engine",
                "It was started by the ADD message, not by `step()`.",
            ),
        },
        right=f"{slept.waiting[0]} messages were waiting. The computing took {times:,} times as long as the reading.",
    )


def section_5(wall: Any) -> None:
    """A prediction of section 5."""
    hashes = len(wall.filter(kind="preprocess_add_request")[0].block_hashes)
    predict(
        "Which thread computes these hashes?",
        facts.hashing_thread(wall),
        {
            "the caller's main thread": ("preparation belongs to the client", "The caller never sees a block."),
            "the core's main thread": (
                "hashing is part of scheduling",
                "It would delay the running step; here it overlaps the forward pass.",
            ),
        },
        right=f"{hashes} hashes, ready before the scheduler looks.",
        hint="Who does B8? The second table of section 4 has it.",
    )


def section_7(wall: Any, later: Any) -> None:
    """A prediction of section 7."""
    sizes, odd = facts.odd_ones(wall)
    usual = sum(size == sizes[0] for _, size, _ in later)
    dot = tokens(odd)[0]
    predict(
        f"Of the {len(later)} answers after the first, {usual} have {sizes[0]} bytes and {len(odd)} have {sizes[1]}. "
        "Which two?",
        f"those that carry `{dot}` ({odd[0]}) and the end token ({odd[1]})",
        {
            "the first and the last": (
                "headers differ at the ends",
                "All have the same fields; the ids differ: below "
                f"{facts.SMALL} an id is one byte, from {facts.MIDDLE} on three.",
            ),
            "those that carry `Paris` and `Rome`": (
                "text travels",
                "No text crosses, only ids; words are made on the caller's side.",
            ),
        },
        right="Two bytes saved by a small number.",
    )


def section_9(nb: Any) -> None:
    """A prediction of section 9."""
    small = nb.trace("two-process-chunk-16")
    steps = sum(1 for step in small.filter(kind="step") if step.executed)
    sent = len(small.filter(kind="core.send"))
    predict(
        f"Budget 16: the model runs in {steps} steps. How many messages come back?",
        sent,
        {
            steps: (
                "one step, one message",
                "A step with nothing to say sends nothing; clients that count messages hang.",
            ),
            steps - 1: (
                "the first chunk is silent, the others are not",
                "The third chunk answers, with the first token; two are silent.",
            ),
        },
        right="One for each step that has something to say.",
    )


def check_yourself(wall: Any) -> None:
    """The closing questions."""
    first = facts.replies(wall)[0]
    checks(
        [
            ("Kill the caller while it sleeps. What must the core do?", "Notice it, and end."),
            (
                f"Why has the first answer {first[1]} bytes?",
                "The statistics of the prefill ride along, once in a request's life: how many tokens were "
                "computed, and how "
                "many were cached. So do two stamps of the core's clock.",
            ),
            (
                "Why does a debugger show `step()` computing, in one process?",
                "The client owns the core there and runs one step a call.",
            ),
        ]
    )
