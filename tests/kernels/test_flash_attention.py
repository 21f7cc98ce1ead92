"""The four files agree with each other, with torch, and on what they cost."""

import pytest
import torch
import torch.nn.functional as F

from minivllm_kernels.flash_attention import traffic
from minivllm_kernels.flash_attention.naive import naive_attention
from minivllm_kernels.flash_attention.tiled import tiled_attention
from minivllm_kernels.flash_attention.triton_forward import flash_attention


@pytest.mark.parametrize("tokens", [1, 41, 64, 130])
def test_all_three_equal_torch(tokens: int, device: str) -> None:
    randomness = torch.Generator().manual_seed(tokens)
    q, k, v = (torch.randn(3, tokens, 24, generator=randomness).to(device) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    for attention in (naive_attention, tiled_attention, flash_attention):
        torch.testing.assert_close(attention(q, k, v), expected, atol=1e-5, rtol=0, msg=attention.__name__)


@pytest.mark.parametrize(("block_m", "tile"), [(16, 16), (16, 64), (64, 16), (128, 128)])
def test_any_tiles_give_the_same(block_m: int, tile: int) -> None:
    q, k, v = (torch.randn(2, 100, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    torch.testing.assert_close(tiled_attention(q, k, v, block_m, tile), naive_attention(q, k, v), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype, device: str) -> None:
    q, k, v = (torch.randn(2, 50, 64).to(device, dtype) for _ in range(3))
    expected = naive_attention(q.float(), k.float(), v.float())
    for attention in (tiled_attention, flash_attention):
        got = attention(q, k, v)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), expected, atol=2e-2, rtol=2e-2)


def test_traffic_of_the_default_models_layer() -> None:
    """9 query heads, 3 KV heads of size 64 in float32: the numbers of the notebook."""
    shapes = traffic.Shapes(num_tokens=4096)
    assert round(traffic.needed(shapes) / 1e6, 1) == 25.2
    assert round(sum(traffic.naive(shapes).values()) / 1e6) == 2441
    small = traffic.Shapes(num_tokens=256)
    keys_and_values = [traffic.tiled(small, rows, rows) - 2 * small.query_bytes for rows in (64, 128)]
    assert [round(number / 1e6, 2) for number in keys_and_values] == [2.95, 1.77]


def test_traffic_grows_with_tokens_squared_only_where_scores_are_kept() -> None:
    one, four = traffic.Shapes(1024), traffic.Shapes(4096)
    assert 15 < sum(traffic.naive(four).values()) / sum(traffic.naive(one).values()) < 16
    assert traffic.needed(four) == 4 * traffic.needed(one)
    assert traffic.tiled(one, 64, 64, causal=False) > traffic.tiled(one, 64, 64) > traffic.tiled(one, 128, 64)
    assert traffic.tiled(one, 64, 64, heads_share_keys=True) < traffic.tiled(one, 64, 64)
