"""Observers of lab 10: online softmax in torch, and a student's decode kernels in Triton's interpreter.

Owns: how a case becomes scores, or a cache with tables, and what is noted of a launch.
Interface: decode, decode_split, programs, loads, softmax_tiles; make_decode, make_scores.
Must not know: what is expected. Margins, and how kernels are interpreted: observe_kernels.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from minivllm.course.grader.child import Parts
from minivllm.course.grader.observe_kernels import UNTOUCHED, Kernel, Margins, Seen, interpreted

FAR = 600.0
NEAR = 200.0


# ---------------------------------------------------------------------- online softmax in torch


def make_scores(asked: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores float32[G, n] and values float32[n, D] of a case: kind, n, hidden (places that may not be seen), seed."""
    randomness = torch.Generator().manual_seed(asked["seed"])
    scores = torch.randn(2, asked["n"], generator=randomness) + _targets(asked["kind"], asked["n"])
    scores[:, asked["hidden"]] = -torch.inf
    return scores, torch.randn(asked["n"], 3, generator=randomness)


def softmax_tiles(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """[m, l, acc] after each tile, with `online_softmax_step` called tile after tile.

    asked["lead"]: with a dimension of 1 before all others.
    """
    from minivllm_kernels.reference import online_softmax_step

    step = parts.get("online_softmax_step", online_softmax_step)
    torch.set_num_threads(1)  # a forked process must not use the threads of its parent
    scores, values = make_scores(asked)
    state = (torch.full((2,), -torch.inf), torch.zeros(2), torch.zeros(2, 3))
    if asked["lead"]:
        scores, values, *state = (part[None] for part in (scores, values, *state))
    for first in range(0, asked["n"], asked["tile"]):
        places = slice(first, first + asked["tile"])
        state = step(*state, scores[..., places].clone(), values[..., places, :].clone())
        seen.append([torch.as_tensor(part).tolist() for part in state])
    return seen


def _targets(kind: str, n: int) -> torch.Tensor:
    """What the n scores are near to."""
    if kind in ("falling", "rising"):
        falling = torch.linspace(FAR, -8.0, n)
        return falling if kind == "falling" else falling.flip(0)
    return torch.full((n,), {"low": -NEAR, "high": NEAR}.get(kind, 0.0))


# ---------------------------------------------------------------------- decode


@contextmanager
def undefined_where_masked() -> Iterator[None]:
    """Around a launch: a masked load without `other` gives NaN where the mask is False.

    Triton says that such numbers are undefined. Its interpreter gives 0, which hides the mistake. Integers stay 0: an
    address made of anything else would end the process.
    """
    from triton.runtime.interpreter import TensorHandle
    from triton.runtime.interpreter import interpreter_builder as builder

    load = builder.create_masked_load

    def undefined(pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        dtype = pointers.get_element_ty()
        nan = {"fp32": np.float32(np.nan), "bf16": np.uint16(0x7FC0)}.get(str(dtype))
        if other is None and nan is not None:
            other = TensorHandle(np.full(pointers.data.shape, nan), dtype)
        return load(pointers, mask, other, *rest)

    builder.create_masked_load = undefined
    try:
        yield
    finally:
        vars(builder).pop("create_masked_load", None)  # the class's own again


def patch_of(parts: Parts, **tensors: torch.Tensor) -> Callable[..., None]:
    """A launch that takes a student's kernel, and tensors of ours, in place of those of the same name."""
    from minivllm_kernels.launch import launch

    def launch_part(kernel: Kernel, grid: tuple[int, ...], **arguments: Any) -> None:
        replaced = {name: tensor for name, tensor in tensors.items() if name in arguments}
        launch(parts.get(kernel.__name__, kernel), grid, **arguments | replaced)

    return launch_part


def make_decode(asked: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a decode case: q [S, Hq, D], kv_cache [blocks, 2, B, Hkv, D], block_table, seq_lens, scale.

    asked: lens, heads [Hq, Hkv], head_size, block_size, dtype, kind (of the scores), seed. The tables are shuffled; all
    slots that no key has hold NaN, and block 0, which fills the tables up, has no key. How the tensors lie in memory is
    not said here.
    """
    randomness = torch.Generator().manual_seed(asked["seed"])
    (query_heads, kv_heads), size, block_size = asked["heads"], asked["head_size"], asked["block_size"]
    dtype = getattr(torch, asked["dtype"])
    scale = size**-0.5
    counts = [-(-length // block_size) for length in asked["lens"]]
    order = (torch.randperm(sum(counts), generator=randomness) + 1).tolist()
    q = torch.randn(len(counts), query_heads, size, generator=randomness)
    if asked["kind"] != "random":
        q[..., 0], q[..., 1:] = 1.0, 0.0
    cache = torch.full((sum(counts) + 2, 2, block_size, kv_heads, size), torch.nan)
    table = torch.zeros(len(counts), max([1, *counts]), dtype=torch.int32)
    for row, (count, length) in enumerate(zip(counts, asked["lens"], strict=True)):
        blocks = [order.pop() for _ in range(count)]
        table[row, :count] = torch.tensor(blocks, dtype=torch.int32)
        keys, values = torch.randn(2, length, kv_heads, size, generator=randomness)
        if asked["kind"] != "random":
            keys[..., 0] = (_targets(asked["kind"], length)[:, None] + keys[..., 0]) / scale
        for place in range(length):
            cache[blocks[place // block_size], 0, place % block_size] = keys[place]
            cache[blocks[place // block_size], 1, place % block_size] = values[place]
    lens = torch.tensor(asked["lens"], dtype=torch.int32)
    return {"q": q.to(dtype), "kv_cache": cache.to(dtype), "block_table": table, "seq_lens": lens, "scale": scale}


def _in_margins(asked: dict[str, Any], margins: Margins) -> tuple[Any, ...]:
    """The arguments of paged_decode, each with margins."""
    torch.set_num_threads(1)
    case = make_decode(asked)
    q, layout = case["q"], asked.get("layout", "apart")
    if asked.get("wide", False):  # q is what stands first in wider rows, as where q, k and v come from one product
        rows = torch.full((len(q), q[0].numel() + 2 * asked["head_size"]), torch.nan, dtype=q.dtype)
        rows[:, : q[0].numel()] = q.flatten(1)
        q = margins.put("q", rows)[:, : q[0].numel()].unflatten(1, q.shape[1:])
    else:
        q = margins.put("q", q)
    if layout == "side by side":
        caches = margins.put("the cache", case["kv_cache"]).unbind(1)
    else:
        caches = tuple(case["kv_cache"][:, i] for i in range(2))
        if layout == "heads first":
            caches = tuple(cache.transpose(1, 2) for cache in caches)
        caches = tuple(margins.put(name, cache) for name, cache in zip(("k_cache", "v_cache"), caches, strict=True))
        if layout == "heads first":
            caches = tuple(cache.transpose(1, 2) for cache in caches)
    integers, bits = UNTOUCHED[q.dtype]
    untouched = torch.full(q.shape, bits, dtype=integers).view(q.dtype)
    out = margins.put("out", untouched)
    table, lens = margins.put("block_table", case["block_table"]), margins.put("seq_lens", case["seq_lens"])
    return q, *caches, table, lens, case["scale"], out


def _noted(out: torch.Tensor, margins: Margins) -> dict[str, Any]:
    integers, bits = UNTOUCHED[out.dtype]
    unwritten = (out.view(integers) == bits).any(dim=-1)
    return {"out": out.float().tolist(), "unwritten": unwritten.tolist(), "outside": margins.spilled()}


def decode(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What `paged_decode` writes: out, rows and heads that it did not write, numbers that it wrote beside tensors."""
    from minivllm_kernels.paged_decode import paged_decode
    from minivllm_kernels.tuning import ReadTuning

    margins = Margins()
    arguments = _in_margins(asked, margins)
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    with interpreted(), undefined_where_masked():
        paged_decode(*arguments, tuning=tuning, launch=patch_of(parts))
    return _noted(arguments[-1], margins)


def decode_split(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """The same of `paged_decode_split`, whose segments have margins too; and which segments were written, [S, Hq, n].

    asked["only"]: a kernel; in place of the other one the engine's own runs.
    """
    from minivllm_kernels.paged_decode import paged_decode_split
    from minivllm_kernels.tuning import ReadTuning

    margins = Margins()
    arguments = _in_margins(asked, margins)
    shape = (*arguments[0].shape[:2], asked["segments"])
    segments = {
        "segment_acc": margins.put("segment_acc", torch.full((*shape, asked["head_size"]), torch.nan)),
        "segment_max": margins.put("segment_max", torch.full(shape, torch.nan)),
        "segment_sum": margins.put("segment_sum", torch.full(shape, torch.nan)),
    }
    if "only" in asked:
        parts = {asked["only"]: parts[asked["only"]]}
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    with interpreted(), undefined_where_masked():
        paged_decode_split(*arguments, asked["segments"], tuning=tuning, launch=patch_of(parts, **segments))
    return _noted(arguments[-1], margins) | {"segments": (~segments["segment_sum"].isnan()).tolist()}


def programs(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """What the programs of `paged_decode` did, or with `asked["split"]` those of the segments.

    Each is {index, keys: runs of the K cache that it read, outside: whether it left its tensors, steps: the maxima of
    its rows after each call of the student's softmax_step, in natural units}.
    """
    from minivllm_kernels import paged_decode
    from minivllm_kernels.tile_ops import LOG2E
    from minivllm_kernels.tuning import ReadTuning

    name = "paged_decode_segments_kernel" if asked["split"] else "paged_decode_kernel"
    watch = _lenient_watch(parts.get(name, getattr(paged_decode, name)))
    arguments, launch = _in_margins(asked, Margins()), patch_of(parts)
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    steps: list[tuple[int, list[float]]] = []

    def note(result: Any) -> None:
        maxima = np.ravel(result[0].handle.data) / LOG2E.value
        steps.append((len(watch.programs) - 1, maxima.tolist()))

    def launch_watched(kernel: Kernel, grid: tuple[int, ...], **given: Any) -> None:
        if kernel.__name__ == name:
            launch(kernel, grid, **given)

    watch.start()
    try:
        with interpreted(), _noting_steps(parts, note):
            if asked["split"]:
                paged_decode.paged_decode_split(*arguments, asked["segments"], tuning=tuning, launch=launch_watched)
            else:
                paged_decode.paged_decode(*arguments, tuning=tuning, launch=launch_watched)
    finally:
        watch.stop()
    return [
        {
            "index": list(program.index),
            "keys": program.as_dict()["reads"].get("k_cache", []),
            "outside": number in watch.outside,
            "steps": [maxima for place, maxima in steps if place == number],
        }
        for number, program in enumerate(watch.programs)
    ]


def _lenient_watch(kernel: Kernel) -> Any:
    """A ProgramWatch that lets a program go on outside of its tensors, in the margins, and notes its number.

    Integers don't count: to read behind a row of the table harms nobody, as long as no key is loaded from there.
    """
    from minivllm_kernels.probe import ProbeError, ProgramWatch

    class LenientWatch(ProgramWatch):
        def __init__(self) -> None:
            super().__init__(kernel)
            self.outside: set[int] = set()

        def _note_access(self, store: bool, pointers: Any, mask: Any) -> None:
            try:
                super()._note_access(store, pointers, mask)
            except ProbeError:
                if not str(pointers.get_element_ty()).startswith("int"):
                    self.outside.add(len(self.programs) - 1)

    return LenientWatch()


@contextmanager
def _noting_steps(parts: Parts, note: Callable[[Any], None]) -> Iterator[None]:
    """Around a launch: what the student's softmax_step gives is noted, where the student's walk calls it."""
    walk = parts.get("attend_tiles")
    names = walk.fn.__globals__ if walk is not None else {}
    step = names.get("softmax_step")

    def noting(*inputs: Any, **named: Any) -> Any:
        result = step(*inputs, **named)
        note(result)
        return result

    if step is not None:
        names["softmax_step"] = noting
    try:
        yield
    finally:
        if step is not None:
            names["softmax_step"] = step


def loads(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, int]:
    """How many numbers of K and of V the decode kernel loads, masked ones not counted."""
    from minivllm_kernels.paged_decode import paged_decode, paged_decode_kernel
    from minivllm_kernels.tuning import ReadTuning

    watch = _lenient_watch(parts.get("paged_decode_kernel", paged_decode_kernel))
    arguments = _in_margins(asked, Margins())
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    watch.start()
    try:
        with interpreted():
            paged_decode(*arguments, tuning=tuning, launch=patch_of(parts))
    finally:
        watch.stop()
    return {name: sum(p.bytes_moved(name, 1) for p in watch.programs) for name in ("k_cache", "v_cache")}
