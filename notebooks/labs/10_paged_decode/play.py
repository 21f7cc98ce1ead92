"""Small launches to play with in the notebook of lab 10. Import it before anything imports triton.

Owns: nothing. Interface: softmax_rows, reads.
Must not know: what is graded.
"""

import os
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # kernels as Python

import torch

from minivllm.course.grader.observe_kernels import interpreted
from minivllm.course.grader.words import tell_list
from minivllm.lessons.lab10.observe import make_decode


def softmax_rows(scores: list[float], tile: int) -> list[dict[str, Any]]:
    """What an online softmax carries after each tile of scores, for `minivllm.course.notebook.table`."""
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
    """
    from minivllm.course.grader.play import parts_of_file
    from minivllm_kernels import launch, paged_decode
    from minivllm_kernels.kernel_map import render_map
    from minivllm_kernels.probe import describe_launch, watch_programs
    from minivllm_kernels.tuning import ReadTuning

    parts = {} if starter is None else parts_of_file(Path(starter))
    asked = {"lens": lens, "heads": list(heads), "head_size": 8, "block_size": block_size, "dtype": "float32"}
    case = make_decode(asked | {"kind": "random", "seed": 0})
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
    with interpreted():
        if segments is None:
            paged_decode.paged_decode(*arguments, torch.empty_like(case["q"]), **options)
        else:
            paged_decode.paged_decode_split(*arguments, torch.empty_like(case["q"]), segments, **options)
    return "\n".join(maps)
