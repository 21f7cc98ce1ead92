"""AttentionBackend: how K and V are written to the paged cache and how attention reads them back.

Owns: the layout of a layer's KV cache. One object serves all layers of an engine.
Interface: `build` once a step, then for each layer `do_kv_cache_update` and `forward`.
Must not know: the model, the scheduler, or which request a row belongs to.
"""

from abc import ABC, abstractmethod

import torch

from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary


class AttentionBackend(ABC):
    """Causal attention with grouped heads over a paged cache. Query head h reads KV head h // (Hq / Hkv).

    Slot s is token place s % block_size of block s // block_size. The shapes below are T tokens, Hq query heads, Hkv
    KV heads, head size D. vLLM has three classes for this: backend, metadata builder, and one impl object per layer.

    vLLM: v1/attention/backend.py::AttentionBackend (simplified: one class and one object in place of three classes)
    """

    name: str
    fallback: str | None = None  # why "auto" took this one and not a faster one, in words

    def __init__(self, num_heads: int, num_kv_heads: int, head_size: int, block_size: int) -> None:
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_size = head_size
        self.block_size = block_size
        self.scale = head_size**-0.5

    def kv_cache_shape(
        self, num_blocks: int, block_size: int, num_kv_heads: int, head_size: int
    ) -> tuple[int, int, int, int, int]:
        """The shape of one layer's cache: K is cache[:, 0] and V is cache[:, 1].

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionBackend.get_kv_cache_shape
        """
        return (num_blocks, 2, block_size, num_kv_heads, head_size)

    @abstractmethod
    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """Compute what all layers of this step share.

        vLLM: v1/attention/backend.py::AttentionMetadataBuilder.build
        """

    @abstractmethod
    @boundary("do_kv_cache_update")
    def do_kv_cache_update(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """Write key and value [T, Hkv, D] to the slots int64[T] of `kv_cache`, in place. Slot -1 is skipped.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.do_kv_cache_update
        """

    @abstractmethod
    @boundary("attention")
    def forward(
        self, layer_idx: int, query: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """Attend with query [T, Hq, D] to the cache, through the block table; gives [T, Hq, D].

        The step's own K and V are read from the cache too. A row of length 0 gives zeros.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.forward
        """
