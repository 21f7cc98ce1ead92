"""A right solution of lab 11: thresholds instead of sorted places; the inverse of the sums."""

import torch

from minivllm.boundary import boundary
from minivllm.course.grader import given
from minivllm.sample.logits_processors import (
    MASKED,
    apply_allowed_token_ids,
    apply_logit_bias,
    count_tokens,
)
from minivllm.sample.metadata import SamplingMetadata
from minivllm.sample.sampler import SamplerOutput, gather_logprobs
from minivllm.sampling_params import SAMPLING_EPS


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Divide each row by its temperature, float32[R]; greedy rows (below 1e-5) stay as they are.

    vLLM: v1/sample/sampler.py::Sampler.apply_temperature
    """
    factor = torch.ones_like(temperature)
    hot = temperature >= SAMPLING_EPS
    factor[hot] = 1 / temperature[hot]
    return logits * factor[:, None]


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Mask tokens less likely than min_p, float32[R], times the likeliest.

    vLLM: v1/sample/logits_processor/builtin.py::MinPLogitsProcessor
    """
    probs = torch.softmax(logits, dim=-1)
    best, _ = probs.max(dim=-1)
    keep = probs >= (min_p * best)[:, None]
    return logits.masked_fill(~keep, MASKED)


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Keep the k likeliest, ties with the k-th too; of these the fewest that together reach probability p.

    k: int64[R], V is off. p: float32[R], 1 is off. The likeliest token always stays.

    vLLM: v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p_pytorch
    """
    if k is None and p is None:
        return logits
    if k is not None:
        best = logits.topk(int(k.max())).values
        logits = logits.masked_fill(logits < best.gather(1, k[:, None] - 1), MASKED)
    if p is not None:
        probs = logits.softmax(dim=-1)
        likelier = (probs[:, None, :] > probs[:, :, None]).float()  # [row, token, other]
        earlier = (probs[:, None, :] == probs[:, :, None]).float().tril(-1)
        before = ((likelier + earlier) * probs[:, None, :]).sum(dim=-1)
        first = before == before.min(dim=-1, keepdim=True).values
        logits = logits.masked_fill((before >= p[:, None]) & ~first, MASKED)
    return logits


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask the last token of a bad sequence where the output ends with the tokens before it.

    vLLM: v1/sample/ops/bad_words.py::apply_bad_words
    """
    masked = torch.zeros_like(logits, dtype=torch.bool)
    for row, sequences in bad_words.items():
        for sequence in sequences:
            before = len(sequence) - 1
            said = output_ids[row][len(output_ids[row]) - before :] if before else []
            masked[row, sequence[-1]] |= said == sequence[:before] and len(output_ids[row]) >= before
    return logits.masked_fill(masked, MASKED)


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask every stop token while a row has fewer outputs than its min_tokens, an ignored end of text too.

    vLLM: v1/sample/logits_processor/builtin.py::MinTokensLogitsProcessor
    """
    masked = torch.zeros_like(logits, dtype=torch.bool)
    for row, (minimum, stop_token_ids) in min_tokens.items():
        for token in stop_token_ids:
            masked[row, token] = minimum > len(output_ids[row])
    return logits.masked_fill(masked, MASKED)


def apply_penalties(
    logits: torch.Tensor,
    prompt_ids: list[list[int]],
    output_ids: list[list[int]],
    presence: torch.Tensor,
    frequency: torch.Tensor,
    repetition: torch.Tensor,
) -> torch.Tensor:
    """Weaken what has been said. Repetition looks at prompt and output, presence and frequency at the output alone.

    presence, frequency, repetition: float32[R].

    vLLM: v1/sample/ops/penalties.py::apply_all_penalties
    """
    output = count_tokens(output_ids, logits)
    seen = torch.logical_or(output > 0, count_tokens(prompt_ids, logits) > 0)
    factor = torch.where(seen, repetition[:, None], 1.0)
    positive, negative = logits.clamp(min=0), logits.clamp(max=0)
    scaled = positive / factor + negative * factor
    return scaled - (frequency[:, None] * output + presence[:, None] * output.sign())


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Everything before the draw, in vLLM's order.

    Returns (the greedy choice int64[R], or None when every row is random; the processed logits float32[R, V]).

    vLLM: v1/sample/sampler.py::Sampler.sample
    """
    logits = logits.float()
    if metadata.allowed_token_ids_mask is not None:
        logits = apply_allowed_token_ids(logits, metadata.allowed_token_ids_mask)
    logits = apply_bad_words(logits, metadata.bad_words_token_ids, metadata.output_token_ids)
    logits = apply_min_tokens(logits, metadata.min_tokens, metadata.output_token_ids)
    logits = apply_logit_bias(logits, metadata.logit_bias)

    if metadata.frequency_penalties is not None:
        logits = apply_penalties(
            logits,
            metadata.prompt_token_ids,
            metadata.output_token_ids,
            presence=metadata.presence_penalties,
            frequency=metadata.frequency_penalties,
            repetition=metadata.repetition_penalties,
        )
    favourites = logits.argmax(dim=-1)
    if metadata.all_greedy:
        return favourites, logits
    logits = apply_temperature(logits, metadata.temperature)
    if metadata.min_p is not None:
        logits = apply_min_p(logits, metadata.min_p)
    logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)
    return (None if metadata.all_random else favourites), logits


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    """Draw a token a row from probs float32[R, V]: int64[R].

    An exponential race: argmax(probs / q) with q ~ Exp(1) chooses token i with probability probs[i]. A row with a
    generator of its own draws its q from it, whatever the other rows are.

    vLLM: v1/sample/ops/topk_topp_sampler.py::random_sample
    """
    numbers = torch.rand(len(probs), generator=default)
    for row, generator in generators.items():
        numbers[row] = torch.rand(1, generator=generator)
    sums = probs.double().cumsum(dim=-1)
    numbers = numbers.double() * sums[:, -1]
    return (sums <= numbers[:, None]).sum(dim=-1)


class Sampler(given.Sampler):
    """vLLM: v1/sample/sampler.py::Sampler"""

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
            probs = processed.softmax(dim=-1)
            sampled = random_sample(
                probs,
                {row: own for row, own in metadata.generators.items() if row not in discarded_rows},
                self.generator,
            )
            if greedy is not None:
                keep = metadata.temperature < SAMPLING_EPS
                sampled = greedy * keep + sampled * ~keep
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
