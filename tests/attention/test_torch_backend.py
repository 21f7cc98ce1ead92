"""TorchBackend against dense attention, row by row, with NaN in every slot that no token was written to."""

import pytest
import torch
from attention.scenes import Scene, dense_attention, row_lengths
from hypothesis import given
from hypothesis import strategies as st
from paged_driver import common_metadata

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.layer import Attention
from minivllm.attention.selector import get_attn_backend
from minivllm.attention.torch_backend import TorchBackend
from minivllm.boundary import boundaries


@given(
    rows=row_lengths(),
    heads=st.sampled_from([(4, 4), (4, 2), (8, 1), (9, 3)]),
    head_size=st.sampled_from([16, 32, 64, 128]),
    block_size=st.sampled_from([1, 2, 4, 8, 16, 32]),
    seed=st.integers(0, 3),
)
def test_any_mix_of_rows_equals_dense_attention(
    rows: list[tuple[int, int]], heads: tuple[int, int], head_size: int, block_size: int, seed: int
) -> None:
    query_lens, seq_lens = map(list, zip(*rows, strict=True))
    scene = Scene(query_lens, seq_lens, *heads, head_size, block_size, seed=seed)
    torch.testing.assert_close(scene.attend().double(), scene.expected(), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    scene = Scene([1, 1, 6, 3], [33, 3, 40, 3], dtype=dtype)
    output = scene.attend()
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), scene.expected(), atol=2e-2, rtol=2e-2)


def test_decode_rows_of_very_different_lengths() -> None:
    lengths = [300, 1, 149, 151, 2, 75, 299, 37]
    scene = Scene([1] * len(lengths), lengths, block_size=16)
    torch.testing.assert_close(scene.attend().double(), scene.expected(), atol=2e-6, rtol=1e-5)


def test_rows_of_length_zero_and_padding_tokens_give_zeros() -> None:
    scene = Scene([1, 0, 4], [9, 0, 4])
    # two padding rows with a token each and nothing to attend to, and one more token that belongs to no row
    padded = common_metadata([1, 0, 4, 0, 0], [9, 0, 4, 0, 0], [*scene.block_tables, [], []], 4)
    starts = torch.tensor([0, 1, 1, 5, 6, 7], dtype=torch.int32)
    padded.query_start_loc = padded.query_start_loc_cpu = starts
    expected = scene.expected()
    scene.common, scene.query = padded, torch.cat([scene.query, torch.ones(3, 4, 16)])
    output = scene.attend()
    torch.testing.assert_close(output[:5].double(), expected, atol=2e-6, rtol=1e-5)
    assert (output[5:] == 0).all()


def test_a_step_without_tokens() -> None:
    scene = Scene([0, 0], [5, 0])
    assert scene.attend().shape == (0, 4, 16)


def test_slot_minus_one_is_not_written() -> None:
    backend = TorchBackend(2, 1, 16, 4)
    cache = torch.full(backend.kv_cache_shape(3, 4, 1, 16), torch.nan)
    key, value = torch.full((4, 1, 16), 1.0), torch.full((4, 1, 16), 2.0)
    # the last token has no slot at all, as padding beyond the mapping
    backend.do_kv_cache_update(0, key, value, cache, torch.tensor([5, -1, 8]))
    written = {(block, place) for block, kv, place in (~cache[..., 0, 0].isnan()).nonzero().tolist() if kv == 0}
    assert written == {(1, 1), (2, 0)}
    assert (cache[1, 0, 1] == 1).all() and (cache[1, 1, 1] == 2).all() and (cache[2, 1, 0] == 2).all()
    assert cache.isnan().sum() == cache.numel() - 4 * 16


def test_results_do_not_depend_on_the_rows_beside() -> None:
    alone, together = Scene([1], [37]), Scene([1, 1, 1, 5], [37, 500, 60, 5])
    together.kv_cache[:] = torch.nan
    for row, length in enumerate(together.seq_lens):
        keys, values = (alone.keys[0], alone.values[0]) if row == 0 else (together.keys[row], together.values[row])
        common = common_metadata([length], [length], [together.block_tables[row]], 4)
        together.backend.do_kv_cache_update(0, keys, values, together.kv_cache, common.slot_mapping)
    together.query[0] = alone.query[0]
    torch.testing.assert_close(together.attend()[0], alone.attend()[0], atol=1e-6, rtol=0)


def test_the_layer_writes_before_it_reads() -> None:
    """The query of a token sees the token's own K and V."""
    backend = TorchBackend(4, 2, 16, 4)
    layer = Attention(0, 4, 2, 16, backend)
    cache = torch.full(backend.kv_cache_shape(4, 4, 2, 16), torch.nan)
    metadata = backend.build(common_metadata([3], [3], [[2]], 4))
    randomness = torch.Generator().manual_seed(0)
    query = torch.randn(3, 64, generator=randomness)
    key, value = torch.randn(3, 32, generator=randomness), torch.randn(3, 32, generator=randomness)
    output = layer(query, key, value, cache, metadata)
    expected = dense_attention(query.view(3, 4, 16), key.view(3, 2, 16), value.view(3, 2, 16))
    torch.testing.assert_close(output.double(), expected.reshape(3, 64), atol=2e-6, rtol=1e-5)


def test_layout_of_the_cache() -> None:
    assert TorchBackend(4, 2, 16, 4).kv_cache_shape(7, 4, 2, 16) == (7, 2, 4, 2, 16)


def test_boundaries_are_marked() -> None:
    assert boundaries(TorchBackend) == {"do_kv_cache_update": "do_kv_cache_update", "forward": "attention"}
    assert boundaries(AttentionBackend) == boundaries(TorchBackend)


@pytest.mark.parametrize(("name", "device"), [("torch", "cpu"), ("auto", "mps"), ("torch", "cuda")])
def test_factory_gives_torch(name: str, device: str) -> None:
    backend = get_attn_backend(name, device, num_heads=4, num_kv_heads=2, head_size=16, block_size=4)
    assert backend.name == "torch" and backend.scale == 0.25
