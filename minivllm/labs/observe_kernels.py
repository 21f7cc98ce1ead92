"""Observers of the kernel labs: a student's kernels in Triton's interpreter, on tensors with margins.

Owns: how a case becomes tensors, the margins around them, and what is noted of a launch.
Interface: decode, decode_split, loads, softmax_tiles, write; make_decode, make_scores, make_write, tokens_of, Margins,
interpreted, patch_of.
Must not know: what is expected.

Every tensor that a kernel gets lies inside a larger one. The margins hold 7.0, and unused slots hold NaN: who writes
beside a tensor is told so and ends no process, and who reads what does not exist gets NaN.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from minivllm.labs.child import Parts

Seen = list[Any]
Kernel = Any  # a function with @triton.jit

MARGIN = 2048  # elements on both sides
IN_MARGIN = 7.0
UNTOUCHED = {torch.float32: (torch.int32, 0x7FC12345), torch.bfloat16: (torch.int16, 0x7FD3)}  # a NaN of our own
FAR = 600.0
NEAR = 200.0


class Margins:
    """Tensors inside larger ones, and which of those was written to.

    vLLM: none, vLLM has no labs
    """

    def __init__(self) -> None:
        self.kept: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def put(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of `tensor` that lies in a larger one. Integers have margins of 0, a number that every table has."""
        in_margin = IN_MARGIN if tensor.is_floating_point() else 0
        whole = torch.full((tensor.numel() + 2 * MARGIN,), in_margin, dtype=tensor.dtype)
        inner = whole[MARGIN : MARGIN + tensor.numel()].view(tensor.shape)
        inner.copy_(tensor)
        self.kept.append((name, whole, whole.clone()))
        return inner

    def damaged(self) -> list[str]:
        """Names of the tensors beside which something was written."""
        found = []
        for name, whole, before in self.kept:
            sides = (slice(0, MARGIN), slice(whole.numel() - MARGIN, None))
            if not all(torch.equal(whole[side], before[side]) for side in sides):
                found.append(name)
        return found


@contextmanager
def interpreted() -> Iterator[None]:
    """Around a launch: an error inside a kernel is raised as it was, not as the interpreter wraps it; no warnings.

    vLLM: none, vLLM has no labs
    """
    from triton.runtime.errors import InterpreterError

    from minivllm_kernels import interpreter

    interpreter.speed_up()
    try:
        with np.errstate(all="ignore"):
            yield
    except InterpreterError as error:
        cause: BaseException = error
        while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


def patch_of(parts: Parts, **tensors: torch.Tensor) -> Callable[..., None]:
    """A launch that takes a student's kernel, and tensors of ours, in place of those of the same name.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.launch import launch

    def launch_part(kernel: Kernel, grid: tuple[int, ...], **arguments: Any) -> None:
        replaced = {name: tensor for name, tensor in tensors.items() if name in arguments}
        launch(parts.get(kernel.__name__, kernel), grid, **arguments | replaced)

    return launch_part


# ---------------------------------------------------------------------- online softmax in torch


def make_scores(asked: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores float32[G, n] and values float32[n, D] of a case: kind, n, hidden (places that may not be seen), seed.

    vLLM: none, vLLM has no labs
    """
    randomness = torch.Generator().manual_seed(asked["seed"])
    scores = torch.randn(2, asked["n"], generator=randomness) + _targets(asked["kind"], asked["n"])
    scores[:, asked["hidden"]] = -torch.inf
    return scores, torch.randn(asked["n"], 3, generator=randomness)


