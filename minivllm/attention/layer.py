"""Attention: the layer inside each decoder layer that hands q, k and v to the backend.

Owns: the number of its layer and the shape of its heads.
Interface: `forward`.
Must not know: how a backend stores or reads K and V.
"""

import torch
from torch import nn

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata


class Attention(nn.Module):
    """First K and V are written to the cache, then the query reads everything from the cache.

    Metadata and cache are arguments here; vLLM looks them up in a global forward context.

    vLLM: model_executor/layers/attention/attention.py::Attention
    """

    def __init__(
        self, layer_idx: int, num_heads: int, num_kv_heads: int, head_size: int, backend: AttentionBackend
    ) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_size = head_size
        self.backend = backend

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """query [T, Hq * D], key and value [T, Hkv * D], all after RoPE; gives [T, Hq * D].

        vLLM: model_executor/layers/attention/attention.py::Attention.forward
        """
        query = query.view(-1, self.num_heads, self.head_size)
        key = key.view(-1, self.num_kv_heads, self.head_size)
        value = value.view(-1, self.num_kv_heads, self.head_size)
        self.backend.do_kv_cache_update(self.layer_idx, key, value, kv_cache, attn_metadata.common.slot_mapping)
        output = self.backend.forward(self.layer_idx, query, kv_cache, attn_metadata)
        return output.reshape(-1, self.num_heads * self.head_size)
