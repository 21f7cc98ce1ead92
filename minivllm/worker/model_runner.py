"""ModelRunner: from a plan to tokens.

Owns: the model, the KV cache tensors (one a layer), the input batch, the sampler; and, between execute_model and
sample_tokens, the logits of the step.
Interface: initialize; execute_model (flatten, forward), sample_tokens (choose, remember).
Must not know: queues, blocks' owners, text.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from minivllm.attention.backend import AttentionBackend
from minivllm.attention.metadata import AttentionMetadata, CommonAttentionMetadata
from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.sched_output import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput, SchedulerOutput
from minivllm.engine.messages import LogprobsLists
from minivllm.models.llama import LlamaForCausalLM
from minivllm.models.model_config import ModelConfig
from minivllm.sample.sampler import LogprobsTensors, Sampler
from minivllm.worker.batch import FlatBatch, flatten
from minivllm.worker.input_batch import InputBatch
from minivllm.worker.prompt_logprobs import get_prompt_logprobs_dict

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ExecuteModelState:
    """What waits between execute_model and sample_tokens.

    vLLM: v1/worker/gpu_model_runner.py::ExecuteModelState
    """

    batch: FlatBatch
    hidden_states: torch.Tensor  # [num_tokens, hidden]
    logits: torch.Tensor  # [num_reqs, vocab]


class ModelRunner:
    """vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner (the V1 runner, without graphs and padding)"""

    def __init__(
        self,
        config: EngineConfig,
        model_config: ModelConfig,
        model: LlamaForCausalLM,
        backend: AttentionBackend,
        num_blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        input_batch_class: type[InputBatch] = InputBatch,
        flatten_rows: Callable[..., FlatBatch] = flatten,
        sampler_class: type[Sampler] = Sampler,
    ) -> None:
        self.model = model
        self.backend = backend
        self.device = device
        shape = backend.kv_cache_shape(num_blocks, config.block_size, model_config.num_kv_heads, model_config.head_size)
        self.kv_caches = [_zeros(shape, dtype, device) for _ in range(model_config.num_layers)]
        self.input_batch = input_batch_class(
            max_num_reqs=config.max_num_seqs,
            max_model_len=config.max_model_len,
            block_size=config.block_size,
            vocab_size=model_config.vocab_size,
            device=device,
            flatten_rows=flatten_rows,
        )
        self.sampler = sampler_class(config.seed, device)
        self.execute_model_state: ExecuteModelState | None = None
        self.nan_seen = False

    @torch.inference_mode()
    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run the plan's tokens through the model. None: the logits wait, call sample_tokens.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner.execute_model
        """
        if self.execute_model_state is not None:
            raise RuntimeError("sample_tokens() must be called after execute_model() returns None")
        self.input_batch.update_states(plan)
        if not plan.num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        batch = self.prepare_inputs(plan)
        slot_mapping = self.get_slot_mappings(batch)
        attn_metadata = self.build_attention_metadata(batch, slot_mapping)
        hidden_states = self.model_forward(batch, attn_metadata)
        logits = self.model.compute_logits(hidden_states[self._to_device(batch.logits_indices)])
        self.execute_model_state = ExecuteModelState(batch, hidden_states, logits)
        return None

    @torch.inference_mode()
    def sample_tokens(self) -> ModelRunnerOutput:
        """Choose a token for every row, and forget it again where the prompt is not complete yet.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner.sample_tokens
        """
        state, self.execute_model_state = self.execute_model_state, None
        if state is None:
            raise RuntimeError("execute_model() must be called before sample_tokens()")
        discarded_rows = self.input_batch.rows_with_incomplete_prompt(state.batch.seq_lens)
        metadata = self.input_batch.make_sampling_metadata()
        output = self.sampler.forward(state.logits, metadata, discarded_rows)
        sampled_token_ids = [[token_id] for token_id in output.sampled_token_ids.tolist()]
        if not self.nan_seen:
            self._warn_of_nan(state.logits)
        for row in discarded_rows:
            sampled_token_ids[row] = []
        prompt_logprobs = get_prompt_logprobs_dict(
            self.input_batch, state.batch, state.hidden_states, self.model.compute_logits
        )
        self.input_batch.append_sampled_tokens(sampled_token_ids)
        return ModelRunnerOutput(
            req_ids=list(self.input_batch.req_ids),
            req_id_to_index=dict(self.input_batch.req_id_to_index),
            sampled_token_ids=sampled_token_ids,
            logprobs=_to_lists(output.logprobs_tensors),
            prompt_logprobs_dict=prompt_logprobs,
        )

    def _warn_of_nan(self, logits: torch.Tensor) -> None:
        """Say once that logits are NaN. The sums of the rows show it, on a CPU in 0.01 ms for one row of 49,152 tokens
        and in 0.1 ms for 64.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._get_nans_in_logits (counts, only if asked to)
        """
        rows = logits.sum(dim=-1).isnan().tolist()
        self.nan_seen = any(rows)
        if self.nan_seen:
            requests = ", ".join(self.input_batch.req_ids[row] for row in range(len(rows)) if rows[row])
            logger.warning(
                "The logits of %s are NaN, so any token may follow. The model's weights hold NaN, or its values are "
                "beyond what %s can hold: try dtype='float32'. This is said once.",
                requests,
                logits.dtype,
            )

    @boundary("prepare_inputs")
    def prepare_inputs(self, plan: SchedulerOutput) -> FlatBatch:
        """The plan as one flat batch, in row order.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
        """
        return self.input_batch.flatten(plan)

    @boundary("get_slot_mappings")
    def get_slot_mappings(self, batch: FlatBatch) -> torch.Tensor:
        """Where each token's K and V go, on the device: int64[num_tokens], the same for every layer.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._get_slot_mappings
        """
        return self._to_device(batch.slot_mapping)

    @boundary("build_attention_metadata")
    def build_attention_metadata(self, batch: FlatBatch, slot_mapping: torch.Tensor) -> AttentionMetadata:
        """What the attention layers need to know, made once for all of them.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._build_attention_metadata
        """
        query_start_loc = torch.from_numpy(batch.query_start_loc)
        seq_lens = torch.from_numpy(batch.seq_lens)
        num_reqs = len(batch.seq_lens)
        common = CommonAttentionMetadata(
            query_start_loc=query_start_loc.to(self.device),
            query_start_loc_cpu=query_start_loc,
            seq_lens=seq_lens.to(self.device),
            seq_lens_cpu=seq_lens,
            num_reqs=num_reqs,
            num_actual_tokens=batch.num_actual_tokens,
            max_query_len=int(query_start_loc.diff().max()),
            max_seq_len=int(seq_lens.max()),
            block_table_tensor=self._to_device(self.input_batch.block_table.block_table[:num_reqs]),
            slot_mapping=slot_mapping,
        )
        return self.backend.build(common)

    @boundary("model_forward")
    def model_forward(self, batch: FlatBatch, attn_metadata: AttentionMetadata) -> torch.Tensor:
        """The flat batch through all layers: hidden states [num_tokens, hidden].

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._model_forward
        """
        return self.model(
            self._to_device(batch.input_ids), self._to_device(batch.positions), self.kv_caches, attn_metadata
        )

    def _to_device(self, array) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on a CPU without touching them, so that a cache takes real memory only where it has been written to."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)


def _to_lists(tensors: LogprobsTensors | None) -> LogprobsLists | None:
    """vLLM: v1/outputs.py::LogprobsTensors.tolists"""
    if tensors is None:
        return None
    return LogprobsLists(
        logprob_token_ids=tensors.logprob_token_ids.cpu().numpy(),
        logprobs=tensors.logprobs.cpu().numpy(),
        sampled_token_ranks=tensors.selected_token_ranks.cpu().numpy(),
    )
