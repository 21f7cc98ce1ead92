"""Questions of lab 09: who writes a slot, where an element lies, and how many programs have nothing to do."""

from random import Random

from minivllm.config import cdiv
from minivllm.course.grader.seeds import Question

workload_free = True

SIZES = ((3, 64, 64), (5, 64, 64), (2, 80, 64), (3, 20, 16), (4, 32, 32), (7, 16, 32))  # heads, head size, TILE


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The numbers that are asked about, and the questions with their keys."""
    random = Random(f"lab 09 {seed}")
    block_size = random.choice((4, 8, 16))
    slots = random.sample(range(block_size, 12 * block_size), random.randint(12, 20))
    for token in random.sample(range(len(slots)), random.randint(2, 5)):
        slots[token] = -1
    heads, head_size, tile = random.choice(SIZES)
    tiles = cdiv(heads * head_size, tile)
    token = random.choice([token for token, slot in enumerate(slots) if slot >= 0])
    page_stride = heads * head_size
    block_stride = 2 * block_size * page_stride
    slot = random.randint(block_size, 12 * block_size - 1)
    head, dim = random.randrange(heads), random.randrange(head_size)
    told = [
        "## Your numbers",
        "",
        f"{heads} heads of {head_size} numbers, TILE {tile}, block size {block_size}. `reshape_and_cache_kernel` runs "
        "as its docstring says: program (t, i) copies tile i of token t.",
        "",
        f"slot_mapping: `{slots}`",
        "",
        f"Strides of the K cache: {block_stride} from block to block, {page_stride} from token to token, "
        f"{head_size} from head to head.",
    ]
    index = slot // block_size * block_stride + slot % block_size * page_stride + head * head_size + dim
    return "\n".join(told), [
        Question(
            "Q1",
            10,
            f"Which program writes the last number that is written to slot {slots[token]}, number {page_stride - 1} of "
            "its token? Both program ids, as a list.",
            [token, tiles - 1],
            f"A launch has a program for each token and each tile of {tile} numbers; slot {slots[token]} is place "
            f"{token} of slot_mapping.",
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"How far from the beginning of the K cache, counted in elements, is number {dim} of head {head} of slot "
            f"{slot}?",
            index,
            f"Slot {slot} is in block {slot // block_size}, token {slot % block_size} of it; each counts its stride.",
        ),
        Question(
            "Q3",
            15,
            "How many programs are there, and how many of them write nothing? A list of two numbers.",
            [len(slots) * tiles, slots.count(-1) * tiles],
            f"A launch has {tiles} programs for each token; those of a token with slot -1 end before they write.",
            sized=True,
        ),
    ]
