"""The questions of notebook 13: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons import facts_13 as facts
from minivllm.lessons.facts_13 import megabytes as mb
from minivllm_kernels.flash_attention.traffic import Shapes, naive, needed


def recall_before(carried: Any) -> None:
    """The recall at the beginning."""
    recall(
        f"By which factor are sum and output repaired when the running max rises from {carried[-2][2]:.3f} to "
        f"{carried[-1][2]:.3f}?",
        f"e^(difference) = {carried[-1][3]:.4f}. [Notebook 08](08_paged_attention.ipynb), section 9.",
    )


def section_3(sizes: Any) -> None:
    """A prediction of section 3."""
    totals = [sum(naive(s).values()) for s in sizes]
    predict(
        f"From {sizes[2].num_tokens:,} to {sizes[3].num_tokens:,} tokens the naive traffic grows …",
        f"{totals[3] / totals[2]:.1f}-fold",
        wrong={
            "4-fold": "What is needed grows like the tokens. Scores grow like tokens squared.",
            "64-fold": "Each token meets each other once: squared, not cubed.",
        },
        right=f"Nearly four times four, since the scores are nearly all of it. {totals[3] / needed(sizes[3]):.0f} "
        f"times what is needed, and rising.",
        hint="Compare the two last lines of the table.",
    )


def section_5(tile: Any) -> None:
    """A prediction of section 5."""
    predict(
        f"Tiles of {tile}: how many scores of a head exist at any time?",
        f"{tile} × {tile}",
        wrong={
            "a row of all tokens": "Softmax needs a row's max and sum, not the row. The carried pair stands in for it.",
            "none": "Fused does not mean never computed. Computed, used, forgotten.",
        },
        right="One tile.",
    )


def section_8() -> None:
    """A prediction of section 8."""
    serving = facts.measured(facts.serving(256)) or facts.expected(256)
    asked, whole = serving["k_cache"] + serving["v_cache"], sum(naive(Shapes(256)).values())
    block_q, blocks = facts.blocks_of_queries(256)
    predict(
        f"Naive attention moves {mb(whole)} in all. How many bytes of K and V does the serving kernel ask for?",
        f"{mb(asked)}: hardly a saving",
        wrong={
            f"{mb(2 * Shapes(256).kv_bytes)}: each key and value once": f"Flash attention does not read K and V "
            f"once, but once for each block of queries. There are {blocks}.",
            f"{mb(Shapes(256).score_bytes)}: what the scores took": "Scores are gone. Small blocks pay for them with "
            "reading K and V again.",
        },
        right=f"{blocks} blocks of {block_q} queries a KV head, each reads all keys before it. (vLLM's kernel asks "
        f"for one key more in each, see notebook 08, section 6.)",
    )


def check_yourself(large: Any, asked_k: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "Which tensors disappear?",
                f"The scores and their softmax, {mb(large.score_bytes)} each for {large.num_tokens:,} tokens "
                f"(section 2).",
            ),
            (
                "Why does decode gain nothing?",
                f"One query: one pass over the keys anyway, {asked_k:,} bytes of K in step 9 of `kernels-one` "
                f"(section 9).",
            ),
            (
                "What is stored besides the output in the split form?",
                "For each segment its output before the division, its max and its sum: tensors `segment_acc`, "
                "`segment_max`, `segment_sum` of the launch in `kernels-one`, step 9.",
            ),
        ]
    )
