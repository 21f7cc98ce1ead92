"""Observers of lab 08: attention in numpy and in torch, on caches with holes.

Owns: how a case becomes arrays. Interface: gathered, attended, attention, attention_torch, operations; make_batch.
Must not know: what is expected.
"""

from typing import Any

import numpy as np

from minivllm.course.grader.child import Parts

Seen = list[Any]


def make_batch(asked: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a case, in float64; keys and values of each row, and both again in shuffled blocks.

    asked: rows [new tokens, all tokens], heads [Hq, Hkv], head_size, block_size, factor (of the scores), seed. Slots
    without a key hold NaN. Block 0, which fills the tables up, has none.
    """
    random = np.random.default_rng(asked["seed"])
    (query_heads, kv_heads), size, block_size = asked["heads"], asked["head_size"], asked["block_size"]
    counts = [-(-total // block_size) for _, total in asked["rows"]]
    order = (random.permutation(sum(counts)) + 1).tolist()
    starts = np.cumsum([0, *(new for new, _ in asked["rows"])]).astype(np.int32)
    shape = (sum(counts) + 2, block_size, kv_heads, size)
    k_cache, v_cache = np.full(shape, np.nan), np.full(shape, np.nan)
    table = np.zeros((len(counts), max(counts) + 1), dtype=np.int32)
    keys, values = [], []
    for row, (count, (_, total)) in enumerate(zip(counts, asked["rows"], strict=True)):
        table[row, :count] = [order.pop() for _ in range(count)]
        keys.append(random.standard_normal((total, kv_heads, size)) * asked["factor"])
        values.append(random.standard_normal((total, kv_heads, size)))
        for place in range(total):
            k_cache[table[row, place // block_size], place % block_size] = keys[row][place]
            v_cache[table[row, place // block_size], place % block_size] = values[row][place]
    return {
        "q": random.standard_normal((int(starts[-1]), query_heads, size)),
        "k_cache": k_cache,
        "v_cache": v_cache,
        "query_start_loc": starts,
        "seq_lens": np.array([total for _, total in asked["rows"]], dtype=np.int32),
        "block_table": table,
        "scale": size**-0.5,
        "keys": keys,
        "values": values,
    }


ARGUMENTS = ("q", "k_cache", "v_cache", "query_start_loc", "seq_lens", "block_table", "scale")


def gathered(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """K of every row that has keys, gathered."""
    from minivllm_kernels.numpy_reference import gather_kv_numpy

    gather = parts.get("gather_kv_numpy", gather_kv_numpy)
    batch = make_batch(asked)
    for table_row, length in zip(batch["block_table"], batch["seq_lens"].tolist(), strict=True):
        if length:
            seen.append(np.asarray(gather(batch["k_cache"], table_row, length)).tolist())
    return seen


def attended(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Attention of every row that has new tokens and keys, one row at a time."""
    from minivllm_kernels.numpy_reference import attend_numpy

    attend = parts.get("attend_numpy", attend_numpy)
    batch = make_batch(asked)
    starts = batch["query_start_loc"].tolist()
    with np.errstate(all="ignore"):
        for row, (new, total) in enumerate(asked["rows"]):
            if new and total:
                q = batch["q"][starts[row] : starts[row + 1]]
                got = attend(q, batch["keys"][row].copy(), batch["values"][row].copy(), batch["scale"])
                seen.append(np.asarray(got).tolist())
    return seen


def attention(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Attention of the whole batch, in numpy."""
    from minivllm_kernels.numpy_reference import paged_attention_numpy

    batch = make_batch(asked)
    with np.errstate(all="ignore"):
        got = parts.get("paged_attention_numpy", paged_attention_numpy)(*(batch[name] for name in ARGUMENTS))
    return np.asarray(got).tolist()


def attention_torch(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Attention of the whole batch, in torch."""
    return _with_torch(parts, asked).tolist()


def operations(parts: Parts, asked: dict[str, Any], seen: Seen) -> int:
    """How many operations of torch it takes."""
    from torch.overrides import TorchFunctionMode

    count = 0

    class Counting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            count += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        _with_torch(parts, asked)
    return count


def _with_torch(parts: Parts, asked: dict[str, Any]) -> Any:
    import torch

    from minivllm_kernels.reference import paged_attention

    torch.set_num_threads(1)  # a forked process must not use the threads of its parent
    batch = make_batch(asked)
    arguments = [batch[name] for name in ARGUMENTS]
    tensors = [torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in arguments]
    return parts.get("paged_attention", paged_attention)(*tensors)
