"""Sampler: logits in, one token a row out.

Owns: the generator of rows without a seed.
Interface: forward; process (everything but the draw), random_sample, gather_logprobs.
Must not know: requests, or what a row's tokens mean.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from minivllm.boundary import boundary
from minivllm.sample.logits_processors import (
    apply_allowed_token_ids,
    apply_bad_words,
    apply_logit_bias,
    apply_min_p,
    apply_min_tokens,
    apply_penalties,
    apply_temperature,
    apply_top_k_top_p,
)
from minivllm.sample.metadata import SamplingMetadata
from minivllm.sampling_params import SAMPLING_EPS

BLOCK = 256  # tokens whose probabilities are added up at once


@dataclass(slots=True)
class LogprobsTensors:
    """Candidates, k a row; column 0 is the token that was chosen.

    vLLM: v1/outputs.py::LogprobsTensors
    """

    logprob_token_ids: torch.Tensor  # int32[R, k + 1]
    logprobs: torch.Tensor  # float32[R, k + 1]
    selected_token_ranks: torch.Tensor  # int64[R], 1 is the likeliest


@dataclass(slots=True)
class SamplerOutput:
    """vLLM: v1/outputs.py::SamplerOutput"""

    sampled_token_ids: torch.Tensor  # int64[R]
    logprobs_tensors: LogprobsTensors | None
    processed_logits: torch.Tensor  # float32[R, V]; what the tokens were chosen from


class Sampler:
    """vLLM: v1/sample/sampler.py::Sampler"""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    @boundary("sampler.forward")
    def forward(
        self, logits: torch.Tensor, metadata: SamplingMetadata, discarded_rows: set[int] = frozenset()
    ) -> SamplerOutput:
        """Choose a token for every row of logits [R, V], any float dtype; the logits are not changed.

        discarded_rows: rows whose token will be thrown away. Their own generators draw nothing, so a seeded request
        gets the same tokens whether or not its prompt was computed in chunks.

        vLLM: v1/sample/sampler.py::Sampler.forward (vLLM rewinds the generators of discarded rows instead)
        """
        greedy, processed = process(logits, metadata)
        sampled = greedy
        if not metadata.all_greedy:
            # >>> lab 11.4 draw; greedy rows keep their token, discarded rows their generators
            generators = {row: g for row, g in metadata.generators.items() if row not in discarded_rows}
            sampled = self._draw(processed.softmax(dim=-1), generators)
            if greedy is not None:
                sampled = torch.where(metadata.temperature < SAMPLING_EPS, greedy, sampled)
            # <<< lab 11.4
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)

    def _draw(self, probs: torch.Tensor, generators: dict[int, torch.Generator]) -> torch.Tensor:
        """A token a row, the quickest way that there is: int64[R]."""
        if probs.is_cpu and not generators:
            return sample_from_sums(probs, self.generator)
        return random_sample(probs, generators, self.generator)


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Everything before the draw, in vLLM's order.

    Returns (the greedy choice int64[R], or None when every row is random; the processed logits float32[R, V]).

    vLLM: v1/sample/sampler.py::Sampler.sample
    """
    logits = logits.to(torch.float32)
    if metadata.allowed_token_ids_mask is not None:
        logits = apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)
    if metadata.bad_words_token_ids:
        logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)
    if metadata.min_tokens:
        logits = apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)
    if metadata.logit_bias:
        logits = apply_logit_bias(logits, metadata.logit_bias)
    if metadata.presence_penalties is not None:
        logits = apply_penalties(
            logits,
            metadata.prompt_token_ids,
            metadata.output_token_ids,
            metadata.presence_penalties,
            metadata.frequency_penalties,
            metadata.repetition_penalties,
        )
    greedy = None if metadata.all_random else logits.argmax(dim=-1)
    if metadata.all_greedy:
        return greedy, logits
    logits = apply_temperature(logits, metadata.temperature)
    if metadata.min_p is not None:
        logits = apply_min_p(logits, metadata.min_p)
    return greedy, apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    """Draw a token a row from probs float32[R, V]: int64[R].

    An exponential race: argmax(probs / q) with q ~ Exp(1) chooses token i with probability probs[i]. A row with a
    generator of its own draws its q from it, whatever the other rows are.

    vLLM: v1/sample/ops/topk_topp_sampler.py::random_sample
    """
    q = torch.empty_like(probs)
    if len(generators) < len(probs):
        q.exponential_(generator=default)
    for row, generator in generators.items():
        q[row].exponential_(generator=generator)
    return probs.div_(q).argmax(dim=-1)


def sample_from_sums(probs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw a token a row from probs float32[R, V] with one random number a row: int64[R].

    The first token at which the sum of the probabilities exceeds the number: first the block of tokens in which that
    happens, then the token. A CPU makes random numbers one after the other, and the race needs R * V of them: at 64
    rows they would take longer than the model. For rows without a seed alone, since what a seed draws is to be what it
    draws in vLLM.

    vLLM: none, vLLM races on every device
    """
    num_rows, vocab_size = probs.shape
    missing = -vocab_size % BLOCK
    blocks = (F.pad(probs, (0, missing)) if missing else probs).unflatten(-1, (-1, BLOCK))
    block_sums = blocks.sum(dim=-1)
    sums = block_sums.cumsum(dim=-1)
    threshold = torch.rand(num_rows, 1, generator=generator) * sums[:, -1:]
    block = _first_above(sums, threshold)
    rest = threshold - (sums - block_sums).gather(1, block)
    token = _first_above(blocks[torch.arange(num_rows), block[:, 0]].cumsum(dim=-1), rest.clamp(min=0))
    # a row in which every token is forbidden has NaN for sums, and no place: it gets some token, as in the race
    return (block * BLOCK + token)[:, 0].clamp(max=vocab_size - 1)


def _first_above(sums: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Where the growing sums [R, N] first exceed the threshold [R, 1], which is at least 0: int64[R, 1]."""
    # rounding must not lift it to the whole sum, which nothing exceeds
    threshold = torch.minimum(threshold, sums[:, -1:].nextafter(torch.zeros(1)))
    return torch.searchsorted(sums, threshold, right=True).clamp(max=sums.shape[1] - 1)


def gather_logprobs(logprobs: torch.Tensor, num_logprobs: int, token_ids: torch.Tensor) -> LogprobsTensors:
    """The `num_logprobs` best of each row of float32[R, V], with each row's own token_ids int64[R] in front.

    vLLM: v1/sample/sampler.py::Sampler.gather_logprobs
    """
    chosen = logprobs.gather(1, token_ids[:, None])
    top_values, top_ids = logprobs.topk(num_logprobs, dim=-1)
    return LogprobsTensors(
        logprob_token_ids=torch.cat([token_ids[:, None], top_ids], dim=1).to(torch.int32),
        logprobs=torch.cat([chosen, top_values], dim=1),
        selected_token_ranks=(logprobs >= chosen).sum(dim=-1),
    )
