"""Questions of lab 08: where keys lie, what a decode step reads, and the weight of a key."""

import math
from random import Random

from minivllm.config import cdiv
from minivllm.course.grader.seeds import Question

workload_free = True

KV_HEADS, HEAD_SIZE = 2, 16
NUM_PLACES = 4


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The numbers that are asked about, and the questions with their keys."""
    random = Random(f"lab 08 {seed}")
    block_size = random.choice((4, 8, 16))
    shared = random.sample(range(1, 60), random.choice((1, 2)))
    own = random.sample([block for block in range(1, 60) if block not in shared], 9)
    tables = [[*shared, *own[first : first + 3]] for first in (0, 3, 6)]
    lens = [random.randint((len(shared) + 1) * block_size, len(table) * block_size) for table in tables]
    row = random.randrange(3)
    place = random.randint(block_size, lens[row] - NUM_PLACES)
    scores = [random.randint(-25, 25) / 10 for _ in range(4)]
    asked = random.randrange(4)
    told = [
        "## Your numbers",
        "",
        f"A decode step with three rows, block size {block_size}, {KV_HEADS} KV heads of {HEAD_SIZE} numbers:",
        "",
        "| row | keys, the new token included | block table |",
        "|---|---|---|",
        *(f"| {i} | {length} | {table} |" for i, (length, table) in enumerate(zip(lens, tables, strict=True))),
        "",
        f"**Scores** for Q3, scaled, of the four keys that a query sees: `{scores}`.",
    ]
    where = [number for p in range(place, place + NUM_PLACES) for number in _slot(tables[row], p, block_size)]
    read = {block for table, length in zip(tables, lens, strict=True) for block in table[: cdiv(length, block_size)]}
    weight = math.exp(scores[asked]) / sum(math.exp(score) for score in scores)
    return "\n".join(told), [
        Question(
            "Q1",
            10,
            f"Where do the keys {place} to {place + NUM_PLACES - 1} of row {row} lie? Block and offset of each: a list "
            "of eight numbers.",
            where,
            f"`paged_attention`, row {row}: key p lies in block table[p // {block_size}], at offset p % {block_size}; "
            f"key {place} in place {place // block_size} of the table.",
            sized=True,
        ),
        Question(
            "Q2",
            15,
            "How many different blocks does attention read in one layer of this step, and how many numbers of K does "
            "it read in all rows together (a number that two rows read counts twice)? A list of two numbers.",
            [len(read), sum(lens) * KV_HEADS * HEAD_SIZE],
            "`paged_attention`: a row reads as many blocks as its keys need, and two rows may share some; of each key "
            f"it reads {KV_HEADS} heads of {HEAD_SIZE} numbers.",
            sized=True,
        ),
        Question(
            "Q3",
            15,
            f"What is the weight of key {asked}, rounded to three decimals?",
            round(weight, 3),
            "The softmax of `paged_attention`: exp of a score, by the sum of exp of all four.",
        ),
    ]


def _slot(table: list[int], place: int, block_size: int) -> tuple[int, int]:
    return table[place // block_size], place % block_size
