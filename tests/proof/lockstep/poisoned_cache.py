"""The poisoned prefix cache (trap 62) with the real model: what our engine answers, and what vLLM's rule answers.

Writes the section of docs/differences.md between the markers:

    python tests/proof/lockstep/poisoned_cache.py

A test runs the same and compares.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minivllm import LLM, SamplingParams
from minivllm.core.scheduler import Scheduler
from minivllm.proof.lockstep.recording import load
from minivllm.proof.lockstep.scheduler import PoisonedScheduler

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/differences.md"
RECORDING = ROOT / "traces/vllm-0.22.0/vllm-0.22.0-known-bug.json.gz"
BEGIN, END = "<!-- made by tests/proof/lockstep/poisoned_cache.py: begin -->", "<!-- end -->"
NAME, VICTIM = "bug-651", "r0"
AMPLE = 200  # blocks: nobody is preempted


@dataclass(slots=True)
class Answer:
    """What the victim got."""

    token_ids: list[int]
    num_cached_tokens: int
    num_preemptions: int


def answer(scheduler_class: type[Scheduler], num_blocks: int | None = None) -> Answer:
    """Run the workload through the whole engine in this process; num_blocks: None is the workload's own pool."""
    (workload,) = load(RECORDING).select(NAME).workloads
    settings = workload["config"]
    with LLM(
        multiprocess=False,
        device="cpu",
        dtype="float32",
        block_size=settings["block_size"],
        num_gpu_blocks_override=num_blocks or settings["num_blocks"],
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        scheduling_policy=settings["policy"],
    ) as llm:
        llm.llm_engine.engine_core.engine_core.scheduler.__class__ = scheduler_class
        return _serve(llm.llm_engine, list(workload["requests"]))


def section() -> str:
    """The section of the page, with numbers from runs made now."""
    (workload,) = load(RECORDING).select(NAME).workloads
    blocks = workload["config"]["num_blocks"]
    runs = [
        (f"a pool of {AMPLE} blocks", answer(Scheduler, AMPLE)),
        (f"ours, {blocks} blocks", answer(Scheduler)),
        (f"vLLM's rule, {blocks} blocks", answer(PoisonedScheduler)),
    ]
    lines = [
        BEGIN,
        f"Workload `{NAME}` of the known-bug file, request `{VICTIM}`, with the default model in float32 and greedy:",
        "",
        "| | preemptions | tokens from the prefix cache when it resumes | output tokens |",
        "|---|---|---|---|",
    ]
    for name, got in runs:
        tokens = " ".join(map(str, got.token_ids))
        lines.append(f"| {name} | {got.num_preemptions} | {got.num_cached_tokens} | `{tokens}` |")
    return "\n".join([*lines, END])


def replaced(page: str, new: str) -> str:
    """The page with `new` between the markers."""
    before, _, rest = page.partition(BEGIN)
    return before + new + rest.partition(END)[2]


def _serve(engine: Any, pending: list[dict[str, Any]]) -> Answer:
    """Step by step: each request arrives in its step, all run to their ends."""
    answers = {}
    step = 0
    while pending or engine.has_unfinished_requests():
        while pending and pending[0]["arrival_step"] <= step:
            request = pending.pop(0)
            params = SamplingParams(temperature=0, max_tokens=request["max_tokens"], ignore_eos=request["ignore_eos"])
            prompt = engine.input_processor.render_cmpl(request["prompt_token_ids"])
            engine.add_request(request["id"], prompt, params, request["priority"])
        for output in engine.step():
            token_ids = list(output.outputs[0].token_ids)
            answers[output.request_id] = Answer(token_ids, output.num_cached_tokens, output.metrics.num_preemptions)
        step += 1
    return answers[VICTIM]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), section()))
