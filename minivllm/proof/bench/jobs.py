"""Jobs: what the sides are asked to do, as plain data that is written to a file and read by each side's program.

Owns: the workloads. All are made from fixed seeds, so every side, round and machine gets the same.
Interface: throughput_job, latency_job, memory_job, tiny; write_tiny_model is in gpu.py.
Must not know: who runs a job.

A job for generating has parts; a part is one call of generate() that is timed:
{"name", "prompts": [[token ids]], "max_tokens": [n], "temperature"}. End of text is ignored, so that every side makes
the same number of tokens.
"""

import random
from typing import Any

Job = dict[str, Any]
# a question in chat form
SINGLE_PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]


def throughput_job(requests: int = 64) -> Job:
    """The workload of the batch: prompts of 32 to 256 tokens, answers of 32 to 128, drawn at temperature 0.6.

    vLLM: benchmarks/throughput.py::get_requests (role)
    """
    source = random.Random(0)
    prompts = [[source.randint(5, 40000) for _ in range(source.randint(32, 256))] for _ in range(requests)]
    max_tokens = [source.randint(32, 128) for _ in range(requests)]
    return _job(
        [
            {"name": "alone", "prompts": [SINGLE_PROMPT], "max_tokens": [128], "temperature": 0.0},
            {"name": "batch", "prompts": prompts, "max_tokens": max_tokens, "temperature": 0.6},
        ]
    )


def latency_job(batches: tuple[int, ...] = (1, 4, 16, 64), contexts: tuple[int, ...] = (64, 512, 1536)) -> Job:
    """One token, and then 64, of batches of growing size after a prompt of 64 tokens; and of one request after prompts
    of growing length. The difference of the two calls is the time of 63 steps.

    vLLM: benchmarks/latency.py::main (role)
    """
    source = random.Random(1)
    parts = []
    shapes = [(batch, contexts[0]) for batch in batches] + [(1, context) for context in contexts[1:]]
    for batch, context in shapes:
        for tokens in (1, 64):
            # other prompts for each call, or the prefix cache would have them
            prompts = [[source.randint(5, 40000) for _ in range(context)] for _ in range(batch)]
            name = f"batch {batch}, context {context}, tokens {tokens}"
            parts.append({"name": name, "prompts": prompts, "max_tokens": [tokens] * batch, "temperature": 0.0})
    return _job(parts)


def memory_job() -> Job:
    """The batch of throughput_job, for its peak of memory."""
    job = throughput_job()
    return {**job, "parts": job["parts"][1:]}


def tiny(job: Job, vocab_size: int) -> Job:
    """The same job with few short requests and small token ids, to see that it runs."""
    parts = [
        {
            **part,
            "prompts": [[token % (vocab_size - 3) + 3 for token in prompt[:12]] for prompt in part["prompts"][:3]],
            "max_tokens": [min(tokens, 4) for tokens in part["max_tokens"][:3]],
        }
        for part in job["parts"]
    ]
    return {**job, "parts": parts, "max_model_len": 64}


def _job(parts: list[dict[str, Any]]) -> Job:
    return {"dtype": "bfloat16", "max_model_len": 2048, "parts": parts}
