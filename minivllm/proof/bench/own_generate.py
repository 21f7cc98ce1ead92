"""This engine as a side: run a job's parts and print their seconds as one line of JSON.

    python -m minivllm.proof.bench.own_generate JOB.json

Owns: how a job becomes calls of LLM. Must not know: the other sides.
"""

import json
import sys
import time
from typing import Any

from minivllm.llm import LLM
from minivllm.sampling_params import SamplingParams

WARM_UP_TOKENS = 16


def run_job(job: dict[str, Any]) -> dict[str, float]:
    """Seconds of start-up and of each part.

    vLLM: benchmarks/throughput.py::run_vllm (role)
    """
    start = time.perf_counter()
    settings = {"dtype": job["dtype"], "max_model_len": job["max_model_len"], "skip_tokenizer_init": False}
    settings |= job.get("settings", {})
    with LLM(job["model"], **settings) as llm:
        seconds = {"init": time.perf_counter() - start}
        warm_up = SamplingParams(temperature=0, max_tokens=min(WARM_UP_TOKENS, job["max_model_len"] // 2))
        llm.generate({"prompt_token_ids": job["parts"][0]["prompts"][0]}, warm_up, use_tqdm=False)
        llm.reset_prefix_cache()
        for part in job["parts"]:
            seconds[part["name"]] = run_part(llm, part)
    return seconds


def run_part(llm: LLM, part: dict[str, Any]) -> float:
    """Seconds of one call of generate()."""
    prompts = [{"prompt_token_ids": prompt} for prompt in part["prompts"]]
    params = [
        SamplingParams(temperature=part["temperature"], max_tokens=tokens, ignore_eos=True)
        for tokens in part["max_tokens"]
    ]
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    took = time.perf_counter() - start
    made = [len(output.outputs[0].token_ids) for output in outputs]
    assert made == part["max_tokens"], f"{made} tokens instead of {part['max_tokens']}"
    return took


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(run_job(json.load(file))), flush=True)
