"""The steps that change logits before a token is drawn. Each returns a new tensor and leaves its input alone.

All take logits float32[R, V], R rows, V vocabulary; -inf means the token can't be chosen.
"""

import torch

from minivllm.sampling_params import SAMPLING_EPS

MASKED = float("-inf")


def apply_allowed_token_ids(logits: torch.Tensor, forbidden: torch.Tensor) -> torch.Tensor:
    """Mask what `forbidden`, bool[R, V], marks.

    vLLM: v1/sample/sampler.py::Sampler.apply_logits_processors
    """
    return logits.masked_fill(forbidden, MASKED)


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask the last token of a bad sequence where the output ends with the tokens before it.

    vLLM: v1/sample/ops/bad_words.py::apply_bad_words
    """
    logits = logits.clone()
    for row, sequences in bad_words.items():
        output = output_ids[row]
        for *prefix, last in sequences:
            if not prefix or output[-len(prefix) :] == prefix:
                logits[row, last] = MASKED
    return logits


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask every stop token while a row has fewer outputs than its min_tokens, an ignored end of text too.

    vLLM: v1/sample/logits_processor/builtin.py::MinTokensLogitsProcessor
    """
    logits = logits.clone()
    for row, (minimum, stop_token_ids) in min_tokens.items():
        if len(output_ids[row]) < minimum:
            logits[row, sorted(stop_token_ids)] = MASKED
    return logits


def apply_logit_bias(logits: torch.Tensor, logit_bias: dict[int, dict[int, float]]) -> torch.Tensor:
    """Add a row's biases to its tokens.

    vLLM: v1/sample/logits_processor/builtin.py::LogitBiasLogitsProcessor
    """
    logits = logits.clone()
    for row, biases in logit_bias.items():
        ids = list(biases)
        logits[row, ids] += torch.tensor([biases[i] for i in ids], dtype=logits.dtype, device=logits.device)
    return logits


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
    in_prompt = count_tokens(prompt_ids, logits) > 0
    output_counts = count_tokens(output_ids, logits)
    factor = torch.where(in_prompt | (output_counts > 0), repetition[:, None], torch.ones_like(logits))
    # a negative logit is weakened by multiplying
    logits = torch.where(logits > 0, logits / factor, logits * factor)
    logits = logits - frequency[:, None] * output_counts
    return logits - presence[:, None] * (output_counts > 0)


def count_tokens(ids: list[list[int]], like: torch.Tensor) -> torch.Tensor:
    """How often each token occurs in each row: [R, V], the shape and the type of `like`.

    vLLM: v1/sample/ops/penalties.py::apply_all_penalties (its counts)
    """
    counts = torch.zeros_like(like)
    for row, row_ids in enumerate(ids):
        if row_ids:
            index = torch.tensor(row_ids, dtype=torch.int64, device=like.device)
            counts[row].scatter_add_(0, index, torch.ones(len(row_ids), dtype=like.dtype, device=like.device))
    return counts


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Divide each row by its temperature, float32[R]; greedy rows (below 1e-5) stay as they are.

    vLLM: v1/sample/sampler.py::Sampler.apply_temperature
    """
    divisor = torch.where(temperature < SAMPLING_EPS, torch.ones_like(temperature), temperature)
    return logits / divisor[:, None]


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Mask tokens less likely than min_p, float32[R], times the likeliest.

    vLLM: v1/sample/logits_processor/builtin.py::MinPLogitsProcessor
    """
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < min_p[:, None] * probs.amax(dim=-1, keepdim=True), MASKED)


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Keep the k likeliest, ties with the k-th too; of these the fewest that together reach probability p.

    k: int64[R], V is off. p: float32[R], 1 is off. The likeliest token always stays.

    vLLM: v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p_pytorch
    """
    if k is None and p is None:
        return logits
    # >>> lab 11.2 first the k likeliest, then of what is left as much as reaches p
    ascending, order = logits.sort(dim=-1)
    if k is not None:
        kth_largest = ascending.gather(1, (logits.shape[1] - k)[:, None])
        ascending = ascending.masked_fill(ascending < kth_largest, MASKED)
    if p is not None:
        # from the small end, so that the token which crosses p is kept
        unneeded = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - p[:, None]
        unneeded[:, -1] = False
        ascending = ascending.masked_fill(unneeded, MASKED)
    return torch.empty_like(logits).scatter_(dim=-1, index=order, src=ascending)
    # <<< lab 11.2
