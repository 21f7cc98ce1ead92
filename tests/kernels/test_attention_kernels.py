"""The kernels against the references: a pairwise cover of the shapes, random batches, and what must not matter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_kernels import reference
from minivllm_kernels.cases import (
    BLOCK_SIZES,
    DTYPES,
    HEAD_SIZES,
    HEADS,
    INTERPRETER_TUNINGS,
    Batch,
    Case,
    lengths,
    make_batch,
    pairwise,
    run_case,
)
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.tuning import TUNINGS

COVER = pairwise(HEADS, HEAD_SIZES, BLOCK_SIZES, DTYPES, tuple(INTERPRETER_TUNINGS))


def test_the_cover_is_one() -> None:
    axes = (HEADS, HEAD_SIZES, BLOCK_SIZES, DTYPES, tuple(INTERPRETER_TUNINGS))
    for a in range(len(axes)):
        for b in range(a):
            assert {(values[a], values[b]) for values in COVER} == {(x, y) for x in axes[a] for y in axes[b]}
    assert len(COVER) < 60


@pytest.mark.parametrize(
    ("case", "tuning"),
    [(Case(*values, seed=seed), tuning) for seed, (*values, tuning) in enumerate(COVER)],
    ids=str,
)
def test_pairwise_cover(case: Case, tuning: str, device: str) -> None:
    run_case(case, lengths(case.block_size, case.seed), device, INTERPRETER_TUNINGS[tuning])


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_33_sequences(heads: tuple[int, int], device: str) -> None:
    run_case(Case(heads, 16, 4), lengths(4, seed=1, num_seqs=33), device, INTERPRETER_TUNINGS["wide"])


@pytest.mark.parametrize("target", sorted(TUNINGS))
@pytest.mark.parametrize(("head_size", "dtype"), [(64, torch.bfloat16), (128, torch.float16), (256, torch.float32)])
def test_the_sizes_of_every_target(target: str, head_size: int, dtype: torch.dtype, device: str) -> None:
    run_case(Case((8, 1), head_size, 16, dtype), [(40, 40), (1, 70), (3, 35), (1, 0)], device, TUNINGS[target])


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=6),
    heads=st.sampled_from(HEADS),
    head_size=st.sampled_from([16, 20, 32, 80]),
    block_size=st.sampled_from([1, 2, 8, 32]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.bfloat16]),
    tuning=st.sampled_from(sorted(INTERPRETER_TUNINGS)),
    seed=st.integers(0, 3),
)
def test_random_batches(
    device: str,
    rows: list[tuple[int, int]],
    heads: tuple[int, int],
    head_size: int,
    block_size: int,
    dtype: torch.dtype,
    tuning: str,
    seed: int,
) -> None:
    """Any new tokens on any context; a row may have no new token, and a row of nothing may have tokens of padding."""
    rows = [(new, new + before) if before else (min(new, 1), 0) for new, before in rows]
    if any(new for new, _ in rows):
        run_case(Case(heads, head_size, block_size, dtype, seed), rows, device, INTERPRETER_TUNINGS[tuning])


def filled(case: Case, rows: list[tuple[int, int]], device: str) -> Batch:
    batch = make_batch(case, rows).to(device)
    reference.reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), batch.slot_mapping)
    return batch


def flat(batch: Batch) -> tuple:
    caches = batch.kv_cache.unbind(1)
    return (batch.q, *caches, batch.query_start_loc, batch.seq_lens, batch.block_table, batch.scale)


@pytest.mark.parametrize("tuning", INTERPRETER_TUNINGS.values(), ids=INTERPRETER_TUNINGS)
@pytest.mark.parametrize("window", [1, 5, 16, 40])
def test_sliding_window(window: int, tuning, device: str) -> None:
    batch = filled(Case((4, 2), 16, 8), [(1, 50), (30, 60), (3, 3), (1, 0), (9, 70)], device)
    expected = reference.paged_attention(*flat(batch), sliding_window=window)
    got = paged_attention(*flat(batch), sliding_window=window, tuning=tuning.prefill(16, 4))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [0, 20])
def test_softcap(window: int, device: str) -> None:
    batch = filled(Case((9, 3), 32, 4), [(1, 50), (12, 20), (3, 3)], device)
    batch.scale = 3.0  # scores far beyond the cap
    options = {"softcap": 2.0, "sliding_window": window}
    expected = reference.paged_attention(*flat(batch), **options)
    torch.testing.assert_close(paged_attention(*flat(batch), **options), expected, atol=1e-5, rtol=0)
    assert (expected - reference.paged_attention(*flat(batch))).abs().max() > 0.1


def many_times_60(key: torch.Tensor) -> torch.Tensor:
    return key * 60


def all_near_minus_200(key: torch.Tensor) -> torch.Tensor:
    return torch.full_like(key, -12.5) + key.sign()


def falling(key: torch.Tensor) -> torch.Tensor:
    return torch.linspace(20, -20, len(key), device=key.device)[:, None, None].expand_as(key)


@pytest.mark.parametrize("change", [many_times_60, all_near_minus_200, falling])
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_large_and_small_scores(heads: tuple[int, int], change, device: str) -> None:
    rows = [(3, 41), (1, 40), (1, 17)]
    batch = make_batch(Case(heads, 16, 4), rows).to(device)
    batch.key, batch.q = change(batch.key), torch.full_like(batch.q, 4.0)
    reference.reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), batch.slot_mapping)
    expected = reference.paged_attention(*flat(batch))
    assert expected.isfinite().all()
    torch.testing.assert_close(paged_attention(*flat(batch)), expected, atol=1e-5, rtol=1e-5)
    queries = batch.q[: len(rows)].contiguous()
    shared = (*batch.kv_cache.unbind(1), batch.block_table, batch.seq_lens, batch.scale)
    one, two, three = (torch.empty_like(queries) for _ in range(3))
    reference.paged_decode(queries, *shared, one)
    paged_decode(queries, *shared, two)
    paged_decode_split(queries, *shared, three, 16)
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(three, one, atol=1e-5, rtol=1e-5)


def test_padding_rows_and_padding_tokens(device: str) -> None:
    """As for CUDA graphs: query_start_loc repeats, seq_len 0, table row 0; and tokens behind the last row."""
    batch = filled(Case((4, 2), 16, 4), [(2, 9), (1, 5)], device)
    expected = reference.paged_attention(*flat(batch))
    starts = torch.cat([batch.query_start_loc, batch.query_start_loc[-1:].expand(3)])
    padded = Batch(
        **{
            **vars(batch),
            "query_start_loc": starts,
            "seq_lens": torch.cat([batch.seq_lens, batch.seq_lens.new_zeros(3)]),
            "block_table": torch.cat([batch.block_table, batch.block_table.new_zeros(3, batch.block_table.shape[1])]),
            "q": torch.cat([batch.q, torch.full_like(batch.q, torch.nan)]),
        }
    )
    got = paged_attention(*flat(padded))
    torch.testing.assert_close(got[:3], expected, atol=1e-5, rtol=0)
    assert (got[3:] == 0).all()


def test_a_shorter_table_row_is_not_read_beyond_its_end(device: str) -> None:
    """The table ends with the last block of the last row; what lies behind it in memory is no block."""
    batch = filled(Case((4, 2), 16, 16), [(1, 20), (1, 20)], device)
    wide = torch.full((2, 4), 2**30, dtype=torch.int32, device=device)
    wide[:, :2] = batch.block_table
    batch.block_table = wide[:, :2]
    expected = reference.paged_attention(*flat(batch))
    for tuning in INTERPRETER_TUNINGS.values():
        got = paged_attention(*flat(batch), tuning=tuning.prefill(16, 4))
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_an_empty_batch_launches_nothing(device: str) -> None:
    batch = filled(Case((4, 2), 16, 4), [(2, 9)], device)

    def no_launch(*_: object, **__: object) -> None:
        raise AssertionError("launched")

    empty, none = batch.q[:0], torch.empty(0, dtype=torch.int32, device=device)
    caches, table = batch.kv_cache.unbind(1), batch.block_table[:0]
    starts = torch.zeros(1, dtype=torch.int32, device=device)
    assert paged_attention(empty, *caches, starts, none, table, 1.0, launch=no_launch).shape == (0, 4, 16)
    paged_decode(empty, *caches, table, none, 1.0, empty, launch=no_launch)
    paged_decode_split(empty, *caches, table, none, 1.0, empty, 4, launch=no_launch)


def test_results_do_not_depend_on_the_rows_beside(device: str) -> None:
    rows = [(1, 37), (5, 5), (1, 90), (17, 40)]
    batch = filled(Case((4, 2), 16, 4), rows, device)
    together = paged_attention(*flat(batch))
    ends = batch.query_start_loc.tolist()
    for row, (new, _) in enumerate(rows):
        alone = Batch(
            **{
                **vars(batch),
                "q": batch.q[ends[row] : ends[row + 1]],
                "query_start_loc": torch.tensor([0, new], dtype=torch.int32, device=device),
                "seq_lens": batch.seq_lens[row : row + 1],
                "block_table": batch.block_table[row : row + 1],
            }
        )
        assert torch.equal(paged_attention(*flat(alone)), together[ends[row] : ends[row + 1]])


def test_layouts_that_the_kernels_cannot_address(device: str) -> None:
    batch = filled(Case((4, 2), 16, 4), [(2, 9)], device)
    q, k_cache, v_cache, *rest = flat(batch)
    with pytest.raises(ValueError, match="K and V cache differ"):
        paged_attention(q, k_cache, v_cache.contiguous(), *rest)
    with pytest.raises(ValueError, match="heads of a token of q"):
        paged_attention(q.transpose(0, 1).contiguous().transpose(0, 1), k_cache, v_cache, *rest)
    with pytest.raises(ValueError, match=r"not \[blocks, block_size, 2, 32\]"):
        paged_attention(torch.cat([q, q], 2), k_cache, v_cache, *rest)
    with pytest.raises(ValueError, match="block_size=3"):
        paged_attention(q, k_cache[:, :3], v_cache[:, :3], *rest)
    with pytest.raises(ValueError, match="num_segments=3"):
        paged_decode_split(q, k_cache, v_cache, batch.block_table, batch.seq_lens, 1.0, q, 3)
