"""Engine recordings without the model's work: the recorded tokens are put into its mouth.

Everything else is the engine's own: scheduler, batch, sampler, detokenizer. So all flat batches, texts and ends can be
compared in a fraction of the time; logprobs can't. The whole engine, model included, is in test_engine_recordings.py.
"""

from typing import Any
from unittest.mock import patch

import torch
from tiny_models import tiny_model

from minivllm.models import tokenizer
from minivllm.proof.lockstep.engine import replay_engine, request_name

VOCAB_SIZE = 49152
CERTAIN = 1e4  # the logit of the recorded token, far above any bias or penalty
WITHOUT = ("logprobs", "cumulative_logprob", "prompt_logprobs")


class TokenizerCache:
    """Loads the tokenizer once for all scenarios: it takes longer than a scripted scenario."""

    def __init__(self, path: str) -> None:
        self.tokenizer = tokenizer.load_tokenizer(path)

    def __call__(self, path: str) -> Any:
        return self.tokenizer


def replay_scripted(scenario: dict[str, Any], load_tokenizer: TokenizerCache) -> dict[str, list[dict[str, Any]]]:
    """What replay_engine gives, less the logprobs."""
    scripts = {}
    for output in scenario["outputs"]:
        several = len(output["outputs"]) > 1
        for completion in output["outputs"]:
            name = f"{completion['index']}_{output['request_id']}" if several else output["request_id"]
            scripts[name] = completion["token_ids"]

    def put_words_in(core: Any) -> None:
        runner = core.model_executor.driver_worker.model_runner
        runner.model_forward = lambda batch, metadata: torch.zeros(len(batch.input_ids), 1)
        runner.model.compute_logits = lambda hidden: _recorded_logits(runner.input_batch, len(hidden), scripts)

    with patch.object(tokenizer, "load_tokenizer", load_tokenizer):
        replayed = replay_engine(scenario, str(tiny_model(vocab_size=VOCAB_SIZE)), put_words_in)
    return {"steps": replayed["steps"], "outputs": without_logprobs(replayed["outputs"])}


def without_logprobs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Described outputs, less what only the model can know."""
    return [
        {key: value for key, value in output.items() if key not in WITHOUT}
        | {"outputs": [{k: v for k, v in one.items() if k not in WITHOUT} for one in output["outputs"]]}
        for output in outputs
    ]


def _recorded_logits(batch: Any, num_rows: int, scripts: dict[str, list[int]]) -> torch.Tensor:
    """One row a request, certain of its next recorded token; for prompt logprobs, rows that nobody looks at."""
    logits = torch.zeros(num_rows, VOCAB_SIZE)
    if num_rows == batch.num_reqs:
        for row, req_id in enumerate(batch.req_ids):
            said = len(batch.requests[req_id].output_token_ids)
            script = scripts[request_name(req_id)]
            logits[row, script[said % len(script)]] = CERTAIN
    return logits
