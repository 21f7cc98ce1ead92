"""TorchBackend: paged attention in plain torch, for every device. The reference that other backends are compared with.

Owns: nothing between steps.
Interface: see AttentionBackend.
Must not know: anything that AttentionBackend must not know.

A step's rows are sorted into parts. Each row with many new tokens (a prefill chunk) is a part of its own. Rows with
one new token (decode) are batched; rows of about the same length share a part, so that padding at most doubles the
work. What a part reads and may see is computed once a step; a layer gathers and attends.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary


@dataclass(slots=True)
class PrefillPart:
    """One row with several new tokens: the last `num_queries` of its `seq_len` tokens.

    vLLM: none, vLLM's kernels take the flat batch as it is
    """

    start: int  # its first token in the flat batch
    num_queries: int
    k_lines: torch.Tensor  # int64[seq_len], device; see TorchBackend._lines
    v_lines: torch.Tensor
    mask: torch.Tensor | None  # bool[num_queries, seq_len], True: may see; None: nothing computed before, plain causal


@dataclass(slots=True)
class DecodePart:
    """R rows with one new token each, padded to the longest of them, L tokens.

    vLLM: none, vLLM's kernels take the flat batch as it is
    """

    tokens: torch.Tensor  # int64[R], device; each row's token in the flat batch
    k_lines: torch.Tensor  # int64[R * L], device; padding repeats the row's first token, so no foreign slot is read
    v_lines: torch.Tensor
    mask: torch.Tensor  # bool[R, 1, 1, L], device; True: may see


class TorchBackend(AttentionBackend):
    """Gather K and V through the block table, then scaled_dot_product_attention.

    vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackend (role)
    """

    name = "torch"

    def build(self, common: CommonAttentionMetadata) -> AttentionMetadata:
        """See `AttentionBackend.build`.

        vLLM: v1/attention/backend.py::AttentionMetadataBuilder.build
        """
        starts = common.query_start_loc_cpu[: common.num_reqs].long()
        query_lens = common.query_start_loc_cpu[1 : common.num_reqs + 1].long() - starts
        seq_lens = common.seq_lens_cpu[: common.num_reqs].long()
        parts: list[PrefillPart | DecodePart] = []
        for row in ((query_lens > 1) & (seq_lens > 0)).nonzero()[:, 0].tolist():
            parts.append(self._prefill_part(common, row, starts, query_lens, seq_lens))
        decode_rows = ((query_lens == 1) & (seq_lens > 0)).nonzero()[:, 0]
        if decode_rows.numel():
            lens = seq_lens[decode_rows]
            halvings = (lens.max() / lens).log2().long()  # 0: longer than half of the longest row, and so on
            for n in halvings.unique().tolist():
                parts.append(self._decode_part(common, decode_rows[halvings == n], starts, seq_lens))
        return AttentionMetadata(common=common, backend=parts)

    @boundary("do_kv_cache_update")
    def do_kv_cache_update(
        self, layer_idx: int, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slot_mapping: torch.Tensor
    ) -> None:
        """See `AttentionBackend.do_kv_cache_update`.

        vLLM: v1/attention/backends/triton_attn.py::TritonAttentionImpl.do_kv_cache_update
        """
        key, value = key[: slot_mapping.shape[0]], value[: slot_mapping.shape[0]]
        written = slot_mapping >= 0
        if not written.all():
            slot_mapping, key, value = slot_mapping[written], key[written], value[written]
        k_lines, v_lines = self._lines(slot_mapping)
        lines = kv_cache.view(-1, self.num_kv_heads, self.head_size)
        lines[k_lines] = key
        lines[v_lines] = value

    @boundary("attention")
    def forward(
        self, layer_idx: int, query: torch.Tensor, kv_cache: torch.Tensor, attn_metadata: AttentionMetadata
    ) -> torch.Tensor:
        """See `AttentionBackend.forward`.

        vLLM: v1/attention/backends/cpu_attn.py::CPUAttentionBackendImpl.forward (role)
        """
        output = torch.zeros_like(query)
        for part in attn_metadata.backend:
            if isinstance(part, DecodePart):
                output[part.tokens] = self._decode(query[part.tokens], kv_cache, part)
            else:
                tokens = slice(part.start, part.start + part.num_queries)
                output[tokens] = self._prefill(query[tokens], kv_cache, part)
        return output

    def _prefill(self, query: torch.Tensor, kv_cache: torch.Tensor, part: PrefillPart) -> torch.Tensor:
        keys, values = self._gather(kv_cache, part, rows=1)
        attended = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            keys,
            values,
            attn_mask=part.mask,
            is_causal=part.mask is None,
            scale=self.scale,
            enable_gqa=True,
        )
        return attended[0].transpose(0, 1)

    def _decode(self, query: torch.Tensor, kv_cache: torch.Tensor, part: DecodePart) -> torch.Tensor:
        """The query heads of a KV head take the place of query tokens: 4 times faster than enable_gqa in bfloat16."""
        rows = query.shape[0]
        keys, values = self._gather(kv_cache, part, rows)
        grouped = query.view(rows, self.num_kv_heads, -1, self.head_size)
        attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=part.mask, scale=self.scale)
        return attended.reshape(rows, self.num_heads, self.head_size)

    def _gather(
        self, kv_cache: torch.Tensor, part: PrefillPart | DecodePart, rows: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V that `part` reads, each [rows, Hkv, L, D]."""
        lines = kv_cache.view(-1, self.num_kv_heads, self.head_size)
        shape = (rows, -1, self.num_kv_heads, self.head_size)
        return (
            lines.index_select(0, part.k_lines).view(shape).transpose(1, 2),
            lines.index_select(0, part.v_lines).view(shape).transpose(1, 2),
        )

    def _lines(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where K and V of `slots` are in a cache seen as [num_blocks * 2 * block_size, Hkv, D]."""
        k_lines = slots + slots // self.block_size * self.block_size
        return k_lines, k_lines + self.block_size

    def _slots(self, common: CommonAttentionMetadata, rows: torch.Tensor, length: int) -> torch.Tensor:
        """Slots of the first `length` tokens of `rows`: int64[len(rows), length]."""
        blocks = common.block_table_tensor[rows].long()
        places = torch.arange(length, device=blocks.device)
        return blocks[:, places // self.block_size] * self.block_size + places % self.block_size

    def _prefill_part(
        self,
        common: CommonAttentionMetadata,
        row: int,
        starts: torch.Tensor,
        query_lens: torch.Tensor,
        seq_lens: torch.Tensor,
    ) -> PrefillPart:
        num_queries, seq_len = int(query_lens[row]), int(seq_lens[row])
        slots = self._slots(common, torch.tensor([row], device=common.block_table_tensor.device), seq_len)[0]
        mask = None
        if seq_len > num_queries:
            places = torch.arange(seq_len, device=slots.device)
            mask = places <= places[seq_len - num_queries :, None]
        k_lines, v_lines = self._lines(slots)
        return PrefillPart(int(starts[row]), num_queries, k_lines, v_lines, mask)

    def _decode_part(
        self, common: CommonAttentionMetadata, rows: torch.Tensor, starts: torch.Tensor, seq_lens: torch.Tensor
    ) -> DecodePart:
        device = common.block_table_tensor.device
        length = int(seq_lens[rows].max())
        slots = self._slots(common, rows.to(device), length)
        seen = torch.arange(length, device=device) < seq_lens[rows].to(device)[:, None]
        slots = torch.where(seen, slots, slots[:, :1])
        k_lines, v_lines = self._lines(slots.flatten())
        return DecodePart(starts[rows].to(device), k_lines, v_lines, mask=seen[:, None, None])
