"""Log-probabilities of the prompt's own tokens, collected chunk by chunk until the prompt is complete.

The hidden state of prompt token i gives the logprob of prompt token i + 1, so a prompt of P tokens has P - 1 of them.
"""

from collections.abc import Callable

import numpy as np
import torch

from minivllm.engine.messages import LogprobsLists
from minivllm.sample.sampler import gather_logprobs
from minivllm.worker.batch import FlatBatch
from minivllm.worker.input_batch import CachedRequestState, InputBatch


def get_prompt_logprobs_dict(
    input_batch: InputBatch,
    batch: FlatBatch,
    hidden_states: torch.Tensor,
    compute_logits: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, LogprobsLists]:
    """Prompt logprobs of the requests that want them and whose prompt ends in this step. hidden_states: [T, hidden].

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._get_prompt_logprobs_dict
    """
    complete = {}
    for row, req_id in enumerate(input_batch.req_ids):
        state = input_batch.requests[req_id]
        if state.sampling_params.prompt_logprobs is None or state.prompt_logprobs_sent:
            continue
        num_wanted = state.sampling_params.prompt_logprobs
        if num_wanted == -1:
            num_wanted = input_batch.vocab_size
        first = state.num_computed_tokens
        total = len(state.prompt_token_ids) - 1
        start = int(batch.query_start_loc[row])
        num_scheduled = int(batch.query_start_loc[row + 1]) - start
        num_logits = min(num_scheduled, total - first)
        if state.prompt_logprobs is None:
            state.prompt_logprobs = _empty(total, num_wanted)
        if num_logits > 0:
            logits = compute_logits(hidden_states[start : start + num_logits])
            _fill(state, first, num_logits, num_wanted, logits)
        if first + num_scheduled > total:
            complete[req_id] = state.prompt_logprobs
            state.prompt_logprobs, state.prompt_logprobs_sent = None, True
    return complete


def _empty(places: int, num_wanted: int) -> LogprobsLists:
    return LogprobsLists(
        logprob_token_ids=np.zeros((places, num_wanted + 1), dtype=np.int32),
        logprobs=np.zeros((places, num_wanted + 1), dtype=np.float32),
        sampled_token_ranks=np.zeros(places, dtype=np.int64),
    )


def _fill(state: CachedRequestState, first: int, num_logits: int, num_wanted: int, logits: torch.Tensor) -> None:
    """Write places first .. first + num_logits - 1 from logits [num_logits, V]."""
    next_token_ids = torch.tensor(state.prompt_token_ids[first + 1 : first + 1 + num_logits], device=logits.device)
    logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
    gathered = gather_logprobs(logprobs, num_wanted, next_token_ids)
    places = slice(first, first + num_logits)
    state.prompt_logprobs.logprob_token_ids[places] = gathered.logprob_token_ids.cpu().numpy()
    state.prompt_logprobs.logprobs[places] = gathered.logprobs.cpu().numpy()
    state.prompt_logprobs.sampled_token_ranks[places] = gathered.selected_token_ranks.cpu().numpy()
