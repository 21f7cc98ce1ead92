"""TritonBackend: paged attention by the Triton kernels of kernels/; on a GPU, or on a CPU in Triton's interpreter.

Owns: nothing between steps.
Interface: see AttentionBackend; `launch`, through which every kernel goes.
Must not know: anything that AttentionBackend must not know; how a kernel works.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary
from minivllm.errors import InputError
from minivllm_kernels import interpreter
from minivllm_kernels.launch import launch as launch_kernel
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.tuning import MAX_HEAD_SIZE, NUM_SEGMENTS, Form, choose_form

KERNEL_PARTS = ("paged_decode_kernel", "paged_decode_segments_kernel", "reduce_segments_kernel")


@dataclass(slots=True)
class TritonPlan:
    """Which kernel reads the cache in this step.

    vLLM: v1/attention/backends/triton_attn.py::TritonAttentionMetadata
    """

    form: Form  # varlen: any lengths; decode: one token a row; split: the same, with the keys in segments
    num_segments: int  # of form split; otherwise 1
    all_tokens_have_rows: bool  # False: tokens behind the last row are padding


class TritonBackend(AttentionBackend):
    """One kernel writes K and V to the slots, another reads them through the block table.

    vLLM: v1/attention/backends/triton_attn.py::TritonAttentionBackend
    """

    name = "triton"

    def __init__(
        self,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        block_size: int,
        part: Callable[[str], Any] | None = None,
    ) -> None:
        if block_size & (block_size - 1):
            raise InputError(
                f"block_size={block_size} is not a power of two, which attention_backend='triton' needs. "
                "Choose another block_size, or attention_backend='torch'."
            )
        if head_size > MAX_HEAD_SIZE:
            raise InputError(
                f"The model's head size {head_size} is larger than {MAX_HEAD_SIZE}, the largest that "
                "attention_backend='triton' knows. Use attention_backend='torch'."
            )
        super().__init__(num_heads, num_kv_heads, head_size, block_size)
        self.reshape_and_cache = part("reshape_and_cache") if part else reshape_and_cache
        self.kernels = {name: part(name) for name in KERNEL_PARTS} if part else {}
        interpreter.speed_up()

    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """See `AttentionBackend.build`.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionMetadataBuilder.build
        """
        num_row_tokens = int(common.query_start_loc_cpu[common.num_reqs])
        form = choose_form(common.num_reqs, num_row_tokens, common.max_query_len, self.num_kv_heads)
        plan = TritonPlan(
            form=form,
            num_segments=NUM_SEGMENTS if form == "split" else 1,
            all_tokens_have_rows=num_row_tokens == common.num_actual_tokens,
        )
        return AttentionMetadata(common=common, backend=plan)

    @boundary("do_kv_cache_update")
    def do_kv_cache_update(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """See `AttentionBackend.do_kv_cache_update`.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.do_kv_cache_update
        """
        k_cache, v_cache = kv_cache.unbind(1)
        self.reshape_and_cache(key, value, k_cache, v_cache, slot_mapping, launch=self.launch)

    @boundary("attention")
    def forward(
        self, layer_idx: int, query: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.forward
        """
        common, plan = attn_metadata.common, attn_metadata.backend
        k_cache, v_cache = kv_cache.unbind(1)
        table, seq_lens = common.block_table_tensor, common.seq_lens
        complete = plan.all_tokens_have_rows and query.shape[0] == common.num_actual_tokens
        out = torch.empty_like(query) if complete else torch.zeros_like(query)
        if plan.form == "varlen":
            starts = common.query_start_loc
            paged_attention(query, k_cache, v_cache, starts, seq_lens, table, self.scale, out=out, launch=self.launch)
            return out
        rows = slice(0, common.num_reqs)
        decode = (query[rows], k_cache, v_cache, table, seq_lens, self.scale, out[rows])
        if plan.form == "split":
            paged_decode_split(*decode, plan.num_segments, launch=self.launch_part)
        else:
            paged_decode(*decode, launch=self.launch_part)
        return out

    def launch_part(self, kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        """Launch the kernel that stands in for `kernel`: see parts.py.

        vLLM: none, vLLM has no parts
        """
        self.launch(self.kernels.get(kernel.__name__, kernel), grid, **arguments)

    @boundary("kernel.launch")
    def launch(self, kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        """Launch a kernel: `grid` programs with these arguments (tensors, numbers, constants, num_warps, num_stages).

        vLLM: none, vLLM launches each kernel where it is needed
        """
        launch_kernel(kernel, grid, **arguments)

    @property
    def probe(self) -> ModuleType:
        """For whoever observes `launch`: tells the facts of a launch, and what its programs did.

        vLLM: none, vLLM has no probe
        """
        from minivllm_kernels import probe

        return probe
