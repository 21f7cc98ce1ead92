"""How a kernel is launched: one function, which every wrapper here takes as an argument.

So a caller can see each launch (TritonBackend marks its own as a boundary), count them, or compile without a GPU.
Must not know: any kernel.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton

# (kernel, grid, its arguments by name): tensors, numbers, constants, and num_warps and num_stages
Launch = Callable[..., None]


def launch(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
    """Run grid[0] * grid[1] * ... programs of `kernel`. Returns before a GPU has run them.

    vLLM: none, vLLM launches each kernel where it is needed
    """
    kernel[grid](**arguments)


def check_cache(k_cache: torch.Tensor, v_cache: torch.Tensor, num_kv_heads: int, head_size: int) -> None:
    """The kernels find V as they find K, and read a head as head_size neighbours. Raises ValueError otherwise.

    vLLM: none, vLLM passes all strides of both
    """
    if k_cache.stride() != v_cache.stride() or k_cache.shape != v_cache.shape:
        raise ValueError("K and V cache differ in shape or strides")
    if k_cache.shape[2:] != (num_kv_heads, head_size) or k_cache.stride(3) != 1:
        raise ValueError(f"the cache is {tuple(k_cache.shape)}, not [blocks, block_size, {num_kv_heads}, {head_size}]")
    block_size = k_cache.shape[1]
    if block_size & (block_size - 1):
        raise ValueError(f"block_size={block_size} is not a power of two")


def check_heads(name: str, tensor: torch.Tensor) -> None:
    """The heads of a token must lie side by side; tokens may be apart. Raises ValueError otherwise.

    vLLM: none, vLLM assumes it
    """
    if tensor.stride(2) != 1 or (tensor.shape[1] > 1 and tensor.stride(1) != tensor.shape[2]):
        raise ValueError(f"the heads of a token of {name} don't lie side by side: strides {tensor.stride()}")


def padded_head_size(head_size: int) -> int:
    """The width of a tile that holds a head: tiles have powers of two, and a product needs 16."""
    return max(16, triton.next_power_of_2(head_size))
