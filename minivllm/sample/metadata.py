"""SamplingMetadata: the sampling parameters of a batch, a row a request. Made by InputBatch, read by the sampler."""

from dataclasses import dataclass, field

import torch


@dataclass(slots=True)
class SamplingMetadata:
    """One row a request, in row order; R rows, V vocabulary. A tensor that no row needs is None.

    `output_token_ids` are live lists: they grow by themselves, so the rest need only be rebuilt when rows change.

    vLLM: v1/sample/metadata.py::SamplingMetadata
    """

    all_greedy: bool
    all_random: bool
    temperature: torch.Tensor | None  # float32[R]; 0 for a greedy row; None when all are greedy
    top_p: torch.Tensor | None  # float32[R]; 1 is off
    top_k: torch.Tensor | None  # int64[R]; V is off
    min_p: torch.Tensor | None  # float32[R]; 0 is off
    generators: dict[int, torch.Generator]  # row -> its own generator, for rows with a seed
    max_num_logprobs: int | None  # largest of the batch; None: nobody asked; -1: the whole vocabulary
    prompt_token_ids: list[list[int]]
    output_token_ids: list[list[int]]
    presence_penalties: torch.Tensor | None  # float32[R]; the three are None together
    frequency_penalties: torch.Tensor | None
    repetition_penalties: torch.Tensor | None
    allowed_token_ids_mask: torch.Tensor | None = None  # bool[R, V]; True is forbidden
    bad_words_token_ids: dict[int, list[list[int]]] = field(default_factory=dict)  # row -> sequences
    min_tokens: dict[int, tuple[int, set[int]]] = field(default_factory=dict)  # row -> (min_tokens, stop ids to mask)
    logit_bias: dict[int, dict[int, float]] = field(default_factory=dict)  # row -> token id -> bias
