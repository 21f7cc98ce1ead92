"""The questions of notebook 04: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.course.notebook.story import Story
from minivllm.lessons.facts_04 import deals


def recall_before(one: Any) -> None:
    """The recall at the beginning."""
    recall(
        f"After step 8 of A, {one.known('A', 9)} tokens are known. How many are computed?",
        f"{one.computed('A', 9)[0]}: the token sampled last has not been fed yet.",
    )


def section_4(one: Any) -> None:
    """A prediction of section 4."""
    grows, fits = deals(one, "A")[1].step, one.computed("A", 8)[1]
    predict(
        f"Block {one.table('A', 8)[2]} gets its last token in step {grows - 1}. In which step does block "
        f"{one.table('A', 9)[3]} appear?",
        f"step {grows}",
        {
            f"step {grows - 1}": (
                "a full block calls for the next",
                f"No slot is needed yet: three blocks hold {fits}.",
            ),
            f"step {grows - 2}": (
                "a known token needs room",
                f"Token {fits - 1} is known after step {grows - 2}, but fed, and stored, in step {grows - 1}.",
            ),
        },
        right="blocks = ceil((computed + this step's tokens) / block size).",
    )


def section_7(one: Any) -> None:
    """A prediction of section 7."""
    order = one.ended(one.last_step("A")).free_order
    last = " ".join(map(str, order[-4:]))
    predict(
        f"The free queue is now {order[0]} {order[1]} … {order[-5]}, and then?",
        last,
        {
            last[::-1]: (
                "given back as taken",
                "The order is reversed, so that the tail of a sequence is reused before its beginning.",
            ),
            "nothing: they are back in front": ("the pool is a sorted set", "It is a queue: freed last, reused last."),
        },
        right="Last in line, and the tail of the text first.",
        hint="The head is handed out first. Which part of A's text may others share, its beginning or its end?",
    )


def section_9(again: Any) -> None:
    """A prediction of section 9."""
    step = again.first_step("A′")
    hit, new = again.hit("A′"), again.sent(step)["A′"]
    predict(
        "A′ has been planned. What is its block table?",
        str(again.table("A′", step)),
        {
            "[1, 2, 3]": (
                f"block 3 begins with the same {new} tokens",
                "Only full blocks have names, and block 3's name now includes A's answer.",
            ),
            "[5, 6, 7]": (
                "a finished request leaves nothing",
                "Freeing does not forget; the name stays until the block is handed out again.",
            ),
        },
        right=f"{hit} tokens are found, {new} are computed.",
    )


def section_10(full: Any) -> None:
    """A prediction of section 10."""
    g, hit, size = len(full.prompt("G")), full.hit("G′"), full.config("block_size")
    predict(
        f"G has {g} tokens and {g // size} named blocks. How many tokens does the second G find?",
        hit,
        {
            g: ("everything is there", "Then nothing is left to compute, and no logits come out."),
            g - 1: ("all but one token", "Hits are whole blocks, so leaving one token out leaves a block out."),
        },
        right=f"{g - hit} tokens are computed again for the sake of one row of logits.",
    )


def section_11(again: Any, size: Any) -> None:
    """A prediction of section 11."""
    ran, own = again.computed("A", again.last_step("A"))[1], again.hit("F") - len(again.prompt("A"))
    predict(
        "How many tokens of F are found?",
        again.hit("F"),
        {
            again.hit("A′"): ("only prompts are cached", "Generated tokens fill and name blocks too."),
            ran: ("everything that A computed", f"A's last block held {ran % size} tokens: not full, no name."),
        },
        right=f"F's table is {again.table('F', again.first_step('F'))}. {own} of the found tokens are words that "
        "the model "
        "said itself.",
    )


def section_12(nb: Any) -> None:
    """A prediction of section 12."""
    twins = Story(nb.trace("twins"), "A A′")
    predict(
        "How many tokens does step 1 compute for A′?",
        twins.sent(1)["A′"],
        {
            twins.sent(1)["A"]: (
                "nothing is computed yet, so nothing can be found",
                "Blocks are named when handed out, and "
                "each layer writes the whole step before it reads ([notebook 07](07_forward.ipynb)).",
            ),
            0: ("A′ waits for A", "Nobody waits: A′ is in the same step, and computes what its names do not cover."),
        },
        right="The blocks that A has got in this very plan are found by name a moment later.",
    )


def check_yourself(one: Any, size: Any, three: Any) -> None:
    """The closing questions."""
    order = one.ended(one.last_step("A")).free_order
    checks(
        [
            (
                f"A prompt of {2 * size + 1} tokens, of which {2 * size} are cached in blocks of {size}. How many "
                "are found?",
                f"{2 * size}: ({2 * size + 1} − 1) // {size} = {2 * size // size} blocks. One token is left to "
                "compute (the event "
                "`get_computed_blocks` says `num_looked_up`).",
            ),
            (
                "Which block of A is lost first under pressure?",
                f"Of its four, block {order[-4]}, then {order[-3]}: the tail stands nearer to the head of the free "
                "queue (trace "
                f"`one`, the state after step {one.last_step('A')}).",
            ),
            (
                "Two requests share a block, and one of them ends. Is the block free?",
                f"No. Its reference count falls, and is not zero (trace `together`, the `free_blocks` of step "
                f"{three.last_step('A')}: C still holds block {three.table('C', 1)[0]}).",
            ),
        ]
    )
