"""Questions of lab 10: what is carried after a tile, which blocks a tile reads, which keys a segment has."""

import math
from random import Random
from typing import Any

from minivllm.config import cdiv
from minivllm.course.grader.seeds import Question

workload_free = True

TILE = 4
SEGMENTS = 4


def questions(run: None, workload: None, seed: int) -> tuple[str, list[Question]]:
    """The numbers that are asked about, and the questions with their keys."""
    random = Random(f"lab 10 {seed}")
    scores = [random.randint(-30, 30) / 10 for _ in range(3 * TILE)]
    tile = random.choice((1, 2))
    seen = scores[: (tile + 1) * TILE]
    block_size, tile_size = random.choice(((4, 16), (8, 32), (4, 8), (2, 8)))
    seq_len = random.randint(5 * block_size + 1, 9 * block_size)
    blocks = random.sample(range(1, 40), cdiv(seq_len, block_size))
    read_tile = random.randrange(cdiv(seq_len, tile_size))
    length, wide = random.randint(18, 120), random.choice((4, 8, 16))
    told = [
        "## Your numbers",
        "",
        f"**Scores** of one query head, scaled, for Q1: `{scores}`. A tile has {TILE} of them.",
        "",
        f"**A row** for Q2: {seq_len} keys, block size {block_size}, TILE {tile_size}, block table `{blocks}`.",
        "",
        f"**A row** for Q3: {length} keys, TILE {wide}, {SEGMENTS} segments, cut as in `paged_decode_segments_kernel`.",
    ]
    m = max(seen)
    return "\n".join(told), [
        Question(
            "Q1",
            10,
            f"m and l after tile {tile} (tiles are counted from 0), as `online_softmax_step` gives them: a list of two "
            "numbers, m and l, the second rounded to two decimals.",
            [m, round(sum(math.exp(score - m) for score in seen), 2)],
            f"`online_softmax_step` of tile {tile}: m is the largest of the {len(seen)} scores so far, and l is the "
            "sum of exp(score - m) over them, in which earlier sums have been scaled to the new m.",
            sized=True,
        ),
        Question(
            "Q2",
            15,
            f"Which blocks does tile {read_tile} of that row read (tiles are counted from 0)? A list of block numbers, "
            "in the order of the keys, each once.",
            _blocks_of(blocks, read_tile, tile_size, block_size, seq_len),
            f"Tile {read_tile} begins with key {read_tile * tile_size}, in place {read_tile * tile_size // block_size} "
            f"of the table; key {seq_len - 1} is the last of the row.",
        ),
        Question(
            "Q3",
            15,
            "The first and the last key of every segment (keys are counted from 0): a list of eight numbers, first "
            "and last of segment 0, then of segment 1, and so on. -1 and -1 for a segment without a key.",
            _ends_of_segments(length, wide),
            f"`paged_decode_segments_kernel`: a segment has {cdiv(length, SEGMENTS * wide)} tiles of {wide} keys, as "
            "far as there are keys.",
            sized=True,
        ),
    ]


def _blocks_of(blocks: list[int], tile: int, tile_size: int, block_size: int, seq_len: int) -> list[int]:
    places = range(tile * tile_size, min((tile + 1) * tile_size, seq_len))
    return list(dict.fromkeys(blocks[place // block_size] for place in places))


def _ends_of_segments(seq_len: int, tile_size: int) -> list[Any]:
    keys = cdiv(seq_len, SEGMENTS * tile_size) * tile_size
    found = []
    for segment in range(SEGMENTS):
        first = segment * keys
        found += [first, min(first + keys, seq_len) - 1] if first < seq_len else [-1, -1]
    return found
