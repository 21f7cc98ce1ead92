"""FastBackend: the same attention as dense attention, whatever the rows, and a clear word where it can't run."""

from pathlib import Path

import pytest
import torch
from attention.scenes import Scene, row_lengths
from hypothesis import given
from hypothesis import strategies as st
from paged_driver import common_metadata

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.fast_backend import FastBackend
from minivllm.attention.selector import auto_backend, get_attn_backend
from minivllm.boundary import boundaries
from minivllm.errors import InputError

SHAPES = {"num_heads": 4, "num_kv_heads": 2, "head_size": 16, "block_size": 4}


@given(
    rows=row_lengths(),
    heads=st.sampled_from([(4, 4), (4, 2), (8, 1), (9, 3), (16, 4)]),
    head_size=st.sampled_from([16, 48, 64, 128]),
    block_size=st.sampled_from([1, 4, 16, 32]),
    seed=st.integers(0, 3),
)
def test_any_mix_of_rows_equals_dense_attention(
    rows: list[tuple[int, int]], heads: tuple[int, int], head_size: int, block_size: int, seed: int
) -> None:
    query_lens, seq_lens = map(list, zip(*rows, strict=True))
    scene = Scene(query_lens, seq_lens, *heads, head_size, block_size, seed=seed, backend="fast")
    torch.testing.assert_close(scene.attend().double(), scene.expected(), atol=2e-6, rtol=1e-5)


def test_bfloat16() -> None:
    scene = Scene([1, 1, 6, 3, 90], [33, 3, 40, 3, 200], dtype=torch.bfloat16, backend="fast")
    output = scene.attend()
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), scene.expected(), atol=2e-2, rtol=2e-2)


def test_scores_far_apart_do_not_overflow() -> None:
    scene = Scene([1, 7], [150, 150], backend="fast")
    scene.query *= 300
    torch.testing.assert_close(scene.attend().double(), scene.expected(), atol=1e-4, rtol=1e-4)


def test_rows_of_length_zero_and_padding_tokens_give_zeros() -> None:
    scene = Scene([1, 0, 4], [9, 0, 4], backend="fast")
    padded = common_metadata([1, 0, 4, 0, 0], [9, 0, 4, 0, 0], [*scene.block_tables, [], []], 4)
    padded.query_start_loc = padded.query_start_loc_cpu = torch.tensor([0, 1, 1, 5, 6, 7], dtype=torch.int32)
    expected = scene.expected()
    scene.common, scene.query = padded, torch.cat([scene.query, torch.ones(3, 4, 16)])
    output = scene.attend()
    torch.testing.assert_close(output[:5].double(), expected, atol=2e-6, rtol=1e-5)
    assert (output[5:] == 0).all()


def test_slot_minus_one_is_not_written_and_rows_of_key_may_lie_apart() -> None:
    backend = get_attn_backend("fast", "cpu", **SHAPES)
    cache = torch.zeros(backend.kv_cache_shape(3, 4, 2, 16))
    wide = torch.arange(3 * 96.0).view(3, 96) + 1
    key, value = (part.view(3, 2, 16) for part in wide.split((32, 32, 32), dim=1)[:2])
    backend.do_kv_cache_update(0, key, value, cache, torch.tensor([6, -1, 9]))
    assert torch.equal(cache[1, 0, 2], key[0]) and torch.equal(cache[1, 1, 2], value[0])
    assert torch.equal(cache[2, 0, 1], key[2]) and torch.equal(cache[2, 1, 1], value[2])
    assert int((cache != 0).sum()) == 2 * 2 * 32


def test_boundaries_are_marked() -> None:
    assert boundaries(FastBackend) == boundaries(AttentionBackend)


def test_auto_takes_it_on_a_cpu_and_nowhere_else() -> None:
    assert get_attn_backend("auto", "cpu", **SHAPES).name == "fast"
    with pytest.raises(InputError, match="'fast' can't run here: the device is mps"):
        get_attn_backend("fast", "mps", **SHAPES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head_size": 24}, "head size 24 is not a multiple of 16"),
        ({"head_size": 512}, "head size 512 is not a multiple of 16 up to 256"),
        ({"num_heads": 130, "num_kv_heads": 2}, "65 query heads share a KV head"),
        ({"dtype": torch.float16}, "float32 and bfloat16, not torch.float16"),
    ],
)
def test_what_it_does_not_know_is_said_and_auto_takes_torch(changes: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        get_attn_backend("fast", "cpu", **SHAPES | changes)
    assert get_attn_backend("auto", "cpu", **SHAPES | changes).name == "torch"


@pytest.mark.parametrize(("compiler", "reason"), [(None, "there is no C compiler"), ("false", "made no library")])
def test_without_a_compiler_that_works_auto_takes_torch_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    compiler: str | None,
    reason: str,
) -> None:
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path))
    monkeypatch.setattr("minivllm_kernels.library.find_compiler", lambda: compiler and (compiler,))
    with pytest.raises(InputError, match=reason):
        get_attn_backend("fast", "cpu", **SHAPES)
    assert caplog.records == []
    backend = get_attn_backend("auto", "cpu", **SHAPES)
    assert backend.name == "torch" and reason in backend.fallback
    (record,) = caplog.records
    assert "takes torch" in record.getMessage() and reason in record.getMessage()
    assert reason in auto_backend()
    assert get_attn_backend("torch", "cpu", **SHAPES).fallback is None, "it was asked for"


def test_a_fresh_cache_folder_gets_one_library_a_number_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINIVLLM_CACHE", str(tmp_path))
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        backend = get_attn_backend("fast", "cpu", **SHAPES, dtype=dtype)
        assert backend.name == "fast" and backend.fallback is None
    kernels = tmp_path / "kernels"
    assert len(list(kernels.glob("cpu-kernels-*.so"))) == len(list(kernels.glob("cpu-kernels-*.json"))) == 2
    assert len(list(kernels.iterdir())) == 4
