"""ReferenceBackend: paged attention by kernels/reference.py, one sequence after the other. To be read, and for labs.

Owns: nothing between steps.
Interface: see AttentionBackend.
Must not know: anything that AttentionBackend must not know.
"""

from collections.abc import Callable
from typing import Any

import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary
from minivllm_kernels import reference


class ReferenceBackend(AttentionBackend):
    """Both operations in a few lines of torch, slow with many rows.

    vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackend (role)
    """

    name = "reference"

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        part: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(num_heads, num_kv_heads, head_size, block_size)
        self.paged_attention = part("paged_attention") if part else reference.paged_attention

    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """See `AttentionBackend.build`.

        vLLM: v1/attention/backend.py::AttentionMetadataBuilder.build
        """
        return AttentionMetadata(common=common, backend=None)

    @boundary("do_kv_cache_update")
    def do_kv_cache_update(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """See `AttentionBackend.do_kv_cache_update`.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.do_kv_cache_update
        """
        k_cache, v_cache = kv_cache.unbind(1)
        reference.reshape_and_cache(key, value, k_cache, v_cache, slot_mapping)

    @boundary("attention")
    def forward(
        self, layer_idx: int, query: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`.

        vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackendImpl.forward (role)
        """
        common = attn_metadata.common
        k_cache, v_cache = kv_cache.unbind(1)
        return self.paged_attention(
            query,
            k_cache,
            v_cache,
            common.query_start_loc,
            common.seq_lens,
            common.block_table_tensor,
            self.scale,
        )
