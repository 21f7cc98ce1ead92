"""For notebook 13: attention over plain tensors and over the cache, with the bytes that its programs ask for counted.

Owns: nothing.
Interface: prompt, random_heads; flash, serving, measured, expected, expected_flash; blocks_of_queries, decode_bytes;
side_by_side, megabytes.
Must not know: how a kernel works.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minivllm.lessons.facts_07 import prompt_tensors
from minivllm.lessons.facts_08 import HEAD_SIZE, HEADS, KV_BYTES, KV_HEADS, launch_of, numbers_moved, programs_of
from minivllm.lessons.facts_08_run import can_run
from minivllm.trace import Trace
from minivllm_kernels.flash_attention.traffic import Shapes, tiled

BLOCK_M = 16  # rows of a program, of vLLM's sizes in kernels/tuning.py
STEPS = ("scores =", "new_max =", "weights =", "correction =", "row_sum =", "acc =", "row_max =")


def prompt(trace: Trace) -> tuple[Any, Any, Any]:
    """q, k and v of the watched layer in step 1, as torch tensors [9, tokens, 64]: each KV head is repeated for the
    query heads that share it.
    """
    import torch

    q, k, v = map(torch.from_numpy, prompt_tensors(trace))
    return q, k.repeat_interleave(HEADS // KV_HEADS, 0), v.repeat_interleave(HEADS // KV_HEADS, 0)


def random_heads(num_tokens: int) -> tuple[Any, Any, Any]:
    """q, k and v [9, tokens, 64] of random numbers: traffic depends on shapes alone."""
    import torch

    randomness = torch.Generator().manual_seed(0)
    return tuple(torch.randn(HEADS, num_tokens, HEAD_SIZE, generator=randomness) for _ in range(3))


def flash(q: Any, k: Any, v: Any, block_m: int, tile: int) -> Callable[..., Any]:
    """triton_forward.py on these tensors, with block_m query tokens a program and `tile` keys a tile; call it to run.
    """

    def run(launch: Callable[..., None]) -> Any:
        from minivllm_kernels.flash_attention.triton_forward import flash_attention
        from minivllm_kernels.tuning import ReadTuning

        tuning = ReadTuning(tile=tile, num_warps=4, num_stages=1, block_m=block_m)
        return flash_attention(q, k, v, tuning=tuning, launch=launch)

    return run


def serving(num_tokens: int, block_size: int = 16) -> Callable[..., Any]:
    """The serving kernel on one prompt of num_tokens tokens, with vLLM's tile sizes; call it to run.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """

    def run(launch: Callable[..., None]) -> Any:
        import torch

        from minivllm_kernels.paged_attention import paged_attention

        num_blocks = -(-num_tokens // block_size)
        q = torch.zeros(num_tokens, HEADS, HEAD_SIZE)
        caches = torch.zeros(num_blocks + 1, 2, block_size, KV_HEADS, HEAD_SIZE).unbind(1)
        starts, lens = torch.tensor([0, num_tokens], dtype=torch.int32), torch.tensor([num_tokens], dtype=torch.int32)
        block_table = torch.arange(1, num_blocks + 1, dtype=torch.int32)[None]
        return paged_attention(q, *caches, starts, lens, block_table, HEAD_SIZE**-0.5, launch=launch)

    return run


def measured(run: Callable[..., Any]) -> dict[str, int] | None:
    """Bytes that all programs asked for, by tensor, counted at the interpreter's loads and stores; None without Triton.
    """
    if not can_run():
        return None
    from minivllm_kernels.probe import watch_programs

    found: dict[str, int] = {}

    def watch(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        for program in watch_programs(kernel, grid, arguments):
            for access in program.accesses:
                size = access.num_elements * arguments[access.tensor].element_size()
                found[access.tensor] = found.get(access.tensor, 0) + size

    run(launch=watch)
    return found


def blocks_of_queries(num_tokens: int) -> tuple[int, int]:
    """Query tokens a program of the serving kernel has, with vLLM's tile sizes, and how many such blocks a prompt has.

    vLLM: v1/attention/ops/triton_unified_attention.py::unified_attention
    """
    block_q = BLOCK_M // (HEADS // KV_HEADS)
    return block_q, -(-num_tokens // block_q)


def expected(num_tokens: int) -> dict[str, int]:
    """What `serving` should ask for, by its loops: where Triton is missing."""
    block_q, blocks = blocks_of_queries(num_tokens)
    keys = sum(min((block + 1) * block_q, num_tokens) for block in range(blocks))
    return dict.fromkeys(("k_cache", "v_cache"), keys * KV_BYTES // 2)


def expected_flash(num_tokens: int, tile: int) -> dict[str, int]:
    """The same for `flash`, with blocks of queries as large as the tiles."""
    shapes = Shapes(num_tokens)
    keys_and_values = tiled(shapes, tile, tile) - 2 * shapes.query_bytes
    half = dict.fromkeys(("k", "v"), keys_and_values // 2)
    return {"q": shapes.query_bytes, **half, "out": shapes.query_bytes}


def side_by_side(*names: str) -> list[tuple[str, ...]]:
    """The lines that begin with STEPS in files of kernels/flash_attention/, in the order of the first file: the last
    such line of each file, since a loop's line comes after the one that sets a start.
    """
    import minivllm_kernels

    folder = Path(minivllm_kernels.__file__ or next(iter(minivllm_kernels.__path__))) / "flash_attention"
    columns = []
    for name in names:
        lines = [line.split("  #")[0].strip() for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        columns.append([next(line for line in reversed(lines) if line.startswith(step)) for step in STEPS])
    return [tuple(f"`{re.sub(' +', ' ', line)}`" for line in row) for row in zip(*columns, strict=True)]


def megabytes(number: float) -> str:
    """Bytes up to 9,999, then kB and MB in powers of ten, with three digits that count."""
    for size, unit in ((1e6, "MB"), (1e3, "kB")):
        if number >= max(size, 1e4):
            value = number / size
            return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"
    return f"{number:,.0f} bytes"


def decode_bytes(trace: Trace, step: int) -> tuple[int, int, int]:
    """Of the split form's launch in a step: bytes of K and of V that its programs loaded, and bytes of K and V that the
    step's requests have in the cache, in one layer.
    """
    programs = programs_of(trace, launch_of(trace, step, "paged_decode_segments_kernel"))
    (batch,) = trace.filter(step=step, kind="prepare_inputs")
    loaded = [4 * sum(numbers_moved(one.reads.get(name, [])) for one in programs) for name in ("k_cache", "v_cache")]
    return loaded[0], loaded[1], KV_BYTES * sum(batch.seq_lens)
