"""Small launches to play with in the notebooks of the kernel labs. Import it before anything imports triton.

Owns: nothing. Interface: softmax_rows, reads; writes, written_numbers, strides_of.
Must not know: what is graded.
"""

import os
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # kernels as Python

import torch

from minivllm.labs import observe_decode, observe_kernels
from minivllm.labs.words import tell_list


def softmax_rows(scores: list[float], tile: int) -> list[dict[str, Any]]:
    """What an online softmax carries after each tile of scores, for `minivllm.notebook.table`.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.reference import online_softmax_step

    state = (torch.full((1,), -torch.inf), torch.zeros(1), torch.zeros(1, 1))
    rows = []
    for first in range(0, len(scores), tile):
        part = torch.tensor([scores[first : first + tile]])
        old, state = state, online_softmax_step(*state, part, torch.ones(part.shape[1], 1))
        factor = torch.exp(old[0] - state[0]).item()
        rows.append(
            {
                "tile": first // tile,
                "scores": tell_list(scores[first : first + tile]),
                "m": f"{state[0].item():.2f}",
                "factor for what was before": f"{factor:.3f}",
                "l": f"{state[1].item():.3f}",
            }
        )
    return rows


def reads(
    lens: list[int],
    *,
    heads: tuple[int, int] = (2, 1),
    block_size: int = 4,
    tile: int = 8,
    segments: int | None = None,
    starter: str | Path | None = None,
) -> str:
    """Which keys every program of a decode launch reads, found from the addresses that it touches.

    segments: None for one pass. starter: a student's file; None: the engine's own kernels.

    vLLM: none, vLLM has no labs
    """
    from minivllm.labs.play import parts_of_file
    from minivllm_kernels import launch, paged_decode
    from minivllm_kernels.kernel_map import render_map
    from minivllm_kernels.probe import describe_launch, watch_programs
    from minivllm_kernels.tuning import ReadTuning

    parts = {} if starter is None else parts_of_file(Path(starter))
    asked = {"lens": lens, "heads": list(heads), "head_size": 8, "block_size": block_size, "dtype": "float32"}
    case = observe_decode.make_decode(asked | {"kind": "random", "seed": 0})
    maps = [f"block tables: {', '.join(tell_list(row) for row in case['block_table'].tolist())}"]

    def watched(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        if kernel.__name__ == "reduce_segments_kernel":
            return launch.launch(kernel, grid, **arguments)
        part = parts.get(kernel.__name__, kernel)
        programs = watch_programs(part, grid, arguments)
        maps.append(render_map(describe_launch(part, grid, arguments), [program.as_dict() for program in programs]))

    k_cache, v_cache = case["kv_cache"].unbind(1)
    arguments = (case["q"], k_cache, v_cache, case["block_table"], case["seq_lens"], case["scale"])
    options = {"tuning": ReadTuning(tile=tile, num_warps=4, num_stages=1), "launch": watched}
    with observe_kernels.interpreted():
        if segments is None:
            paged_decode.paged_decode(*arguments, torch.empty_like(case["q"]), **options)
        else:
            paged_decode.paged_decode_split(*arguments, torch.empty_like(case["q"]), segments, **options)
    return "\n".join(maps)


# ---------------------------------------------------------------------- writing to slots


def writes(slots: list[int], *, block_size: int = 4, starter: str | Path | None = None) -> str:
    """Which slot every program of a write stores to, found from the addresses that it touches.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.kernel_map import render_map
    from minivllm_kernels.probe import describe_launch

    launches = _watched_write(slots, 1, 8, block_size, 64, starter)
    return "\n".join(
        render_map(describe_launch(kernel, grid, arguments), [program.as_dict() for program in programs])
        for kernel, grid, arguments, programs in launches
    )


def written_numbers(slots: list[int], *, heads: int, head_size: int, tile: int) -> list[dict[str, Any]]:
    """How many numbers of K each program stores, for `minivllm.notebook.table`.

    vLLM: none, vLLM has no labs
    """
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
    """The strides of the K cache as a slice of the engine's cache, for `minivllm.notebook.table`.

    vLLM: none, vLLM has no labs
    """
    k_cache = torch.empty(blocks, 2, block_size, heads, head_size)[:, 0]
    names = ("from block to block", "from token to token", "from head to head", "from number to number")
    return [{"": name, "elements": stride} for name, stride in zip(names, k_cache.stride(), strict=True)]


def _watched_write(
    slots: list[int], heads: int, head_size: int, block_size: int, tile: int, starter: str | Path | None
) -> list[tuple[Any, tuple[int, ...], dict[str, Any], list[Any]]]:
    """Every launch of a write: kernel, grid, arguments, and what its programs did."""
    from minivllm.labs.play import parts_of_file
    from minivllm_kernels.probe import watch_programs
    from minivllm_kernels.reshape_and_cache import reshape_and_cache
    from minivllm_kernels.tuning import WriteTuning

    parts = {} if starter is None else parts_of_file(Path(starter))
    key, value = torch.randn(2, len(slots), heads, head_size)
    caches = torch.zeros(max(slots) // block_size + 2, 2, block_size, heads, head_size).unbind(1)
    launches = []

    def watched(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        launches.append((kernel, grid, arguments, watch_programs(kernel, grid, arguments)))

    with observe_kernels.interpreted():
        parts.get("reshape_and_cache", reshape_and_cache)(
            key, value, *caches, torch.tensor(slots), tuning=WriteTuning(tile, 4), launch=watched
        )
    return launches
