"""A right solution of lab 11: sorted from the top; multinomial draws."""

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
    safe = temperature.clone()
    safe[temperature < SAMPLING_EPS] = 1
    return logits / safe.unsqueeze(1)


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Mask tokens less likely than min_p, float32[R], times the likeliest.

    vLLM: v1/sample/logits_processor/builtin.py::MinPLogitsProcessor
    """
    share = (logits - logits.max(dim=-1, keepdim=True).values).exp()  # of the likeliest
    return torch.where(share < min_p.unsqueeze(1), MASKED, logits)


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Keep the k likeliest, ties with the k-th too; of these the fewest that together reach probability p.

    k: int64[R], V is off. p: float32[R], 1 is off. The likeliest token always stays.

    vLLM: v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p_pytorch
    """
    if k is None and p is None:
        return logits
    result = logits.clone()
    if k is not None:
        best = logits.sort(dim=-1, descending=True).values
        worst_kept = best[torch.arange(len(k)), k - 1]
        result[logits < worst_kept.unsqueeze(1)] = MASKED
    if p is not None:
        probs, tokens = result.softmax(dim=-1).sort(dim=-1, descending=True)
        before = probs.cumsum(dim=-1) - probs  # of all that is likelier
        dropped = before >= p.unsqueeze(1)
        dropped[:, 0] = False
        result[torch.zeros_like(dropped).scatter(1, tokens, dropped)] = MASKED
    return result


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask the last token of a bad sequence where the output ends with the tokens before it.

    vLLM: v1/sample/ops/bad_words.py::apply_bad_words
    """
    pairs = [
        (row, sequence[-1])
        for row, sequences in bad_words.items()
        for sequence in sequences
        if [*output_ids[row], sequence[-1]][-len(sequence) :] == sequence
    ]
    result = logits.clone()
    for row, token in pairs:
        result[row, token] = MASKED
    return result


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask every stop token while a row has fewer outputs than its min_tokens, an ignored end of text too.

    vLLM: v1/sample/logits_processor/builtin.py::MinTokensLogitsProcessor
    """
    short = [row for row, (minimum, _) in min_tokens.items() if len(output_ids[row]) < minimum]
    pairs = [(row, token) for row in short for token in min_tokens[row][1]]
    if not pairs:
        return logits.clone()
    places = torch.tensor(pairs, dtype=torch.int64).T
    return logits.index_put(tuple(places), torch.tensor(MASKED))


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
    said, written = count_tokens(prompt_ids, logits), count_tokens(output_ids, logits)
    repeated = (said + written) > 0
    scale = torch.where(logits > 0, 1 / repetition.unsqueeze(1), repetition.unsqueeze(1))
    result = torch.where(repeated, logits * scale, logits)
    return result - frequency.unsqueeze(1) * written - presence.unsqueeze(1) * written.clamp(max=1)


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

    if metadata.repetition_penalties is not None:
        logits = apply_penalties(
            logits,
            metadata.prompt_token_ids,
            metadata.output_token_ids,
            metadata.presence_penalties,
            metadata.frequency_penalties,
            metadata.repetition_penalties,
        )
    greedy = None
    if not metadata.all_random:
        greedy = logits.max(dim=-1).indices
    if not metadata.all_greedy:
        logits = apply_temperature(logits, metadata.temperature)
        logits = logits if metadata.min_p is None else apply_min_p(logits, metadata.min_p)
        logits = apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)
    return greedy, logits


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    """Draw a token a row from probs float32[R, V]: int64[R].

    An exponential race: argmax(probs / q) with q ~ Exp(1) chooses token i with probability probs[i]. A row with a
    generator of its own draws its q from it, whatever the other rows are.

    vLLM: v1/sample/ops/topk_topp_sampler.py::random_sample
    """
    tokens = torch.multinomial(probs, 1, generator=default)[:, 0]
    for row, generator in generators.items():
        tokens[row] = torch.multinomial(probs[row], 1, generator=generator)
    return tokens


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
            allowed = dict(metadata.generators)
            for row in discarded_rows:
                allowed.pop(row, None)
            sampled = random_sample(torch.softmax(processed, dim=-1), allowed, self.generator)
            if not metadata.all_random:
                cold = metadata.temperature < SAMPLING_EPS
                sampled[cold] = greedy[cold]
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
