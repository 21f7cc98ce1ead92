"""Small launches to play with in the notebook of lab 09. Import it before anything imports triton.

Owns: nothing. Interface: writes, written_numbers, strides_of.
Must not know: what is graded.
"""

import os
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # kernels as Python

import torch

from minivllm.course.grader.observe_kernels import interpreted


def writes(slots: list[int], *, block_size: int = 4, starter: str | Path | None = None) -> str:
    """Which slot every program of a write stores to, found from the addresses that it touches."""
    from minivllm_kernels.kernel_map import render_map
    from minivllm_kernels.probe import describe_launch

    launches = _watched_write(slots, 1, 8, block_size, 64, starter)
    return "\n".join(
        render_map(describe_launch(kernel, grid, arguments), [program.as_dict() for program in programs])
        for kernel, grid, arguments, programs in launches
    )


def written_numbers(slots: list[int], *, heads: int, head_size: int, tile: int) -> list[dict[str, Any]]:
    """How many numbers of K each program stores, for `minivllm.course.notebook.table`."""
    (_, _, _, programs), *_ = _watched_write(slots, heads, head_size, 4, tile, None)
    return [
        {
            "program": f"({program.index[0]}, {program.index[1]})",
            "slot": slots[program.index[0]],
            "numbers": program.bytes_moved("k_cache", 1, store=True),
        }
        for program in programs
    ]


def strides_of(blocks: int, block_size: int, heads: int, head_size: int) -> list[dict[str, Any]]:
    """The strides of the K cache as a slice of the engine's cache, for `minivllm.course.notebook.table`."""
    k_cache = torch.empty(blocks, 2, block_size, heads, head_size)[:, 0]
    names = ("from block to block", "from token to token", "from head to head", "from number to number")
    return [{"": name, "elements": stride} for name, stride in zip(names, k_cache.stride(), strict=True)]


def _watched_write(
    slots: list[int], heads: int, head_size: int, block_size: int, tile: int, starter: str | Path | None
) -> list[tuple[Any, tuple[int, ...], dict[str, Any], list[Any]]]:
    """Every launch of a write: kernel, grid, arguments, and what its programs did."""
    from minivllm.course.grader.play import parts_of_file
    from minivllm_kernels.probe import watch_programs
    from minivllm_kernels.reshape_and_cache import reshape_and_cache
    from minivllm_kernels.tuning import WriteTuning

    parts = {} if starter is None else parts_of_file(Path(starter))
    key, value = torch.randn(2, len(slots), heads, head_size)
    caches = torch.zeros(max(slots) // block_size + 2, 2, block_size, heads, head_size).unbind(1)
    launches = []

    def watched(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        launches.append((kernel, grid, arguments, watch_programs(kernel, grid, arguments)))

    with interpreted():
        parts.get("reshape_and_cache", reshape_and_cache)(
            key, value, *caches, torch.tensor(slots), tuning=WriteTuning(tile, 4), launch=watched
        )
    return launches
