"""LogprobsProcessor: arrays of candidates to the caller's dicts, with each candidate's text.

Owns: one request's logprobs, prompt logprobs and their sum.
Must not know: tokens' order in the batch, or the sampler.
"""

from typing import Any

from minivllm.engine.messages import EngineCoreOutput, EngineCoreRequest, LogprobsLists
from minivllm.outputs import Logprob

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer decodes half a character to
MAX_CONTEXT = 4  # tokens; no character is spread over more


def copy_logprobs(places: list[dict[int, Logprob] | None] | None) -> list[dict[int, Logprob] | None] | None:
    """A copy in which nothing is shared."""
    if places is None:
        return None
    return [
        place and {token: Logprob(one.logprob, one.rank, one.decoded_token) for token, one in place.items()}
        for place in places
    ]


class LogprobsProcessor:
    """vLLM: v1/engine/logprobs.py::LogprobsProcessor"""

    def __init__(self, tokenizer: Any | None, num_logprobs: int | None, num_prompt_logprobs: int | None) -> None:
        self.tokenizer = tokenizer
        self.num_logprobs = num_logprobs
        self.num_prompt_logprobs = num_prompt_logprobs
        self.logprobs: list[dict[int, Logprob]] | None = None if num_logprobs is None else []
        self.cumulative_logprob: float | None = None if num_logprobs is None else 0.0
        # nothing comes before the first token of a prompt, so it has no logprob
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None if num_prompt_logprobs is None else [None]

    @classmethod
    def from_new_request(cls, tokenizer: Any | None, request: EngineCoreRequest) -> "LogprobsProcessor":
        """vLLM: v1/engine/logprobs.py::LogprobsProcessor.from_new_request"""
        params = request.sampling_params
        return cls(tokenizer, params.logprobs, params.prompt_logprobs)

    def update_from_output(self, output: EngineCoreOutput) -> None:
        """vLLM: v1/engine/logprobs.py::LogprobsProcessor.update_from_output"""
        if output.new_logprobs is not None:
            self.cumulative_logprob += float(output.new_logprobs.logprobs[:, 0].sum())
            self._append(self.logprobs, output.new_logprobs, self.num_logprobs)
        if output.new_prompt_logprobs is not None:
            self._append(self.prompt_logprobs, output.new_prompt_logprobs, self.num_prompt_logprobs)

    def get_logprobs(self) -> list[dict[int, Logprob]] | None:
        """The places so far, the caller's own to change."""
        return copy_logprobs(self.logprobs)

    def get_prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        """The prompt's places so far, the caller's own to change."""
        return copy_logprobs(self.prompt_logprobs)

    def _append(self, places: list[dict[int, Logprob] | None], new: LogprobsLists, num_wanted: int) -> None:
        """Add a dict for each place: the chosen token first, then the likeliest, as many as the request asked for
        (the arrays hold as many as the greediest request of the batch asked for)."""
        for token_ids, logprobs, rank in zip(
            new.logprob_token_ids.tolist(), new.logprobs.tolist(), new.sampled_token_ranks.tolist(), strict=True
        ):
            context = [next(iter(place)) for place in places[-MAX_CONTEXT:] if place]
            count = len(token_ids) if num_wanted == -1 else num_wanted + 1
            ranks = [rank, *range(1, count)]
            places.append(
                {
                    token_id: Logprob(logprob, token_rank, self._decode(token_id, context))
                    for token_id, logprob, token_rank in zip(token_ids, logprobs, ranks, strict=False)
                }
            )

    def _decode(self, token_id: int, context: list[int]) -> str | None:
        """A candidate's text. Half a character is completed by the tokens before it, or is "" if still incomplete.

        vLLM: v1/engine/logprobs.py::LogprobsProcessor._correct_decoded_token
        """
        if self.tokenizer is None:
            return None
        text = self.tokenizer.decode([token_id])
        if not text.endswith(REPLACEMENT):
            return text
        for length in range(1, len(context) + 1):
            before = context[-length:]
            together = self.tokenizer.decode([*before, token_id])
            if not together.endswith(REPLACEMENT):
                return self._without_prefix(together, before)
        return ""

    def _without_prefix(self, together: str, before: list[int]) -> str:
        """What of the text `together` does not belong to the whole characters at the head of `before`."""
        while before and self.tokenizer.decode([before[-1]]).endswith(REPLACEMENT):
            before = before[:-1]
        prefix = self.tokenizer.decode(before) if before else ""
        if together.startswith(prefix):
            return together[len(prefix) :]
        common = next(i for i, pair in enumerate(zip(prefix, together, strict=False)) if pair[0] != pair[1])
        return together[common:]
