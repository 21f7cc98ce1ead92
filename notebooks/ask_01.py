"""The questions of notebook 01: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons import facts_01 as facts


def recall_before() -> None:
    """The recall at the beginning."""
    recall("In which process is the chat template applied?", "In the caller's ([notebook 00](00_map.ipynb)).")


def section_2(parts: Any, texts: Any, typed: Any) -> None:
    """A prediction of section 2."""
    system, marks = parts[0].size, sum(part.size for part in parts[1:] if not part.yours)
    predict(
        f"The prompt has {len(texts)} tokens. How many of them did the user type?",
        typed.size,
        {
            len(texts): (
                "the prompt is what I wrote",
                f"The template added {len(texts) - typed.size}; they cost blocks and time like yours.",
            ),
            len(texts) - marks: (
                f"only the marks of the turns are added ({marks})",
                f"A default system message of {system} tokens goes in front as well, unless you send your own.",
            ),
        },
        right=f"The template put {system} tokens of a system message in front. Everybody sends these, so [notebook "
        "04](04_blocks.ipynb) can share them.",
    )


def section_5(rows: Any) -> None:
    """A prediction of section 5."""
    first = next(row for row in rows if row["in the caller's table"] or row["in the core's queue"])
    predict(
        "Which of the two is told of the request first, the `OutputProcessor` or the engine core?",
        "the `OutputProcessor`" if first["in the caller's table"] else "nobody",
        {
            "the engine core": (
                "work first, book-keeping later",
                "The core may answer at once, and an answer for an unknown id is thrown away.",
            ),
            "both together, in one call": (
                "`add_request` is atomic",
                "It is two calls; between them only the caller knows the request.",
            ),
        },
        right="So no answer can come too early.",
    )


def section_8(chunks: Any, nb: Any, texts: Any) -> None:
    """A prediction of section 8."""
    called, brought = facts.calls(chunks)
    across = facts.calls(nb.trace("two-process-chunk-16"))
    predict(
        "Budget 16, everything in one process. How often is `step()` called for A, and how often does it bring "
        "something?",
        f"{called} and {brought}",
        {
            f"{brought} and {brought}": (
                "one step, one token",
                f"{called - brought} chunks of the prompt come first; in "
                "process each call runs one core step, useful or not.",
            ),
            f"{called} and {called}": ("each chunk yields a token", "A token is drawn for a chunk, and thrown away."),
        },
        right=f"Across processes it is {across[0]} and {across[1]}: `step()` waits for a message, and chunks "
        "send none.",
        hint=f"How many steps of 16 tokens does a prompt of {len(texts)} need? Which of them has a token for "
        "the caller?",
    )


def section_10(left: Any, limit: Any) -> None:
    """A prediction of section 10."""
    predict(
        "When does the loop end?",
        "when the caller's table is empty" if left else "when the core is empty",
        {
            "when the core has nothing to do": (
                "the engine knows best",
                "The caller never asks the core; it looks at its own open requests.",
            ),
            f"after {limit} calls, the number of `max_tokens`": ("the loop counts tokens", "It counts open requests."),
        },
        right="An empty table ends it, and the core's last flush may still be to come.",
    )


def check_yourself() -> None:
    """The closing questions."""
    checks(
        [
            ("Why two ids?", "The internal one is unique in the core, the external one is your number."),
            ("What breaks if B6 came before B5?", "A fast answer is dropped, since nobody knows its id yet."),
            (
                "`generate` raises in the middle. What must be cleaned up?",
                "The requests that this call has added; `LLM._run` gives them up (trap 63).",
            ),
        ]
    )
