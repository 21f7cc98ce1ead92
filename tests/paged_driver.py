"""A tiny driver: runs a model over a paged cache with metadata made by hand, without scheduler or model runner."""

import random
from pathlib import Path

import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import CommonAttentionMetadata
from minivllm.attention.selector import get_attn_backend
from minivllm.models.loader import load_model
from minivllm.models.model_config import load_model_config


def common_metadata(
    query_lens: list[int], seq_lens: list[int], block_tables: list[list[int]], block_size: int
) -> CommonAttentionMetadata:
    """Metadata of rows whose last `query_lens[r]` of `seq_lens[r]` tokens are new, in the blocks `block_tables[r]`."""
    starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    lens = torch.tensor(seq_lens, dtype=torch.int32)
    width = max((len(blocks) for blocks in block_tables), default=0) + 1
    table = torch.zeros(len(block_tables), width, dtype=torch.int32)
    slots = []
    for row, blocks in enumerate(block_tables):
        table[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        places = range(seq_lens[row] - query_lens[row], seq_lens[row])
        slots += [blocks[place // block_size] * block_size + place % block_size for place in places]
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu=lens,
        num_reqs=len(seq_lens),
        num_actual_tokens=len(slots),
        max_query_len=max(query_lens, default=0),
        max_seq_len=max(seq_lens, default=0),
        block_table_tensor=table,
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
    )


class PagedDriver:
    """Sequences by name, each in blocks of its own, taken from a shuffled pool. Unwritten slots hold NaN."""

    def __init__(
        self,
        folder: Path,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        backend: AttentionBackend | None = None,
        num_slots: int = 512,
    ) -> None:
        config = load_model_config(folder)
        self.block_size = block_size
        self.backend = backend or get_attn_backend(
            "torch",
            "cpu",
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_kv_heads,
            head_size=config.head_size,
            block_size=block_size,
        )
        self.model = load_model(config, dtype, "cpu", self.backend)
        num_blocks = num_slots // block_size + 1
        shape = self.backend.kv_cache_shape(num_blocks, block_size, config.num_kv_heads, config.head_size)
        self.kv_caches = [torch.full(shape, torch.nan, dtype=dtype) for _ in range(config.num_layers)]
        self.free_blocks = list(range(1, num_blocks))  # block 0 is the null block
        random.Random(0).shuffle(self.free_blocks)
        self.blocks: dict[str, list[int]] = {}
        self.tokens: dict[str, list[int]] = {}

    @torch.inference_mode()
    def step(self, work: dict[str, list[int]]) -> dict[str, torch.Tensor]:
        """Run one flat batch: for each sequence its new tokens. Gives logits [new tokens, vocab] of each sequence."""
        query_lens, seq_lens, input_ids, positions = [], [], [], []
        for name, new_tokens in work.items():
            tokens, blocks = self.tokens.setdefault(name, []), self.blocks.setdefault(name, [])
            positions += range(len(tokens), len(tokens) + len(new_tokens))
            tokens += new_tokens
            input_ids += new_tokens
            while len(blocks) * self.block_size < len(tokens):
                blocks.append(self.free_blocks.pop())
            query_lens.append(len(new_tokens))
            seq_lens.append(len(tokens))
        common = common_metadata(query_lens, seq_lens, [self.blocks[name] for name in work], self.block_size)
        metadata = self.backend.build(common)
        hidden = self.model(torch.tensor(input_ids), torch.tensor(positions), self.kv_caches, metadata)
        logits = self.model.compute_logits(hidden).split(query_lens)
        return dict(zip(work, logits, strict=True))
