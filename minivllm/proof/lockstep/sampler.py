"""The sampler in lockstep: recorded logits in, the distribution just before the random draw out.

Owns: how a recorded row becomes a row of a batch.
Interface: replay_sampler.
Must not know: what vLLM did.
"""

from typing import Any

from minivllm.proof.lockstep.recording import Workload
from minivllm.sampling_params import SamplingParams, SamplingType

EOS_TOKEN_ID = 2  # of all recorded rows
MAX_TOKENS = 64


def replay_sampler(case: Workload) -> list[dict[str, Any]]:
    """What the sampler makes of a batch of recorded logits, a dict a row.

    `processed_logprobs` has None for a masked token, and is None for a greedy row, which has `greedy_token`.
    """
    import torch  # here, since replaying a scheduler needs none of it

    from minivllm.sample.sampler import process
    from minivllm.worker.input_batch import CachedRequestState, make_sampling_metadata

    states = [
        CachedRequestState(
            req_id=f"q{index}",
            prompt_token_ids=row["prompt_token_ids"],
            sampling_params=sampling_params_of(row),
            block_ids=[],
            num_computed_tokens=0,
            output_token_ids=row["output_token_ids"],
        )
        for index, row in enumerate(case["rows"])
    ]
    logits = torch.tensor([row["logits"] for row in case["rows"]], dtype=torch.float32)
    greedy, processed = process(logits, make_sampling_metadata(states, logits.shape[1], logits.device))
    logprobs = processed.log_softmax(dim=-1).tolist()
    replayed = []
    for index, state in enumerate(states):
        if state.sampling_params.sampling_type is SamplingType.GREEDY:
            replayed.append({"processed_logprobs": None, "greedy_token": int(greedy[index])})
        else:
            replayed.append({"processed_logprobs": describe_logprobs(logprobs[index]), "greedy_token": None})
    return replayed


def describe_logprobs(logprobs: list[float]) -> list[float | None]:
    """A row's log-probabilities as they are recorded: five decimals, None for a masked token."""
    return [None if value == float("-inf") else round(value, 5) for value in logprobs]


def sampling_of(recorded: dict[str, Any]) -> dict[str, Any]:
    """Recorded SamplingParams as they were: JSON has made strings of the keys of logit_bias."""
    if not recorded.get("logit_bias"):
        return recorded
    return recorded | {"logit_bias": {int(token): bias for token, bias in recorded["logit_bias"].items()}}


def sampling_params_of(row: dict[str, Any]) -> SamplingParams:
    """The SamplingParams of a recorded row, ready for a batch."""
    params = SamplingParams(max_tokens=MAX_TOKENS, **sampling_of(row["sampling"]))
    params.set_stop_tokens(EOS_TOKEN_ID)
    params._bad_words_token_ids = row["bad_words_token_ids"]
    return params