def softmax_tiles(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """[m, l, acc] after each tile, with `online_softmax_step` called tile after tile.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.reference import online_softmax_step

    step = parts.get("online_softmax_step", online_softmax_step)
    torch.set_num_threads(1)  # a forked process must not use the threads of its parent
    scores, values = make_scores(asked)
    state = (torch.full((2,), -torch.inf), torch.zeros(2), torch.zeros(2, 3))
    for first in range(0, asked["n"], asked["tile"]):
        places = slice(first, first + asked["tile"])
        state = step(*state, scores[:, places].clone(), values[places].clone())
        seen.append([torch.as_tensor(part).tolist() for part in state])
    return seen


def _targets(kind: str, n: int) -> torch.Tensor:
    """What the n scores are near to."""
    if kind in ("falling", "rising"):
        falling = torch.linspace(FAR, -8.0, n)
        return falling if kind == "falling" else falling.flip(0)
    return torch.full((n,), {"low": -NEAR, "high": NEAR}.get(kind, 0.0))


# ---------------------------------------------------------------------- decode


def make_decode(asked: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a decode case: q [S, Hq, D], kv_cache [blocks, 2, B, Hkv, D], block_table, seq_lens, scale.

    asked: lens, heads [Hq, Hkv], head_size, block_size, dtype, kind (of the scores), seed. The tables are shuffled; all
    slots that no key has hold NaN, and block 0, which fills the tables up, has no key.

    vLLM: none, vLLM has no labs
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
    q = margins.put("q", case["q"])
    if asked["interleaved"]:
        caches = margins.put("the cache", case["kv_cache"]).unbind(1)
    else:
        caches = tuple(margins.put(name, case["kv_cache"][:, i]) for i, name in enumerate(("k_cache", "v_cache")))
    integers, bits = UNTOUCHED[q.dtype]
    untouched = torch.full(q.shape, bits, dtype=integers).view(q.dtype)
    out = margins.put("out", untouched)
    table, lens = margins.put("block_table", case["block_table"]), margins.put("seq_lens", case["seq_lens"])
    return q, *caches, table, lens, case["scale"], out


def _noted(out: torch.Tensor, margins: Margins) -> dict[str, Any]:
    integers, bits = UNTOUCHED[out.dtype]
    unwritten = (out.view(integers) == bits).any(dim=-1)
    return {"out": out.float().tolist(), "unwritten": unwritten.tolist(), "outside": margins.damaged()}


def decode(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What `paged_decode` writes: out, rows and heads that it did not write, tensors beside which it wrote.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.paged_decode import paged_decode
    from minivllm_kernels.tuning import ReadTuning

    margins = Margins()
    arguments = _in_margins(asked, margins)
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    with interpreted():
        paged_decode(*arguments, tuning=tuning, launch=patch_of(parts))
    return _noted(arguments[-1], margins)


def decode_split(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """The same of `paged_decode_split`, whose segments have margins too.

    vLLM: none, vLLM has no labs
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
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    with interpreted():
        paged_decode_split(*arguments, asked["segments"], tuning=tuning, launch=patch_of(parts, **segments))
    return _noted(arguments[-1], margins)


def loads(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, int]:
    """How many numbers of K and of V the decode kernel loads, masked ones not counted.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.paged_decode import paged_decode, paged_decode_kernel
    from minivllm_kernels.probe import ProgramWatch
    from minivllm_kernels.tuning import ReadTuning

    watch = ProgramWatch(parts.get("paged_decode_kernel", paged_decode_kernel))
    arguments = _in_margins(asked, Margins())
    tuning = ReadTuning(tile=asked["tile"], num_warps=4, num_stages=1)
    watch.start()
    try:
        with interpreted():
            paged_decode(*arguments, tuning=tuning, launch=patch_of(parts))
    finally:
        watch.stop()
    return {name: sum(p.bytes_moved(name, 1) for p in watch.programs) for name in ("k_cache", "v_cache")}


# ---------------------------------------------------------------------- writing to slots


def make_write(asked: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a write: keys and values, each wider than `tokens_of` takes, slot_mapping, and an empty cache.

    asked: slots, rows (of key and value; there may be more than slots), heads, head_size, block_size, blocks, dtype,
    from ("apart", "qkv": slices of wide rows, "own": value with a stride of its own), seed.

    vLLM: none, vLLM has no labs
    """
    randomness = torch.Generator().manual_seed(asked["seed"])
    rows, shape = asked["rows"], (asked["heads"], asked["head_size"])
    numbers = shape[0] * shape[1]
    key_width, value_width = {"apart": (numbers, numbers), "qkv": (3 * numbers, 3 * numbers)}.get(
        asked["from"], (numbers + 8, 2 * numbers)
    )
    dtype = getattr(torch, asked["dtype"])
    keys = torch.randn(rows, key_width, generator=randomness).to(dtype)
    values = torch.randn(rows, value_width, generator=randomness).to(dtype)
    return {
        "keys": keys,
        "values": values,
        "slot_mapping": torch.tensor(asked["slots"], dtype=torch.int64),
        "kv_cache": torch.zeros(asked["blocks"], 2, asked["block_size"], *shape, dtype=dtype),
    }


def tokens_of(asked: dict[str, Any], keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """key and value [rows, H, D], as they lie in what `make_write` gives.

    vLLM: none, vLLM has no labs
    """
    shape = (asked["heads"], asked["head_size"])
    numbers = shape[0] * shape[1]
    if asked["from"] == "qkv":
        return keys[:, numbers : 2 * numbers].unflatten(1, shape), keys[:, 2 * numbers :].unflatten(1, shape)
    return keys[:, :numbers].unflatten(1, shape), values[:, :numbers].unflatten(1, shape)


def write(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What `reshape_and_cache` leaves in both caches, None where nothing was written; and what was written beside them.

    vLLM: none, vLLM has no labs
    """
    from minivllm_kernels.launch import launch
    from minivllm_kernels.reshape_and_cache import reshape_and_cache
    from minivllm_kernels.tuning import WriteTuning

    torch.set_num_threads(1)
    made, margins, launches = make_write(asked), Margins(), []
    keys, values = margins.put("key", made["keys"]), margins.put("value", made["values"])
    integers, bits = UNTOUCHED[made["kv_cache"].dtype]
    cache = torch.full(made["kv_cache"].shape, bits, dtype=integers).view(made["kv_cache"].dtype)
    if asked["interleaved"]:
        caches = margins.put("the cache", cache).unbind(1)
    else:
        caches = tuple(margins.put(name, cache[:, i]) for i, name in enumerate(("k_cache", "v_cache")))
    slots = made["slot_mapping"]
    slots = margins.put("slot_mapping", slots) if len(slots) else slots  # an empty tensor has no address

    def noted(kernel: Kernel, grid: tuple[int, ...], **arguments: Any) -> None:
        launches.append(list(grid))
        launch(kernel, grid, **arguments)

    with interpreted():
        parts.get("reshape_and_cache", reshape_and_cache)(
            *tokens_of(asked, keys, values), *caches, slots, tuning=WriteTuning(asked["tile"], 4), launch=noted
        )
    left = [cache.float().masked_fill(cache.view(integers) == bits, torch.nan).tolist() for cache in caches]
    return {"k_cache": left[0], "v_cache": left[1], "outside": margins.damaged(), "launches": launches}
