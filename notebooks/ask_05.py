"""The questions of notebook 05: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.course.notebook.story import Story
from minivllm.lessons.facts_05 import cells_written, preemptions, resumption, tries


def recall_before() -> None:
    """The recall at the beginning."""
    recall(
        "Freed blocks keep their names. Until when?",
        "Until they are handed out again ([notebook 04](04_blocks.ipynb), section 14).",
    )


def section_3(eight: Any) -> None:
    """A prediction of section 3."""
    _, victim, numbers = preemptions(eight)[0]
    predict(
        "B needs a block and none is free. Who has to go?",
        victim,
        {
            "A": (
                "the oldest has had its turn",
                "Under first come, first served the last admitted goes; seniority protects.",
            ),
            "B": ("whoever asks must wait", "B goes only if it is itself the last admitted."),
        },
        right=f"C's {numbers.blocks_returned} private blocks return, the last one first; the shared one stays.",
        hint="Requests are served first come, first served. Which of the three has come last?",
    )


def section_5(eight: Any) -> None:
    """A prediction of section 5."""
    tried = tries(eight, "C")[0]
    needs, found, free = eight.blocks_for("C"), tried["found"].replace(" ", " and "), tried["blocks free"]
    predict(
        f"C needs {needs} blocks. Blocks {found} still have its names. {free} block is free, block "
        f"{tried['free queue']}. Is C admitted in step {tried['step']}?",
        "no",
        {
            f"yes: {needs} − 2 = 1": (
                "a found block costs nothing",
                f"The free block *is* block {tried['free queue']}: one "
                f"new + one leaving the queue = {tried['blocks needed']} > {free}.",
            ),
            "no: a few blocks are always kept back": (
                "a watermark",
                "There is none in this version; the sum alone decides.",
            ),
        },
        right="A found block that nobody holds still has to leave the free queue.",
    )


def section_6(eight: Any) -> None:
    """A prediction of section 6."""
    c = resumption(eight, "C")
    predict(
        f"A and B have ended. C resumes in step {c.step} with table {c.table}. How many of its "
        f"{eight.known('C', c.step)} tokens have to be computed now?",
        c.computed,
        {
            eight.known("C", c.step): ("preempted means from scratch", "From scratch, minus what is found by name."),
            1: ("K and V were saved somewhere", "Nothing is swapped out; what was recycled is gone."),
        },
        right=f"{c.found} are found by name, {c.computed} are computed, {c.own_words} of them C's own words.",
    )


def section_8(nb: Any) -> None:
    """A prediction of section 8."""
    nine = Story(nb.trace("pool-9"), "A B C")
    (step, who_goes, _), again = preemptions(nine)[0], resumption(nine, "C")
    predict(
        f"One block more: C itself needs a block in step {step}, and none is free. Who is the victim?",
        who_goes,
        {
            "A": ("the one that holds most must give", "Size plays no part; the place in `running` does."),
            "nobody: C skips a step": (
                "a request may pause and keep its blocks",
                "There is no pausing with blocks held.",
            ),
        },
        right=f"C is itself the last. It frees all, and is back in step {again.step}: {again.found} tokens found, "
        f"{again.computed} to compute, {again.twice} computed twice.",
    )


def section_12(case: Any, step: Any) -> None:
    """A prediction of section 12."""
    named = sorted(case.state(step).block_hashes)
    new, size, written = named[-1], case.config("block_size"), cells_written(case, resumption(case, "V").step)
    predict(
        f"After step {step} the blocks {named[0]} to {new} have names. How many of block {new}'s {size} slots has "
        "any step ever written?",
        written.get(new, 0),
        {
            size: ("a name means content", "Names are given at hand-out; the forward pass for these tokens never ran."),
            "some": ("it was cut off half-way", "V was taken out before execution: nothing ran."),
        },
        right="A name without content.",
    )


def check_yourself(gone: Any, back: Any, new: Any, eight: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "Why is a preempted request put at the front of the queue?",
                "It was admitted before all who wait there (trace `pool-8`, `waiting` in the `schedule` of step "
                f"{gone}).",
            ),
            (
                "Which rule, checked on the trace, would have caught the bug?",
                f"Every found slot has been written. In `poison-as-vllm` step {back.step} breaks it: V finds "
                f"block {new}.",
            ),
            (
                "Does a waiting request ever cause a preemption?",
                "No. Only running requests do; a waiting one that does not fit stays in line "
                f"(`skipped`, reason *{eight.skips('C')[gone + 1].reason}*, in `pool-8` step {gone + 1}).",
            ),
        ]
    )
