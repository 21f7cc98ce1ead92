"""The questions of notebook 07: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall


def recall_before(one: Any) -> None:
    """The recall at the beginning."""
    positions = {e.step: e for e in one.filter(kind="prepare_inputs") if 48 in e.positions}
    ((step, event),) = positions.items()
    recall(
        "In which slot does A's token at position 48 go, and in which step?",
        f"Slot {event.slot_mapping[0]}, step {step}: [notebook 06](06_flat_batch.ipynb).",
    )


def section_3() -> None:
    """A prediction of section 3."""
    predict(
        "Which of K and V of layer 0 depends on the position?",
        "K only",
        wrong={
            "both": "Position does not come in with the embedding. It comes in by the rotation of q and k, and "
            "nowhere else.",
            "V only": "The other way round: matching needs positions, content does not.",
        },
        right="K is cached after the rotation. A cached block fits only at its own positions; that is one reason why "
        "block hashes are chained.",
    )


def section_7(text: Any, heaviest: Any, last: Any, head: Any) -> None:
    """A prediction of section 7."""
    question = text.index(text[heaviest])
    predict(
        f"The answer so far: *{''.join(text[41:]).replace('␣', ' ')}*. Which token gets most of the weight?",
        f"{text[heaviest]} at {heaviest}, in the answer",
        wrong={
            f"{text[question]} at {question}, in the question": f"{head.weights[question]:.3f}: the model's own "
            f"words are keys like any others.",
            f"{text[last]} at {last}, the last one": f"{head.weights[last]:.3f}: the newest does not matter most.",
        },
        right=f"Weight {head.weights[heaviest]:.3f}.",
    )


def section_9(twins: Any) -> None:
    """A prediction of section 9."""
    sent = list(twins.filter(kind="schedule", step=1)[0].num_scheduled_tokens.values())
    predict(
        f"A sends {sent[0]} tokens, A′ {sent[1]}. What does A′ see in blocks 1 and 2 in layer 5?",
        "A's finished K and V of layer 5",
        wrong={
            "zeros": "The block is not filled at the end of the step. Each layer writes the whole step's K and V "
            "first, then attends.",
            "K and V of an earlier request": "There is none. The order inside the layer is enough to share within "
            "one step.",
        },
        right="Write the step, then read, layer by layer.",
    )


def check_yourself(places: Any) -> None:
    """The closing questions."""
    checks(
        [
            (
                "Why can a block's K not be used again at another position?",
                f"It is cached after the rotation: events `do_kv_cache_update` of steps 1 and 5 in `values-france`, "
                f"positions {places[0]} and {places[1]}.",
            ),
            ("Which of the flat arrays does the MLP need?", "None. It takes the hidden states, token by token."),
            (
                "Why must the write of the whole step come before the read?",
                "A token attends to itself, and another request of the same step may share its block (`twins`, step "
                "1).",
            ),
        ]
    )
