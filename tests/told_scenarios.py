"""The scenarios as traces, answered from a book in place of the model: their plans, blocks and texts in milliseconds.

The engine is the real one but for the weights. The book's
model keeps token ids in the paged KV cache, reads each request back through its block table, and continues what it
reads as the real model does (greedy, float32). So a wrong block shows as a wrong answer.
"""

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from minivllm.boundary import boundary
from minivllm.course import scenarios
from minivllm.course.scenarios import get_scenario, run_scenario
from minivllm.models.default_model import default_model_path
from minivllm.models.registry import ModelChoice
from minivllm.models.tokenizer import load_tokenizer
from minivllm.trace import Trace

EOS = 2
A_TEXT = "The capital of France is Paris and the capital of Italy is Rome."
C_TEXT = "The sky is a beautiful shade of blue. It's a reflection of the Earth's atmosphere, composed of a mix of"
BOOK = [
    (scenarios.A, A_TEXT),
    (scenarios.B, "The capital of France is Paris and the capital of Spain is Madrid."),
    (scenarios.C, C_TEXT),
    (scenarios.D, "\n".join(f"{n}. {n}" for n in range(1, 11))),
    (scenarios.E, "👌👌👌"),
    (scenarios.F, "The capital of Spain is Madrid and the capital of Italy is Rome."),
    (scenarios.G, "The capital of France is Paris."),
    (scenarios.H, "The capital of France is Paris."),
    (scenarios.L, "The city in Norway is Oslo."),
    (scenarios.V, "The correct answer is: Athens is a city in Greece."),
    (scenarios.R, A_TEXT),
]


class BookModel(torch.nn.Module):
    """Continues a text that it knows; says token 0 to anything else."""

    def __init__(self, vocab_size: int, book: list[tuple[list[int], list[int]]]) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.book = book

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, kv_caches: list[torch.Tensor], attn_metadata: Any
    ) -> torch.Tensor:
        """The next token of each place as its hidden state: float32[num_tokens, 1]."""
        common = attn_metadata.common
        memory = kv_caches[0][:, 0, :, 0, 0]  # [blocks, block size]
        block_size = memory.shape[1]
        memory[common.slot_mapping // block_size, common.slot_mapping % block_size] = input_ids.to(memory.dtype)
        following: list[int] = []
        starts = common.query_start_loc.tolist()
        for row, seq_len in enumerate(common.seq_lens.tolist()):
            text = memory[common.block_table_tensor[row].long()].flatten()[:seq_len].long().tolist()
            num_queries = starts[row + 1] - starts[row]
            following += [self._next(text[: seq_len - num_queries + place + 1]) for place in range(num_queries)]
        return torch.tensor(following, dtype=torch.float32)[:, None]

    def _next(self, text: list[int]) -> int:
        for prompt, answer in self.book:
            if text[: len(prompt)] == prompt:
                said = text[len(prompt) :]
                if said == answer[: len(said)] and len(said) < len(answer):
                    return answer[len(said)]
        return 0

    @boundary("compute_logits")
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """All weight on the next token: float32[places, vocab]."""
        logits = torch.zeros(len(hidden_states), self.vocab_size)
        logits.scatter_(1, hidden_states.long(), 100.0)
        return logits


@functools.cache
def _tokenizer() -> Any:
    return load_tokenizer(str(default_model_path()))


@functools.cache
def _book() -> list[tuple[list[int], list[int]]]:
    tokenizer = _tokenizer()
    book = []
    for messages, answer in BOOK:
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
        book.append((prompt_ids, [*tokenizer.encode(answer, add_special_tokens=False), EOS]))
    return book


@contextmanager
def book_in_place_of_the_model() -> Iterator[None]:
    """While this lasts, engines in this process answer from the book."""

    def load(model_config: Any, *_: Any) -> BookModel:
        return BookModel(model_config.vocab_size, _book())

    with (
        mock.patch("minivllm.worker.worker.load_model", load),
        mock.patch("minivllm.worker.worker.choose_model", lambda *_: ModelChoice(BookModel, "the book answers")),
        mock.patch("minivllm.models.tokenizer.load_tokenizer", lambda *_: _tokenizer()),
    ):
        yield


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="minivllm-scenarios-")


@functools.cache
def scenario_trace(name: str, **settings: Any) -> Trace:
    """The trace of a scenario, recorded once a session. settings: more fields of EngineConfig."""
    return Trace.load(scenario_path(name, **settings))


@functools.cache
def scenario_path(name: str, **settings: Any) -> Path:
    """The file of that trace."""
    suffix = "".join(f"-{key}-{value}" for key, value in settings.items())
    path = Path(_folder().name) / f"{name}{suffix}.jsonl"
    with book_in_place_of_the_model():
        run_scenario(get_scenario(name), trace=str(path), **settings)
    return path
