"""For notebook 08: what the programs of a traced step did, from the probe's records.

Owns: nothing.
Interface: launch_of, launches, programs_of, program_of, segments, count; cells, show_cells, numbers_moved; write_rows,
read_rows, searched; blocks_of, keys_by_block, owners_by_block; show_map, show_text.
Must not know: how a kernel works, or why these tokens share a step.
"""

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from minivllm.course.notebook.html import show
from minivllm.course.notebook.listings import PRE
from minivllm.trace import Trace

HEADS, KV_HEADS, HEAD_SIZE = 9, 3, 64  # of the default model
KV_BYTES = 2 * KV_HEADS * HEAD_SIZE * 4  # K and V of a token in one layer, in float32


def launch_of(trace: Trace, step: int, kernel: str) -> Any:
    """The first launch of `kernel` in a step whose programs were recorded. Raises LookupError where there is none."""
    for event in trace.filter(step=step, kind="kernel.launch"):
        if event.name == kernel and programs_of(trace, event):
            return event
    raise LookupError(f"no programs of {kernel} in step {step}")


def programs_of(trace: Trace, launch: Any) -> list[Any]:
    """The kernel.program events of a launch, in the order of the interpreter."""
    return [event for event in trace.children(launch) if event.kind == "kernel.program"]


def launches(trace: Trace, step: int) -> list[Any]:
    """The launches of a step whose programs were recorded, without the write."""
    found = trace.filter(step=step, kind="kernel.launch")
    return [one for one in found if one.name != "reshape_and_cache_kernel" and programs_of(trace, one)]


def program_of(trace: Trace, step: int, row: int) -> Any:
    """The first program of KV head 0 that read for a row of the batch, in the kernel for mixed lengths."""
    launch = launch_of(trace, step, "paged_attention_kernel")
    (batch,) = trace.filter(step=step, kind="prepare_inputs")
    found = [one for one in programs_of(trace, launch) if one.program[1] == 0 and one.writes]
    return next(one for one in found if searched(one, batch.query_start_loc)[1] == row)


def segments(trace: Trace, step: int, row: int) -> list[str]:
    """What each segment of a row read in the split form, for KV head 0."""
    launch = launch_of(trace, step, "paged_decode_segments_kernel")
    parts = [one for one in programs_of(trace, launch) if one.writes and one.program[:2] == [row, 0]]
    return [show_cells(part.reads["k_cache"]) for part in parts]


def count(launch: Any) -> int:
    """Programs of a launch."""
    return math.prod(launch.grid)


def cells(runs: list[list[int]]) -> dict[int, tuple[int, int]]:
    """Runs [block, first, last, head] of a cache as block -> (first, last cell), for the lowest KV head among them."""
    head = min((run[3] for run in runs), default=0)
    spans: dict[int, tuple[int, int]] = {}
    for block, first, last, of_head in runs:
        if of_head == head:
            low, high = spans.get(block, (first, last))
            spans[block] = min(low, first), max(high, last)
    return spans


def numbers_moved(runs: list[list[int]]) -> int:
    """How many numbers of K (or of V) lie in runs of a cache: one head of one cell has HEAD_SIZE."""
    return HEAD_SIZE * sum(last - first + 1 for _, first, last, _ in runs)


def show_cells(runs: list[list[int]]) -> str:
    """`1[0-15] 3[0-8]`: cells 0 to 15 of block 1, then 0 to 8 of block 3."""
    spans = [(block, str(low) if low == high else f"{low}–{high}") for block, (low, high) in cells(runs).items()]
    return " ".join(f"{block}[{span}]" for block, span in spans)


