"""Lab 11 · The sampler

From logits and parameters write down the distribution that is drawn from, and say what a seed does and does not fix.

    11.1  temperature (10 points)
    11.2  min-p, top-k and top-p (20 points)
    11.3  masks, penalties, and the order of it all (15 points)
    11.4  the draw (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 11
"""

import torch

from minivllm.boundary import boundary
from minivllm.course.grader import given
from minivllm.sample.logits_processors import MASKED, apply_allowed_token_ids, apply_logit_bias, count_tokens
from minivllm.sample.metadata import SamplingMetadata
from minivllm.sample.sampler import SamplerOutput, gather_logprobs
from minivllm.sampling_params import SAMPLING_EPS


def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Divide each row by its temperature, float32[R]; greedy rows (below 1e-5) stay as they are.

    vLLM: v1/sample/sampler.py::Sampler.apply_temperature
    """
    raise NotImplementedError("Lab 11.1: each row by its own temperature, but for the greedy ones")


def apply_min_p(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Mask tokens less likely than min_p, float32[R], times the likeliest.

    vLLM: v1/sample/logits_processor/builtin.py::MinPLogitsProcessor
    """
    raise NotImplementedError("Lab 11.2: mask by probability, measured against the row's likeliest")


def apply_top_k_top_p(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Keep the k likeliest, ties with the k-th too; of these the fewest that together reach probability p.

    k: int64[R], V is off. p: float32[R], 1 is off. The likeliest token always stays.

    vLLM: v1/sample/ops/topk_topp_sampler.py::apply_top_k_top_p_pytorch
    """
    if k is None and p is None:
        return logits
    raise NotImplementedError("Lab 11.2: first the k likeliest, then of what is left as much as reaches p")


def apply_bad_words(
    logits: torch.Tensor, bad_words: dict[int, list[list[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask the last token of a bad sequence where the output ends with the tokens before it.

    vLLM: v1/sample/ops/bad_words.py::apply_bad_words
    """
    raise NotImplementedError("Lab 11.3: where the output ends with all but the last")


def apply_min_tokens(
    logits: torch.Tensor, min_tokens: dict[int, tuple[int, set[int]]], output_ids: list[list[int]]
) -> torch.Tensor:
    """Mask every stop token while a row has fewer outputs than its min_tokens, an ignored end of text too.

    vLLM: v1/sample/logits_processor/builtin.py::MinTokensLogitsProcessor
    """
    raise NotImplementedError("Lab 11.3: as long as the row is too short")


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
    raise NotImplementedError("Lab 11.3: repetition first, then frequency and presence")


def process(logits: torch.Tensor, metadata: SamplingMetadata) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Everything before the draw, in vLLM's order.

    Returns (the greedy choice int64[R], or None when every row is random; the processed logits float32[R, V]).

    vLLM: v1/sample/sampler.py::Sampler.sample
    """
    raise NotImplementedError("Lab 11.3: masks, bias, penalties; the greedy choice; temperature and the cuts")


def random_sample(
    probs: torch.Tensor, generators: dict[int, torch.Generator], default: torch.Generator
) -> torch.Tensor:
    """Draw a token a row from probs float32[R, V]: int64[R].

    An exponential race: argmax(probs / q) with q ~ Exp(1) chooses token i with probability probs[i]. A row with a
    generator of its own draws its q from it, whatever the other rows are.

    vLLM: v1/sample/ops/topk_topp_sampler.py::random_sample
    """
    raise NotImplementedError("Lab 11.4: a race for each row, with noise of its own or of the default generator")


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
            raise NotImplementedError("Lab 11.4: draw; greedy rows keep their token, discarded rows their generators")
        logprobs = None
        if metadata.max_num_logprobs is not None:
            # of the raw logits: before bias, penalties, temperature and cuts
            raw_logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
            logprobs = gather_logprobs(raw_logprobs, metadata.max_num_logprobs, sampled)
        return SamplerOutput(sampled, logprobs, processed)
