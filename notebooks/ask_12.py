"""The questions of notebook 12: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons import facts_12 as facts
from minivllm.proof.invariants import RULES


def recall_before() -> None:
    """The recall at the beginning."""
    recall("Notebook 11: who hears last that a request has ended?", "The worker or the caller; the blocks come first.")
    recall(
        "Notebook 02: what crosses the process boundary, text, ids or tensors?", "Token ids, and numbers about them."
    )
    recall("Notebook 01: what ends the loop of `generate`?", "The caller's own table of open requests is empty.")
    recall(
        "Notebook 08: in one layer, which comes first: the write of K and V, or the read?",
        "The write of the whole step.",
    )
    recall(
        "Notebook 04: which block does a freed block stand behind in the free queue?",
        "Behind all others: it joins the tail.",
    )
    recall(
        "Notebook 06: how does a position become a slot?",
        "table[position // block_size] · block_size + position % block_size.",
    )


def section_7(wrong: Any) -> None:
    """A prediction of section 7."""
    predict(
        "Which invariant notices first?",
        RULES[wrong.first.rule],
        {
            RULES["owners"]: ("a wrong block has a wrong owner", "Each of the two still has one owner, A."),
            RULES["balance"]: (
                "something is missing now",
                "As many blocks are free, and as many in tables, as before.",
            ),
        },
        right="The slots that the batch wrote no longer follow from the table.",
    )


def section_8(told: Any, prompt: Any, size: Any) -> None:
    """A prediction of section 8."""
    predict(
        "Which blocks does H have in step 1?",
        told[facts.BLOCKS],
        {
            "0 1 2": ("ids start at zero", "Block 0 is the null block."),
            "1 2": (f"{prompt} // {size}", "Round up: the part of a block is a block."),
        },
        right=f"ceil({prompt} / {size}).",
    )


def section_8_2(told: Any, prompt: Any, outputs: Any, size: Any) -> None:
    """A prediction of section 8."""
    predict(
        "Which slots do its prompt and its decodes get?",
        f"{told[facts.PROMPT_SLOTS]}, then {told[facts.DECODE_SLOTS]}",
        {
            f"0..{prompt - 1}, then {prompt}..{prompt + outputs - 2}": (
                "slots are positions",
                f"Block 1 begins at slot {size}.",
            ),
            f"{told[facts.PROMPT_SLOTS]}, then 64..70": (
                "decodes get a block of their own",
                "They fill the part that is left.",
            ),
        },
        right="Neighbours again, because the pool was fresh.",
    )


def section_8_3(hello: Any, told: Any, prompt: Any, outputs: Any) -> None:
    """A prediction of section 8."""
    flush = any(plan.finished_req_ids for plan in hello.trace.filter(kind="schedule"))
    predict(
        "How many steps?",
        f"{told[facts.STEPS]}, and a flush" if flush else told[facts.STEPS],
        {
            str(prompt + outputs): ("a step per token", "The prompt took one."),
            str(outputs - 1): ("the end token is free", "It is sampled like any other token."),
        },
        right="One for the prompt, the others for decodes, and a farewell. In one process the farewell travels "
        "with the next request.",
    )


def section_8_4(prompt: Any, outputs: Any, told: Any, size: Any) -> None:
    """A prediction of section 8."""
    fed = prompt + outputs - 1
    predict(
        "In which step does H get a fourth block?",
        told[facts.BORDER],
        {
            "12": ("A's border belongs to every request", f"It would be position {3 * size}, and H ends at {fed - 1}."),
            str(outputs): ("the end needs room", "The end token is never fed."),
        },
        right=f"{prompt} + {outputs - 1} = {fed} tokens are fed, and there are {3 * size} cells.",
    )


def section_8_5(hello: Any, outputs: Any, told: Any) -> None:
    """A prediction of section 8."""
    order = hello.ended(outputs).free_order
    predict(
        "What is the free queue at the end?",
        f"{order[0]} … {max(order)} {told[facts.QUEUE]}",
        {
            "1 … 31": ("it is sorted", "It is a queue."),
            "4 … 31 1 2 3": ("given back as taken", "A request gives its blocks back last first."),
        },
        right="Tail first: so it is used again before the beginning, which others may want.",
    )


def section_8_6(told: Any, prompt: Any) -> None:
    """A prediction of section 8."""
    hit, sent, blocks = (told[line] for line in (facts.HIT, facts.AGAIN_TOKENS, facts.AGAIN_TABLE))
    predict(
        "H is asked again. How many tokens are hit, how many are sent, and which blocks does it get?",
        f"{hit}, {sent}, {blocks}",
        {
            f"{prompt - 1}, 1, 1 2 3": ("all but one token", "Hits are whole blocks only."),
            f"0, {prompt}, 4 5 6": ("freed is forgotten", "Names outlive owners."),
        },
        right="Two named blocks, and a new one for the rest.",
    )


def check_yourself(nb: Any) -> None:
    """The closing questions."""
    changes = [f"{event.boundary} of step {event.step}" for event in facts.free_changes(nb.trace("one"))]
    checks(
        [
            ("At which events does the number of free blocks change in `one`?", ", ".join(changes) + "."),
            (
                "A request hangs in waiting. Which number do you ask for first?",
                "Blocks needed against blocks free, after seats and budget. `minivllm why` prints all three.",
            ),
            (
                "Which of the boundaries vanish with one process and no stop string?",
                ", ".join(facts.absent(nb.trace("one"))) + ".",
            ),
        ]
    )
