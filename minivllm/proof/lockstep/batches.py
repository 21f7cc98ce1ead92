"""Random batches for the sampler: logits, and rows with mixed parameters.

Owns: which parameters a row may have. The same random numbers give the same batch.
Interface: make_batch, generate_batches.
Must not know: samplers.
"""

from random import Random
from typing import Any

from minivllm.proof.lockstep.recording import Recording, Workload, numbers

VOCAB_SIZE = 48
FIRST_TOKEN = 3  # below are special tokens: end of text is 2

# name -> (how often a row has it, its values)
PARAMETERS: dict[str, tuple[float, tuple[Any, ...]]] = {
    "top_k": (0.5, (1, 2, 3, 5, 10, 47, 48, 100, -1, 0)),
    "top_p": (0.5, (1e-9, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0)),
    "min_p": (0.3, (0.01, 0.1, 0.5, 1.0)),
    "repetition_penalty": (0.3, (0.5, 0.8, 1.2, 2.0)),
    "presence_penalty": (0.3, (-2.0, -1.0, 0.5, 2.0)),
    "frequency_penalty": (0.3, (-0.5, 0.3, 1.5, 2.0)),
    "min_tokens": (0.25, (1, 2, 4, 8)),
    "ignore_eos": (0.2, (True,)),
}
TEMPERATURES = (1e-6, 0.005, 0.2, 0.7, 1.0, 1.3, 2.0)


def generate_batches(seed: int, count: int) -> Recording:
    """`count` batches, from a seed."""
    cases = [make_batch(Random(f"batch-{number}")) for number in numbers(seed, count)]
    return Recording("sampler", f"minivllm lockstep --generate {seed}", cases)


def make_batch(random: Random) -> Workload:
    """One to eight rows over 48 tokens. Every logit is a multiple of 1/256, which JSON keeps exactly."""
    spread = random.choice((0.5, 2.0, 6.0))
    steps = 2 if random.random() < 0.3 else 256  # halves make many ties
    rows = []
    for _ in range(random.randint(1, 8)):
        prompt = [random.randrange(FIRST_TOKEN, VOCAB_SIZE) for _ in range(random.randint(1, 10))]
        output = [random.randrange(FIRST_TOKEN, VOCAB_SIZE) for _ in range(random.randint(0, 9))]
        rows.append(
            {
                "sampling": _make_sampling(random),
                "prompt_token_ids": prompt,
                "output_token_ids": output,
                "bad_words_token_ids": _make_bad_words(random, output) if random.random() < 0.25 else [],
                "logits": [round(random.gauss(0, spread) * steps) / steps for _ in range(VOCAB_SIZE)],
            }
        )
    return {"rows": rows}


def _make_sampling(random: Random) -> dict[str, Any]:
    sampling = {"temperature": 0.0 if random.random() < 0.25 else random.choice(TEMPERATURES)}
    for name, (share, values) in PARAMETERS.items():
        if random.random() < share:
            sampling[name] = random.choice(values)
    if random.random() < 0.2:
        tokens = random.sample(range(VOCAB_SIZE), 3)
        sampling["logit_bias"] = {str(token): random.choice((-100.0, -2.0, 3.0, 100.0)) for token in tokens}
    if random.random() < 0.2:
        sampling["allowed_token_ids"] = sorted(random.sample(range(VOCAB_SIZE), random.choice((1, 4, 20))))
    if random.random() < 0.25:
        sampling["stop_token_ids"] = sorted(random.sample(range(FIRST_TOKEN, VOCAB_SIZE), 2))
    return sampling


def _make_bad_words(random: Random, output: list[int]) -> list[list[int]]:
    """A single token; and a sequence of which the output ends with all but the last, or almost."""
    length = random.randint(1, min(3, len(output))) if output else 0
    prefix = output[len(output) - length :]
    if prefix and random.random() < 0.3:
        prefix = [FIRST_TOKEN, *prefix[1:]]
    return [[random.randrange(FIRST_TOKEN, VOCAB_SIZE)], [*prefix, random.randrange(FIRST_TOKEN, VOCAB_SIZE)]]
