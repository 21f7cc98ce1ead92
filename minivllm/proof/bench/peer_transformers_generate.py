"""transformers as a side: generate() on a padded batch, which ends when the longest answer does.

    python peer_transformers_generate.py JOB.json

Owns: how a job becomes calls of generate(). Must not know: minivllm.
"""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def pad(prompts: list) -> tuple:
    """Token ids and mask [rows, longest], filled up on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def run_job(job: dict) -> dict:
    """vLLM: benchmarks/throughput.py::run_hf"""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=getattr(torch, job["dtype"]), trust_remote_code=False
    ).eval()
    seconds = {"init": time.perf_counter() - start}
    parts = [{**job["parts"][0], "name": "warm-up", "max_tokens": [4] * len(job["parts"][0]["prompts"])}]
    with torch.inference_mode():
        for part in parts + job["parts"]:
            ids, mask = pad(part["prompts"])
            tokens = max(part["max_tokens"])
            drawn = {"do_sample": True, "temperature": part["temperature"], "top_k": 0, "top_p": 1.0}
            options = drawn if part["temperature"] else {"do_sample": False}
            start = time.perf_counter()
            model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                pad_token_id=0,
                **options,
            )
            seconds[part["name"]] = time.perf_counter() - start
    return seconds


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        given = json.load(file)
    torch.set_num_threads(given["threads"])
    print(json.dumps(run_job(given)), flush=True)
