"""The references against torch's scaled_dot_product_attention on a dense mask, and against each other."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from minivllm_kernels import reference
from minivllm_kernels.cases import BLOCK_SIZES, DTYPES, HEAD_SIZES, HEADS, Batch, Case, lengths, make_batch


def filled(case: Case, rows: list[tuple[int, int]]) -> Batch:
    batch = make_batch(case, rows)
    reference.reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), batch.slot_mapping)
    return batch


def dense_attention(batch: Batch, rows: list[tuple[int, int]], window: int = 0) -> torch.Tensor:
    """Each sequence by itself, from the K and V that were written, without cache or table; in float64."""
    keys, values = (x.double().split([length for _, length in rows]) for x in (batch.key, batch.value))
    outputs = []
    for query, key, value, (new, length) in zip(
        batch.q.double().split([new for new, _ in rows]), keys, values, rows, strict=True
    ):
        if length == 0:
            outputs.append(torch.zeros_like(query))
            continue
        places = torch.arange(length)
        distance = places[length - new :, None] - places[None, :]
        mask = (distance >= 0) & (distance < window if window else True)
        q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
        outputs.append(F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_equals_sdpa_on_a_dense_mask(heads: tuple[int, int], dtype: torch.dtype) -> None:
    for head_size, block_size in itertools.product(HEAD_SIZES, BLOCK_SIZES):
        rows = lengths(block_size, seed=head_size + block_size, num_seqs=10)
        case = Case(heads, head_size, block_size, dtype)
        batch = filled(case, rows)
        got = reference.paged_attention(
            batch.q,
            *batch.kv_cache.unbind(1),
            batch.query_start_loc,
            batch.seq_lens,
            batch.block_table,
            batch.scale,
        )
        tolerance = 1e-5 if dtype is torch.float32 else torch.finfo(dtype).eps
        expected = dense_attention(batch, rows)
        torch.testing.assert_close(got.double(), expected, atol=tolerance, rtol=tolerance, msg=str(case))


@pytest.mark.parametrize("window", [1, 3, 16, 1000])
def test_sliding_window_equals_sdpa(window: int) -> None:
    rows = lengths(8, num_seqs=12)
    batch = filled(Case((4, 2), 16, 8), rows)
    paged = (batch.query_start_loc, batch.seq_lens, batch.block_table, batch.scale)
    got = reference.paged_attention(batch.q, *batch.kv_cache.unbind(1), *paged, sliding_window=window)
    torch.testing.assert_close(got.double(), dense_attention(batch, rows, window), atol=1e-5, rtol=0)


def test_softcap_bounds_the_scores() -> None:
    """Scores of 600 become 30; the formula by hand for one query and two keys."""
    q = torch.tensor([[[20.0, 0.0]]])
    k = torch.tensor([[[30.0, 0.0]], [[29.9, 0.0]]])
    v = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    got = reference.attend(q, k, v, scale=1.0, softcap=30.0)
    scores = 30 * torch.tanh(torch.tensor([600.0, 598.0]) / 30)
    torch.testing.assert_close(got[0, 0], scores.softmax(0))
    assert got[0, 0, 0] < 0.51, "without the cap it would be 0.88"


@pytest.mark.parametrize("num_segments", [1, 4, 16])
def test_split_equals_decode(num_segments: int) -> None:
    rows = [(1, length) for length in (1, 5, 0, 16, 17, 50)]
    batch = filled(Case((9, 3), 16, 4), rows)
    shared = (*batch.kv_cache.unbind(1), batch.block_table, batch.seq_lens, batch.scale)
    whole, split = torch.empty_like(batch.q), torch.full_like(batch.q, torch.nan)
    reference.paged_decode(batch.q, *shared, whole)
    reference.paged_decode_split(batch.q, *shared, split, num_segments)
    torch.testing.assert_close(split, whole, atol=1e-6, rtol=0)
    assert (whole[2] == 0).all()


@pytest.mark.parametrize("scores", [[1.0, 2.0, 3.0, 4.0] * 3, [600.0, 8.0, -8.0] * 4, [-200.0] * 12, [200.0] * 12])
def test_online_softmax_in_tiles(scores: list[float]) -> None:
    s = torch.tensor(scores).expand(2, -1)
    v = torch.randn(len(scores), 5, generator=torch.Generator().manual_seed(0))
    state = torch.full((2,), -torch.inf), torch.zeros(2), torch.zeros(2, 5)
    hidden = torch.full((2, 4), -torch.inf)
    for first in range(0, len(scores), 4):
        state = reference.online_softmax_step(*state, s[:, first : first + 4], v[first : first + 4])
        state = reference.online_softmax_step(*state, hidden, v[:4])  # a tile that may not be seen changes nothing
    m, total, acc = state
    torch.testing.assert_close(acc / total[:, None], s.softmax(-1) @ v)
    assert (m == max(scores)).all()


def test_a_row_that_sees_nothing_is_not_a_number_anywhere() -> None:
    state = torch.full((1,), -torch.inf), torch.zeros(1), torch.zeros(1, 3)
    m, total, acc = reference.online_softmax_step(*state, torch.full((1, 4), -torch.inf), torch.ones(4, 3))
    assert m.item() == -torch.inf and total.item() == 0 and (acc == 0).all()
