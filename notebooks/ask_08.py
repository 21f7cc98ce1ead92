"""The questions of notebook 08: predictions, recall, closing questions, with their answers.

They stand here and not in the cells, so that no answer is on the screen before its question. Each function shows one
question; what it is given comes from the notebook, and what it returns is used there later.
Must not know: where the notebook got its traces from.
"""

from itertools import pairwise
from typing import Any

from minivllm.course.notebook import checks, predict, recall
from minivllm.lessons import facts_08 as facts
from minivllm.lessons import facts_08_ptx as ptx
from minivllm.lessons import facts_08_run as runs


def recall_before(batch: Any) -> None:
    """The recall at the beginning."""
    recall(
        "A, B and C send their first tokens in one step. What is `seq_lens`?",
        f"{batch.seq_lens}: how far each may look, computed tokens and this step's together. The borders, "
        f"`query_start_loc`, are {batch.query_start_loc}. [Notebook 06](06_flat_batch.ipynb) built both.",
    )


def section_2(batch: Any) -> None:
    """A prediction of section 2."""
    slots = list(batch.slot_mapping)
    all_written, fewer = runs.cells_written(slots), runs.cells_written([-1, *slots[1:]])
    predict(
        f"One of the {len(slots)} slots is set to −1. How many cells are written?",
        str(fewer),
        wrong={
            f"{all_written}, one of them at the end of the pool": "Negative numbers count from the end in Python. "
            "Here a negative slot means: not a token.",
            "none, the launch fails": "Nothing checks a batch. The program of that token returns, the others don't "
            "notice.",
        },
        right="Padding of real batches works like this: it has slot −1 and costs nothing but an idle program.",
    )


def section_4(batch: Any, borders: Any, sizes: Any, read: Any) -> None:
    """A prediction of section 4."""
    total = batch.num_tokens
    exact = [-(-(end - start) // sizes["BLOCK_Q"]) for start, end in pairwise(borders)]
    predict(
        f"{total} tokens of {len(exact)} requests, {sizes['BLOCK_Q']} tokens a program, {read.grid[1]} KV heads. The "
        f"grid?",
        str(tuple(read.grid)),
        wrong={
            f"({len(exact)}, {facts.HEADS})": f"One program for each request and head? Requests are cut into pieces "
            f"of {sizes['BLOCK_Q']} tokens, and {sizes['G']} heads share a program.",
            f"({sum(exact)}, {read.grid[1]})": f"{' + '.join(map(str, exact))} would be exact. The host does not "
            f"look into the lengths, which are on the GPU; one spare a request is cheaper than waiting for them.",
        },
        right=f"{total} // {sizes['BLOCK_Q']} + {len(exact)}: an upper bound. Who has nothing to do leaves early.",
        hint=f"The borders are {borders}. Count the pieces of each request, then think of those that leave at once.",
    )


def section_7(program: Any, decode: Any, width: Any, tiles: Any) -> None:
    """A prediction of section 7."""
    blocks = " and ".join(map(str, facts.cells(program.tiles[1].keys)))
    last = decode.seq_lens[0] - width
    predict(
        "Which blocks does tile 2 read, and how many slots of them?",
        f"blocks {blocks}, {last} slots",
        wrong={
            f"blocks 3 and 4, {last} slots": "Block 4 lies next in memory, and it is B's. The table says which block "
            "is next in the sequence.",
            f"blocks {blocks}, {width} slots": f"A tile is always as wide, but not always full. From key "
            f"{decode.seq_lens[0]} on it is masked.",
        },
        right=f"{tiles[1]}: neighbours in the sequence, strangers in memory.",
        hint="Read A's row from left to right, two blocks a tile.",
    )


def section_9(carried: Any) -> None:
    """A prediction of section 9."""
    before, after = carried[-2], carried[-1]
    predict(
        f"In the last tile the max jumps from {before[2]:.3f} to {after[2]:.3f}. What happens to all that was summed?",
        f"it is multiplied by {after[3]:.4f}",
        wrong={
            "it is thrown away": "Only the largest counts? No: the old weights get smaller, they are not lost.",
            "it is computed again": "The old max was too small, but one factor repairs the sum and the output.",
        },
        right=f"e^({before[2]:.3f} − {after[2]:.3f}) = {after[3]:.4f}. So one pass over the keys is enough, and no "
        f"row of scores is stored.",
    )


def section_12(reads: Any) -> None:
    """A prediction of section 12."""
    predict(
        "Softmax has an e in it. Does the compiled read kernel contain e^x?",
        f"no, 2^x: {ptx.found(reads, 'ex2.approx')} times",
        wrong={
            "yes, as the formula says": "One multiplication by log2 e turns e^x into 2^x, and 2^x is what the chip "
            "has an instruction for.",
            "no, a table of values": "Not at this level. A hardware unit approximates 2^x.",
        },
        right="`ex2.approx`. And *approx* is one more place where devices differ.",
    )


def check_yourself(one: Any) -> None:
    """The closing questions."""
    alone = facts.launch_of(one, 9, "paged_decode_segments_kernel")
    working, keys = (
        sum(1 for part in facts.programs_of(one, alone) if part.writes),
        one.filter(step=9, kind="prepare_inputs")[0].seq_lens[0],
    )
    checks(
        [
            (
                "The grid of the split form for A alone in step 9, and how many programs work?",
                f"{tuple(alone.grid)}, {working} work: event {alone.seq} of `kernels-one`.",
            ),
            (
                "A batch is padded with a request whose `seq_len` is 0 and whose slot is −1. Why is that harmless?",
                "Every key is masked, so nothing is read. A negative slot is no cell, so nothing is written.",
            ),
            (
                "How many bytes of K and V does A's decode read in step 9, in one layer?",
                f"{keys} keys × {facts.KV_BYTES:,} = {keys * facts.KV_BYTES:,} bytes, each cached number once.",
            ),
        ]
    )
