"""A right solution of lab 11: row by row; penalties by Counter; a Gumbel race."""

from collections import Counter

import torch

from minivllm.boundary import boundary
from minivllm.course.grader import given
from minivllm.sample.logits_processors import (
    MASKED,
    apply_allowed_token_ids,
    apply_logit_bias,
)
from minivllm.sample.metadata import SamplingMetadata
from minivllm.sample.sampler import SamplerOutput, gather_logprobs
from minivllm.sampling_params import SAMPLING_EPS


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Divide each row by its temperature, float32[R]; greedy rows (below 1e-5) stay as they are.

    vLLM: v1/sample/sampler.py::Sampler.apply_temperature
    """
    rows = [row if t < SAMPLING_EPS else row / t for row, t in zip(logits, temperature.tolist(), strict=True)]
    return torch.stack(rows)


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Mask tokens less likely than min_p, float32[R], times the likeliest.

    vLLM: v1/sample/logits_processor/builtin.py::MinPLogitsProcessor
    """
    result = logits.clone()
    for row, least in enumerate(min_p.tolist()):
        probs = logits[row].softmax(dim=0)
        result[row, probs < least * probs.max()] = MASKED
    return result


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Keep the k likeliest, ties with the k-th too; of these the fewest that together reach probability p.

    k: int64[R], V is off. p: float32[R], 1 is off. The likeliest token always stays.

    vLLM: v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p_pytorch
    """
    if k is None and p is None:
        return logits
    result = logits.clone()
    for row in range(len(logits)):
        if k is not None:
            result[row, logits[row] < logits[row].topk(int(k[row])).values[-1]] = MASKED
        if p is not None and p[row] < 1:
            probs = result[row].softmax(dim=0)
            total = 0.0
            for token in probs.argsort(descending=True).tolist():
                if total >= float(p[row]):
                    result[row, token] = MASKED
                total += float(probs[token])
    return result


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask the last token of a bad sequence where the output ends with the tokens before it.

    vLLM: v1/sample/ops/bad_words.py::apply_bad_words
    """
    rows = []
    for row, values in enumerate(logits):
        banned = {
            sequence[-1]
            for sequence in bad_words.get(row, [])
            if all(a == b for a, b in zip(sequence[-2::-1], output_ids[row][::-1], strict=False))
            and len(output_ids[row]) >= len(sequence) - 1
        }
        rows.append([MASKED if token in banned else value for token, value in enumerate(values.tolist())])
    return torch.tensor(rows)


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask every stop token while a row has fewer outputs than its min_tokens, an ignored end of text too.

    vLLM: v1/sample/logits_processor/builtin.py::MinTokensLogitsProcessor
    """
    result = logits.clone()
    for row in range(len(logits)):
        minimum, stops = min_tokens.get(row, (0, set()))
        for token in stops if len(output_ids[row]) < minimum else ():
            result[row, token] = MASKED
    return result


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
    result = logits.clone()
    for row, (prompt, output) in enumerate(zip(prompt_ids, output_ids, strict=True)):
        for token in {*prompt, *output}:
            weaker = result[row, token] / repetition[row], result[row, token] * repetition[row]
            result[row, token] = weaker[0] if result[row, token] > 0 else weaker[1]
        for token, times in Counter(output).items():
            result[row, token] -= times * frequency[row] + presence[row]
    return result


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

    if metadata.presence_penalties is not None:
        numbers = metadata.presence_penalties, metadata.frequency_penalties, metadata.repetition_penalties
        logits = apply_penalties(logits, metadata.prompt_token_ids, metadata.output_token_ids, *numbers)
    greedy = logits.argmax(dim=1)
    if metadata.temperature is not None:
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
    noise = torch.stack(
        [torch.rand(probs.shape[1], generator=generators.get(row, default)) for row in range(len(probs))]
    )
    return (probs.log() - (-noise.clamp(min=1e-30).log()).log()).argmax(dim=-1)


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
            own = {row: metadata.generators[row] for row in metadata.generators.keys() - discarded_rows}
            drawn = random_sample(processed.softmax(dim=-1), own, self.generator)
            sampled = [
                int(drawn[row]) if greedy is None or metadata.temperature[row] >= SAMPLING_EPS else int(greedy[row])
                for row in range(len(drawn))
            ]
            sampled = torch.tensor(sampled)
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
