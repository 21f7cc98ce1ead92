"""ReferenceBackend, and the parts that stand in for functions and kernels of an attention backend."""

import pytest
import torch
from attention.scenes import Scene

from minivllm.attention.selector import get_attn_backend
from minivllm_kernels import paged_decode, reference

SHAPE = {"num_heads": 4, "num_kv_heads": 2, "head_size": 16, "block_size": 4}


def test_a_mixed_batch_equals_dense_attention() -> None:
    scene = Scene([1, 5, 0, 3], [9, 5, 4, 11], backend="reference")
    torch.testing.assert_close(scene.attend().double(), scene.expected(), atol=2e-6, rtol=1e-5)


def test_a_part_takes_the_place_of_paged_attention() -> None:
    asked = []

    def part(seam: str) -> object:
        asked.append(seam)
        return lambda query, *rest: torch.full_like(query, 3.0)

    scene = Scene([1, 2], [5, 2])
    scene.backend = get_attn_backend("reference", "cpu", **SHAPE, part=part)
    assert (scene.attend() == 3.0).all() and asked == ["paged_attention"]


@pytest.mark.parametrize("lens", [[1], [3, 8]])
def test_a_part_takes_the_place_of_a_kernel(lens: list[int]) -> None:
    launched = []
    own = {"reshape_and_cache": reference.reshape_and_cache}

    def part(seam: str) -> object:
        if seam in own:
            return lambda *arguments, launch: own[seam](*arguments)
        return f"instead of {seam}"

    backend = get_attn_backend("triton", "cpu", **SHAPE, part=part)
    backend.launch = lambda kernel, grid, **arguments: launched.append(kernel)
    scene = Scene([1] * len(lens), lens)
    scene.backend = backend
    scene.attend()
    assert launched == ["instead of paged_decode_segments_kernel", "instead of reduce_segments_kernel"]
    backend.launch_part(paged_decode.paged_decode_kernel, (1,))
    assert launched[-1] == "instead of paged_decode_kernel"
