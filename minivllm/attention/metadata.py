"""AttentionMetadata: what the attention layers need to know about a flat batch. An argument, never a global."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(slots=True)
class CommonAttentionMetadata:
    """The flat batch as attention sees it; made once a step, the same for every layer.

    vLLM: v1/attention/backend.py::CommonAttentionMetadata
    """

    query_start_loc: torch.Tensor  # int32[num_reqs + 1], device; row r holds tokens query_start_loc[r]..[r+1]-1
    query_start_loc_cpu: torch.Tensor  # the same, cpu
    seq_lens: torch.Tensor  # int32[num_reqs], device; computed tokens + this step's
    seq_lens_cpu: torch.Tensor  # the same, cpu
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: torch.Tensor  # int32[num_reqs, max_blocks], device; entries beyond a row's blocks are 0
    slot_mapping: torch.Tensor  # int64[num_actual_tokens], device; where each token's K and V go; -1: nowhere


@dataclass(slots=True)
class AttentionMetadata:
    """`common`, and what the backend computed from it once for all layers.

    vLLM: v1/attention/backends/triton_attn.py::TritonAttentionMetadata (role)
    """

    common: CommonAttentionMetadata
    backend: Any  # owned by the backend that built it
