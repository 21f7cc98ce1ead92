"""Observers of the kernel labs: a student's kernels in Triton's interpreter, on tensors with margins.

Owns: how a case becomes tensors, the margins around them, and what is noted of a launch.
Interface: write, write_far; make_write, tokens_of, far_tokens; and for observe_decode.py
Margins, interpreted, UNTOUCHED.
Must not know: what is expected.

Every tensor that a kernel gets lies inside a larger one. The margins hold 7.0, and unused slots hold NaN: who writes
beside a tensor is told so and ends no process, and who reads what does not exist gets NaN.
"""

import math
import mmap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from minivllm.course.grader.child import Parts

Seen = list[Any]
Kernel = Any  # a function with @triton.jit

MARGIN = 2048  # elements on both sides
IN_MARGIN = 7.0
UNTOUCHED = {torch.float32: (torch.int32, 0x7FC12345), torch.bfloat16: (torch.int16, 0x7FD3)}  # a NaN of our own


class Margins:
    """Tensors inside larger ones, and which of those was written to."""

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
        return list(self.spilled())

    def spilled(self) -> dict[str, list[int]]:
        """How many numbers were written before and behind each tensor; those beside which nothing was are left out."""
        found = {}
        for name, whole, before in self.kept:
            sides = (slice(0, MARGIN), slice(whole.numel() - MARGIN, None))
            counts = [int((whole[side] != before[side]).sum()) for side in sides]
            if any(counts):
                found[name] = counts
        return found


@contextmanager
def interpreted() -> Iterator[None]:
    """Around a launch: an error inside a kernel is raised as it was, not as the interpreter wraps it; no warnings."""
    from triton.runtime.errors import InterpreterError

    from minivllm_kernels import interpreter

    interpreter.speed_up()
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the maximum of NaN alone
            yield
    except InterpreterError as error:
        cause: BaseException = error
        while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


# ---------------------------------------------------------------------- writing to slots


def make_write(asked: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a write: keys and values, each wider than `tokens_of` takes, slot_mapping, and an empty cache.

    asked: slots, rows (of key and value; there may be more than slots), heads, head_size, block_size, blocks, dtype,
    from ("apart", "qkv": slices of wide rows, "own": value with a stride of its own), tile (0: no tuning is given),
    seed.
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
    """key and value [rows, H, D], as they lie in what `make_write` gives."""
    shape = (asked["heads"], asked["head_size"])
    numbers = shape[0] * shape[1]
    if asked["from"] == "qkv":
        return keys[:, numbers : 2 * numbers].unflatten(1, shape), keys[:, 2 * numbers :].unflatten(1, shape)
    return keys[:, :numbers].unflatten(1, shape), values[:, :numbers].unflatten(1, shape)


def write(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What `reshape_and_cache` leaves in both caches, None where nothing was written; and what it wrote beside them."""
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

    tuning = WriteTuning(asked["tile"], 4) if asked["tile"] else None

    def noted(kernel: Kernel, grid: tuple[int, ...], *unnamed: Any, **arguments: Any) -> None:
        if unnamed:
            raise TypeError("launch takes the kernel, the grid, and then the kernel's arguments by name: key=key, ...")
        launches.append(list(grid))
        launch(kernel, grid, **arguments)

    with interpreted():
        parts.get("reshape_and_cache", reshape_and_cache)(
            *tokens_of(asked, keys, values), *caches, slots, tuning=tuning, launch=noted
        )
    left = [cache.float().masked_fill(cache.view(integers) == bits, torch.nan).tolist() for cache in caches]
    return {"k_cache": left[0], "v_cache": left[1], "outside": margins.damaged(), "launches": launches}


def write_far(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[list[float]] | None:
    """K and V that `reshape_and_cache` left in the last block of a cache of more than 2^31 numbers.

    The cache is address space: no memory is taken until something is written. None: this machine lends no such room.
    asked: slot, block_size, head_size, blocks.
    """
    from minivllm_kernels.reshape_and_cache import reshape_and_cache

    shape = (asked["blocks"], 2, asked["block_size"], 1, asked["head_size"])
    try:
        room = mmap.mmap(-1, 2 * math.prod(shape))
    except OSError:
        return None
    caches = torch.frombuffer(room, dtype=torch.bfloat16).view(shape).unbind(1)
    tokens = far_tokens(asked)
    with interpreted():
        parts.get("reshape_and_cache", reshape_and_cache)(*tokens, *caches, torch.tensor([asked["slot"]]))
    block, offset = divmod(asked["slot"], asked["block_size"])
    return [cache[block, offset].flatten().float().tolist() for cache in caches]


def far_tokens(asked: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V [1, 1, D] of the one token that is written far out."""
    numbers = torch.arange(1, 2 * asked["head_size"] + 1, dtype=torch.bfloat16)
    return tuple(half.view(1, 1, -1) for half in numbers.chunk(2))
