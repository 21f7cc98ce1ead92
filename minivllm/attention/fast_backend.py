"""FastBackend: paged attention by the C kernels of kernels/cpu_kernels.c. The default on a CPU that has a C compiler.

Owns: the compiled kernels, which the fast model uses too.
Interface: see AttentionBackend; `make_fast_backend`.
Must not know: anything that AttentionBackend must not know.

The kernels walk the block table as it is: nothing is gathered, copied or padded, so there is nothing to prepare either.
"""

import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary
from minivllm.paths import kernels_dir
from minivllm_kernels.cpu_kernels import MAX_GROUP, MAX_HEAD_SIZE, CpuKernels, load_kernels


class FastBackend(AttentionBackend):
    """One kernel writes K and V to the slots, another reads them through the block table.

    vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackend
    """

    name = "fast"

    def __init__(self, num_heads: int, num_kv_heads: int, head_size: int, block_size: int, kernels: CpuKernels) -> None:
        super().__init__(num_heads, num_kv_heads, head_size, block_size)
        self.kernels = kernels

    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """See `AttentionBackend.build`.

        vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionMetadataBuilder.build
        """
        return AttentionMetadata(common=common, backend=None)

    @boundary("do_kv_cache_update")
    def do_kv_cache_update(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """See `AttentionBackend.do_kv_cache_update`.

        vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackendImpl.forward (its first half)
        """
        self.kernels.reshape_and_cache(key, value, kv_cache, slot_mapping)

    @boundary("attention")
    def forward(
        self, layer_idx: int, query: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`.

        vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackendImpl.forward
        """
        common = attn_metadata.common
        output = query.new_zeros(query.shape)
        self.kernels.paged_attention(
            query,
            kv_cache,
            common.query_start_loc_cpu,
            common.seq_lens_cpu,
            common.block_table_tensor,
            self.scale,
            output,
        )
        return output


def make_fast_backend(
    num_heads: int, num_kv_heads: int, head_size: int, block_size: int, dtype: torch.dtype
) -> FastBackend | str:
    """The backend, or why it can't run this model on this machine. Compiles the kernels at their first use.

    vLLM: none, vLLM's wheel brings its kernels compiled
    """
    if head_size % 16 or head_size > MAX_HEAD_SIZE:
        return f"the model's head size {head_size} is not a multiple of 16 up to {MAX_HEAD_SIZE}"
    if num_heads // num_kv_heads > MAX_GROUP:
        return f"{num_heads // num_kv_heads} query heads share a KV head, and {MAX_GROUP} is the most"
    kernels = load_kernels(kernels_dir(), dtype)
    if isinstance(kernels, str):
        return kernels
    return FastBackend(num_heads, num_kv_heads, head_size, block_size, kernels)
