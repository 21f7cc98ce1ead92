"""The questions of notebook 06: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons.facts_06 import slot_of


def recall_before(again: Any) -> None:
    """The recall at the beginning."""
    dash, size = again.table("A′", again.first_step("A′")), again.config("block_size")
    recall(
        f"A′ got the block table {dash}. Where is its token {2 * size}, with {size} tokens a block?",
        f"In block {dash[2]}, first cell: slot {dash[2]} · {size} + 0 = "
        f"{slot_of(again, 'A′', again.first_step('A′'), 2 * size)}.",
    )


def section_2(late: Any) -> None:
    """A prediction of section 2."""
    where, size, fourth = slot_of(late, "A", 9, 48), late.config("block_size"), late.table("A", 9)[3]
    predict(
        "A's token at position 48 goes to which slot?",
        where,
        {
            48 + size: (f"slot = position + {size}", "That held while A's blocks were neighbours."),
            48: ("slot = position", "Slots count cells of the pool, positions count tokens of a request."),
        },
        right=f"Ask the table: `table[48 // {size}] * {size} + 48 % {size}` = {fourth} · {size} + {48 % size} = "
        f"{where}.",
    )


def section_4(late: Any) -> None:
    """A prediction of section 4."""
    place, slots, size = late.batch(5).positions[1], late.batch(5).slot_mapping, late.config("block_size")
    tables = f"A's table is {late.table('A', 5)}, C's {late.table('C', 5)}, and C found {late.hit('C')} tokens cached."
    predict(
        f"{tables} What is C's first position, and how does `slot_mapping` begin?",
        f"{place}; {slots[0]}, {slots[1]}",
        {
            f"0; {slots[0]}, {slots[1] - place}": (
                "a prompt begins at 0",
                f"What was found is not fed: C goes on at {place}.",
            ),
            f"{place}; {slots[0]}, {place + size}": ("slot = position + a block", "C's blocks are not neighbours."),
        },
        right=f"Position {place} is in the second block of C's table, {late.table('C', 5)[1]}, which begins with slot "
        f"{slots[1]}.",
    )


def section_5(late: Any) -> None:
    """A prediction of section 5."""
    sent, borders, reach = list(late.sent(5).values()), late.batch(5).query_start_loc, late.batch(5).seq_lens
    predict(
        "What are `query_start_loc` and `seq_lens` of this step?",
        f"{borders} and {reach}",
        {
            f"{borders} and {sent}": (
                "lengths are what is sent",
                "seq_lens is what attention may look at: computed + sent.",
            ),
            f"{sent} and {reach}": ("start_loc lists counts", "It lists borders; counts are differences."),
        },
        right="Borders say whose, lengths say how far.",
    )


def section_7(three: Any) -> None:
    """A prediction of section 7."""
    rows, borders, sent = three.batch(1).logits_indices, three.batch(1).query_start_loc, three.sent(1)
    predict(
        "Which hidden states give logits? Count from the left, from 0.",
        ", ".join(map(str, rows)),
        {
            f"{borders[1] - 1}, {sent['B'] - 1}, {sent['C'] - 1}": (
                "indices per request",
                f"The batch is flat: what comes before B and C counts. B's last token is number {rows[1]}.",
            ),
            f"{rows[0]} and {rows[1]} only": ("C's prompt is unfinished", "Each request has one; C's is dropped."),
        },
        right="Borders minus one: the last token of each request.",
    )


def section_10(hard: Any) -> None:
    """A prediction of section 10."""
    predict(
        "In which order do they stand in the batch?",
        ", ".join(hard.rows(16)),
        {
            "B, C": ("order of scheduling", "New requests take rows before resumed ones; always map by id."),
            "an empty row, B, C": ("rows are reserved", "A preempted request leaves the batch, and holes are closed."),
        },
        right="The order of rows is an accident; ids are not.",
        hint="When a step begins, neither B nor C has a row. The plan names new requests in one list and resumed ones "
        "in another; the worker takes the list of the new ones first.",
    )


def section_12(hard: Any) -> None:
    """A prediction of section 12."""
    rows, sent = hard.batch(16).logits_indices, hard.sent(16)
    predict(
        "Step 16 again: what is `logits_indices`, and whose draw is thrown away?",
        f"{rows}, C's",
        {
            f"{[sent['B'] - 1, rows[1]]}, C's": (
                "the order of scheduling",
                f"Rows count: C's {sent['C']} tokens come first.",
            ),
            f"{rows}, B's": ("the resumed one is still in prefill", f"B's {sent['B']} of {sent['B']} are complete."),
        },
        right=f"C has {hard.computed('C', 16)[1]} of its {len(hard.prompt('C'))} prompt tokens: its draw is void.",
    )


def check_yourself(again: Any, three: Any) -> None:
    """The closing questions."""
    size, table_of_c = again.config("block_size"), again.table("C", again.first_step("C"))
    checks(
        [
            (
                f"In which slot is position 20 under the table {table_of_c}?",
                f"Row 1, cell {20 % size}: {table_of_c[20 // size]} · {size} + {20 % size} = "
                f"{slot_of(again, 'C', again.first_step('C'), 20)} (trace `again`, C's first `prepare_inputs`).",
            ),
            (
                f"A step has {three.batch(2).num_tokens} tokens and `query_start_loc` "
                f"{three.batch(2).query_start_loc}. Which "
                "request is reading its prompt?",
                f"The third: it sends {three.sent(2)['C']} tokens, the others one each (trace `together`, step 2).",
            ),
            (
                "Which of the arrays would change if all block ids were renamed?",
                "The block table and the slots, and nothing else.",
            ),
        ]
    )
