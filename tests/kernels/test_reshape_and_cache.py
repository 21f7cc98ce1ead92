"""What is written, and that nothing else is: all comparisons are exact."""

import pytest
import torch

from minivllm_kernels import reference
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.tuning import WriteTuning


def check(
    key: torch.Tensor,
    value: torch.Tensor,
    slots: list[int],
    block_size: int = 4,
    layout: str = "side by side",
    tuning: WriteTuning | None = None,
    device: str = "cpu",
) -> None:
    """Write with kernel and reference into caches with a margin around them; all must be equal."""
    caches = []
    heads, size = key.shape[1:]
    for write in (reshape_and_cache, reference.reshape_and_cache):
        if layout == "side by side":  # [blocks, 2, B, H, D], as in the engine
            memory = torch.full((10, 2, block_size, heads, size), torch.nan, dtype=key.dtype, device=device)
            k_cache, v_cache = memory[1:-1].unbind(1)
        else:  # [2, blocks, B, H, D], as in FlashAttention
            memory = torch.full((2, 10, block_size, heads, size), torch.nan, dtype=key.dtype, device=device)
            k_cache, v_cache = memory[:, 1:-1].unbind(0)
        mapping = torch.tensor(slots, dtype=torch.int64, device=device)
        options = {"tuning": tuning} if write is reshape_and_cache else {}
        write(key.to(device), value.to(device), k_cache, v_cache, mapping, **options)
        caches.append(memory.cpu())
    got, expected = caches
    assert torch.equal(got.nan_to_num(7777.0), expected.nan_to_num(7777.0))
    assert (~expected.isnan()).sum() == 2 * heads * size * len([slot for slot in set(slots) if slot >= 0])


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("layout", ["side by side", "apart"])
@pytest.mark.parametrize("slots", [[0], [5], [3, 4], [31, 0, 17, 6], [9, -1, 8, -1, 10], [-1, -1]], ids=str)
@pytest.mark.parametrize(("heads", "size"), [(1, 16), (3, 20), (2, 80)])
def test_slots(heads: int, size: int, slots: list[int], layout: str, device: str) -> None:
    key, value = random(len(slots), heads, size), random(len(slots), heads, size) + 1
    check(key, value, slots, layout=layout, device=device)


@pytest.mark.parametrize("block_size", [1, 2, 16, 128])
def test_block_sizes(block_size: int, device: str) -> None:
    slots = [7 * block_size, 0, 3 * block_size - 1, 8 * block_size - 1]
    check(random(4, 2, 16), random(4, 2, 16), slots, block_size, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_slices_of_a_wider_tensor(dtype: torch.dtype, device: str) -> None:
    """K and V as parts of one projection; V with a stride of its own."""
    qkv = random(5, 7 * 16, dtype=dtype)
    key, value = qkv[:, 16 * 3 : 16 * 5].view(5, 2, 16), qkv[:, 16 * 5 :].view(5, 2, 16)
    check(key, value, [1, 2, 9, 8, 30], device=device)
    check(key, value.contiguous(), [1, 2, 9, 8, 30], device=device)


def test_more_rows_than_slots(device: str) -> None:
    check(random(6, 2, 16), random(6, 2, 16), [4, 11], device=device)


@pytest.mark.parametrize("tile", [16, 64, 2048])
def test_one_token_in_several_tiles(tile: int, device: str) -> None:
    check(random(3, 3, 80), random(3, 3, 80), [4, 11, 2], tuning=WriteTuning(tile, num_warps=4), device=device)


def test_no_token_no_launch(device: str) -> None:
    def no_launch(*_: object, **__: object) -> None:
        raise AssertionError("launched")

    cache = torch.zeros(2, 2, 4, 1, 16, device=device)
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    reshape_and_cache(random(3, 1, 16), random(3, 1, 16), *cache.unbind(1), nothing, launch=no_launch)


def test_layouts_that_the_kernel_cannot_address() -> None:
    key, slots = random(2, 2, 16), torch.tensor([0, 1])
    cache = torch.zeros(2, 2, 4, 2, 16)
    with pytest.raises(ValueError, match="heads of a token of value"):
        reshape_and_cache(key, key.transpose(0, 1).contiguous().transpose(0, 1), *cache.unbind(1), slots)
    head_major = torch.zeros(2, 2, 2, 4, 16).transpose(2, 3)
    with pytest.raises(ValueError, match="heads of a token of k_cache"):
        reshape_and_cache(key, key, *head_major.unbind(1), slots)
    with pytest.raises(ValueError, match="K and V cache differ"):
        reshape_and_cache(key, key, cache[:, 0], torch.zeros(2, 4, 2, 16), slots)
