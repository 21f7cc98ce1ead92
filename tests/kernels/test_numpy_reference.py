"""The two references agree: numpy's and torch's have no line in common."""

import numpy as np
import pytest
import torch

from minivllm_kernels import numpy_reference, reference
from minivllm_kernels.cases import Case, lengths, make_batch


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (9, 3), (8, 1)], ids=str)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_numpy_and_torch_agree(heads: tuple[int, int], block_size: int) -> None:
    batch = make_batch(Case(heads, 16, block_size, torch.float32), lengths(block_size, seed=3))
    caches = batch.kv_cache.double().unbind(1)
    reference.reshape_and_cache(batch.key, batch.value, *caches, batch.slot_mapping)
    arguments = (batch.q.double(), *caches, batch.query_start_loc, batch.seq_lens, batch.block_table)
    expected = reference.paged_attention(*arguments, batch.scale)
    got = numpy_reference.paged_attention_numpy(*(tensor.numpy() for tensor in arguments), batch.scale)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-9, atol=1e-9)