def write_rows(trace: Trace, step: int, names: str, tokens: list[int]) -> list[dict[str, Any]]:
    """What programs of the write kernel did, one line for each flat token. names: of the requests, row by row."""
    launch = launch_of(trace, step, "reshape_and_cache_kernel")
    (batch,) = trace.filter(step=step, kind="prepare_inputs")
    programs = programs_of(trace, launch)
    lines = []
    for token in tokens:
        (program,) = [p for p in programs if p.program[0] == token]
        lines.append(
            {
                "program": token,
                "token of": names[owner_of(batch.query_start_loc, token)],
                "position": batch.positions[token],
                "slot": batch.slot_mapping[token],
                "writes block[cell]": show_cells(program.writes["k_cache"]),
                "numbers of K": numbers_moved(program.writes["k_cache"]),
                "numbers of V": numbers_moved(program.writes["v_cache"]),
            }
        )
    return lines


def read_rows(trace: Trace, step: int, names: str) -> list[dict[str, Any]]:
    """What the programs of KV head 0 of the read kernel did, one line for each block of tokens."""
    launch = launch_of(trace, step, "paged_attention_kernel")
    (batch,) = trace.filter(step=step, kind="prepare_inputs")
    lines = []
    for program in programs_of(trace, launch):
        if program.program[1]:
            continue
        request = searched(program, batch.query_start_loc)[1]
        tokens = sorted({run[0] for run in program.writes.get("out", [])})
        lines.append(
            {
                "program": program.program[0],
                "request": names[request],
                "flat tokens": f"{tokens[0]}–{tokens[-1]}" if tokens else "none",
                "positions": f"{batch.positions[tokens[0]]}–{batch.positions[tokens[-1]]}" if tokens else "–",
                "reads block[cells]": show_cells(program.reads.get("k_cache", [])) or "leaves at once",
                "keys": numbers_moved(program.reads.get("k_cache", [])) // HEAD_SIZE,
            }
        )
    return lines


def blocks_of(lines: list[dict[str, Any]]) -> list[int]:
    """The blocks that occur in read_rows, in order."""
    return sorted({block for line in lines for block in _by_block(line)})


def keys_by_block(lines: list[dict[str, Any]]) -> list[list[int | None]]:
    """read_rows as a square: for each program the keys that it read from each of blocks_of."""
    return [[_by_block(line).get(block) for block in blocks_of(lines)] for line in lines]


def owners_by_block(lines: list[dict[str, Any]]) -> list[list[str | None]]:
    """Whose each cell of keys_by_block is; None for an empty one."""
    return [
        [line["request"] if keys else None for keys in row]
        for line, row in zip(lines, keys_by_block(lines), strict=True)
    ]


def _by_block(line: dict[str, Any]) -> dict[int, int]:
    spans = re.findall(r"(\d+)\[(\d+)(?:–(\d+))?\]", line["reads block[cells]"])
    return {int(block): int(last or first) - int(first) + 1 for block, first, last in spans}


def owner_of(borders: list[int], token: int) -> int:
    """The row of a flat token: the last border at or before it."""
    return max(row for row, border in enumerate(borders[:-1]) if border <= token)


def searched(program: Any, borders: list[int]) -> tuple[list[int], int]:
    """The borders that a program of the read kernel looked at while it searched its request, and the request it found.

    After the search it reads that request's two borders; both are in the record of its loads.

    vLLM: v1/attention/ops/triton_attention_helpers.py::find_seq_idx
    """
    looked = [run[0] for run in program.reads["query_start_loc"]]
    return looked[:-2], looked[-2]


def show_map(trace: Trace, launch: Any) -> None:
    """The map of a launch, as `minivllm kernels show` prints it."""
    from minivllm_kernels.kernel_map import render_map

    programs = [{"program": p.program, "reads": p.reads, "writes": p.writes} for p in programs_of(trace, launch)]
    show_text(render_map({"name": launch.name, "grid": launch.grid}, programs).splitlines())


def show_text(lines: Iterable[str]) -> None:
    """Lines in one width of letters."""
    text = "\n".join(lines)
    show(f'<pre style="{PRE}">{escape(text, quote=False)}</pre>', text)
