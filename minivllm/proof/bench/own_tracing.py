"""What a trace costs: engines without one and with one in this process, taking turns with the same batch.

    python -m minivllm.proof.bench.own_tracing JOB.json

Owns: the engines. A process for each would not do: how memory happens to lie makes one of two equal processes some
percent faster than the other, and that is as much as there is to measure.
Must not know: the other sides.
"""

import json
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack
from typing import Any

from minivllm.llm import LLM
from minivllm.proof.bench.own_generate import run_part
from minivllm.proof.bench.step_parts import step_parts
from minivllm.trace import Trace

Figures = dict[str, float]


def run_job(job: dict[str, Any]) -> dict[str, Figures]:
    """Side -> the median seconds of each part over job["turns"] turns, and what a step is made of. The first turn,
    which touches the memory for the first time, is left out.
    """
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(
                LLM(job["model"], dtype=job["dtype"], max_model_len=job["max_model_len"], **settings)
            )
            for name, settings in job["sides"].items()
        }
        for turn in range(job["turns"] + 1):
            for name in list(engines) if turn % 2 else reversed(engines):
                for part in job["parts"]:
                    engines[name].reset_prefix_cache()
                    took = run_part(engines[name], part)
                    if turn > 0:
                        seconds[name][part["name"]].append(took)
    found = {
        name: {f"{part}_s": statistics.median(took) for part, took in seconds[name].items()} for name in job["sides"]
    }
    for name, settings in job["sides"].items():
        if "trace" in settings:
            found[name] |= step_parts(Trace.load(settings["trace"]))
    return found


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(run_job(json.load(file))), flush=True)
