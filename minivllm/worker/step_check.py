"""CheckedModelRunner: the model runner that looks at every step's numbers before a kernel believes them.

Kernels take slots, positions and block ids as they are: one that is too large reads or writes outside of the cache. The
engine's own numbers are right. So this runner takes the place of ModelRunner only where a part of somebody else comes
before the kernels, or where EngineConfig.check_steps asks for it.

Owns: the limits of a step's numbers.
Interface: ModelRunner's; needs_check says which of the two an engine gets.
Must not know: what made a number, beyond the names of the parts that are set.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minivllm.config import EngineConfig, cdiv
from minivllm.core.sched_output import SchedulerOutput
from minivllm.models.model_config import ModelConfig
from minivllm.parts import BEFORE_KERNELS
from minivllm.worker.batch import PAD_SLOT_ID, FlatBatch
from minivllm.worker.model_runner import ModelRunner


def needs_check(config: EngineConfig) -> bool:
    """Whether the numbers of a step may come from something else than the engine, or a check is asked for."""
    return config.check_steps or not BEFORE_KERNELS.isdisjoint(config.parts)


class CheckedModelRunner(ModelRunner):
    """vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner (role; vLLM checks no bounds)"""

    def __init__(self, config: EngineConfig, model_config: ModelConfig, *args: Any, num_blocks: int, **kwargs: Any):
        super().__init__(config, model_config, *args, num_blocks=num_blocks, **kwargs)
        self.num_blocks, self.block_size = num_blocks, config.block_size
        self.max_model_len, self.vocab_size = config.max_model_len, model_config.vocab_size
        set_here = [f"parts[{seam!r}]={spec!r}" for seam, spec in config.parts.items() if seam in BEFORE_KERNELS]
        self.blame = (
            f"It may come from {', '.join(set_here)}." if set_here else "No part is set: report this as a fault."
        )

    def prepare_inputs(self, plan: SchedulerOutput) -> FlatBatch:
        """See `ModelRunner.prepare_inputs`. Raises IndexError that names row, value, limit and the parts that are set.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
        """
        batch = super().prepare_inputs(plan)
        fault = next(self._faults(batch), None)
        if fault is not None:
            raise IndexError(f"{fault}. {self.blame}")
        return batch

    def _faults(self, batch: FlatBatch) -> Iterator[str]:
        num_tokens, num_reqs = len(batch.positions), self.input_batch.num_reqs
        for name, length in (
            ("input_ids", num_tokens),
            ("slot_mapping", num_tokens),
            ("query_start_loc", num_reqs + 1),
            ("seq_lens", num_reqs),
            ("logits_indices", num_reqs),
        ):
            found = len(getattr(batch, name))
            if found != length:
                yield f"{name} has {found} numbers; {num_reqs} rows with {num_tokens} tokens need {length}"
        starts, seq_lens = np.asarray(batch.query_start_loc), np.asarray(batch.seq_lens)
        rows = np.arange(num_reqs)
        row_of_token = np.searchsorted(starts[1:], np.arange(num_tokens), side="right")
        query_lens = np.diff(starts)
        limit = self.num_blocks * self.block_size
        cache = f"the cache has {self.num_blocks} blocks of {self.block_size} tokens"
        lengths = f"max_model_len={self.max_model_len}"
        yield from self._outside("query_start_loc", starts[:1], rows, 0, 0, "where the first row begins")
        yield from self._outside("query_start_loc", starts[1:], rows, 0, num_tokens, "tokens of the step")
        yield from self._outside("new tokens", query_lens, rows, 0, num_tokens, "tokens of the step")
        yield from self._outside("seq_lens", seq_lens, rows, 0, self.max_model_len, lengths)
        yield from self._outside("computed tokens", seq_lens - query_lens, rows, 0, self.max_model_len, lengths)
        yield from self._outside("positions", batch.positions, row_of_token, 0, self.max_model_len - 1, lengths)
        yield from self._outside("slot_mapping", batch.slot_mapping, row_of_token, PAD_SLOT_ID, limit - 1, cache)
        yield from self._outside("logits_indices", batch.logits_indices, rows, 0, num_tokens - 1, "tokens of the step")
        yield from self._outside(
            "input_ids", batch.input_ids, row_of_token, 0, self.vocab_size - 1, f"vocab_size={self.vocab_size}"
        )
        width = cdiv(int(seq_lens.max(initial=0)), self.block_size)
        table = self.input_batch.block_table.block_table[:num_reqs, :width]
        rows_of_table = np.repeat(rows, table.shape[1])
        yield from self._outside("block_table", table.reshape(-1), rows_of_table, 0, self.num_blocks - 1, cache)

    def _outside(
        self, name: str, values: np.ndarray, rows: np.ndarray, lowest: int, highest: int, why: str
    ) -> Iterator[str]:
        """The first of `values` that is not from `lowest` to `highest`. rows: which row each belongs to."""
        values = np.asarray(values)
        if not values.size or (lowest <= values.min() and values.max() <= highest):
            return
        place = int(((values < lowest) | (values > highest)).argmax())
        row = int(rows[place])
        owner = f"row {row} (request {self.input_batch.req_ids[row]})" if row < self.input_batch.num_reqs else "padding"
        yield f"{name} of {owner} has {values[place]} at {place}, outside of {lowest} to {highest} ({why})"
