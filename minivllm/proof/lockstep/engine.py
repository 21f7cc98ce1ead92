"""The whole engine in lockstep: prompts in; every flat batch, and what the caller got, out.

Owns: how a scenario is run through LLM, and how batches and outputs are written down.
Interface: replay_engine; describe_output, request_name (also for recording vLLM).
Must not know: what vLLM did.
"""

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Any

from minivllm.config import cdiv
from minivllm.proof.lockstep.recording import Workload
from minivllm.proof.lockstep.sampler import sampling_of
from minivllm.sampling_params import SamplingParams

Step = dict[str, Any]


def replay_engine(
    scenario: Workload, model: str | None = None, observe: Callable[[Any], None] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Run a recorded scenario: what the worker flattened in each step, and what the caller got.

    model: a Hugging Face folder; None: the default model, which the recordings are made with. observe: called with the
    EngineCore before the first step.
    """
    from minivllm.llm import LLM  # here, since replaying a scheduler needs none of it

    with LLM(model, multiprocess=False, **scenario["engine_args"]) as llm:
        core = llm.llm_engine.engine_core.engine_core
        steps = _watch(core.model_executor.driver_worker.model_runner)
        if observe is not None:
            observe(core)
        outputs = [output for call in calls_of(scenario) for output in run_call(llm, call, SamplingParams)]
    return {"steps": steps, "outputs": [describe_output(output) for output in outputs]}


def calls_of(scenario: Workload) -> Iterator[list[dict[str, Any]]]:
    """The requests of each call of generate(). Without a `call` number all are in one, added before the first step."""
    for _, requests in groupby(scenario["requests"], key=lambda request: request.get("call", 0)):
        yield list(requests)


def run_call(llm: Any, requests: list[dict[str, Any]], params_class: Callable[..., Any]) -> list[Any]:
    """One call of generate(), on our LLM or on vLLM's. A request with a `prompt` goes in as text."""
    prompts = [
        {"prompt_token_ids": request["prompt_token_ids"]} if request["prompt"] is None else request["prompt"]
        for request in requests
    ]
    params = [params_class(**({"temperature": 0} | sampling_of(request["sampling"]))) for request in requests]
    priorities = [request.get("priority", 0) for request in requests]
    return llm.generate(prompts, params, use_tqdm=False, priority=priorities if any(priorities) else None)


def request_name(internal_id: str) -> str:
    """The id that the caller knows: without the eight random digits. A child of n > 1 keeps its number in front."""
    return internal_id.rpartition("-")[0]


def _watch(runner: Any) -> list[Step]:
    """Watch a model runner from outside; the list grows by one for each flat batch it makes."""
    steps: list[Step] = []
    prepare_inputs = runner.prepare_inputs

    def watched(plan: Any) -> Any:
        batch = prepare_inputs(plan)
        steps.append(_describe_batch(batch, runner.input_batch))
        return batch

    runner.prepare_inputs = watched
    return steps


def _describe_batch(batch: Any, input_batch: Any) -> Step:
    query_start_loc = batch.query_start_loc.tolist()
    seq_lens = batch.seq_lens.tolist()
    table = input_batch.block_table.block_table
    return {
        "req_order": [request_name(req_id) for req_id in input_batch.req_ids],
        "num_scheduled_tokens": [end - start for start, end in pairwise(query_start_loc)],
        "input_ids": batch.input_ids.tolist(),
        "positions": batch.positions.tolist(),
        "query_start_loc": query_start_loc,
        "seq_lens": seq_lens,
        "block_table": [
            table[row, : cdiv(length, input_batch.block_size)].tolist() for row, length in enumerate(seq_lens)
        ],
        "slot_mapping": batch.slot_mapping.tolist(),
        "logits_indices": batch.logits_indices.tolist(),
    }


def describe_output(output: Any) -> dict[str, Any]:
    """A RequestOutput, ours or vLLM's, as it is recorded."""
    return {
        "request_id": output.request_id,
        "num_cached_tokens": output.num_cached_tokens,
        "prompt_logprobs": _describe_logprobs(output.prompt_logprobs),
        "outputs": [
            {
                "index": completion.index,
                "text": completion.text,
                "token_ids": list(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "stop_reason": completion.stop_reason,
                "cumulative_logprob": completion.cumulative_logprob,
                "logprobs": _describe_logprobs(completion.logprobs),
            }
            for completion in output.outputs
        ],
    }


def _describe_logprobs(places: Any) -> list[dict[str, Any] | None] | None:
    if not places:
        return None
    return [
        {
            str(token): {"logprob": round(lp.logprob, 4), "rank": lp.rank, "token": lp.decoded_token}
            for token, lp in place.items()
        }
        if place
        else None
        for place in places
    ]
