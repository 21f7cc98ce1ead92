"""Observers of lab 11: distributions before the draw, and what is drawn.

Owns: how rows become a batch, how a student's functions get under the engine's `process`, experiments with draws.
Interface: step_alone, rows_processed, counted, sequences, forwarded.
Must not know: what is expected.
"""

import types
from typing import Any

import torch

from minivllm.course.grader.child import Parts
from minivllm.proof.lockstep.sampler import describe_logprobs, sampling_params_of
from minivllm.sample import logits_processors
from minivllm.sample import sampler as engine
from minivllm.sampling_params import SamplingParams, SamplingType
from minivllm.worker.input_batch import CachedRequestState, make_sampling_metadata

Seen = list[Any]
CPU = torch.device("cpu")
# name -> what its arguments beside the logits become: a tensor, or what a function makes of it; None stays as it is
STEPS = {
    "apply_bad_words": (dict, None),
    "apply_min_tokens": (lambda pairs: {row: (least, set(ids)) for row, (least, ids) in pairs}, None),
    "apply_temperature": (torch.float32,),
    "apply_min_p": (torch.float32,),
    "apply_top_k_top_p": (torch.int64, torch.float32),
    "apply_penalties": (None, None, torch.float32, torch.float32, torch.float32),
}


def step_alone(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """One function on a batch of logits. asked: name, logits, arguments. None stands for -inf."""
    name = asked["name"]
    logits = torch.tensor(asked["logits"], dtype=torch.float32)
    arguments = [
        value if kind is None or value is None else _made(kind, value)
        for value, kind in zip(asked["arguments"], STEPS[name], strict=True)
    ]
    given = [logits, *(value for value in arguments if isinstance(value, torch.Tensor))]
    before = [tensor.clone() for tensor in given]
    result = parts.get(name, getattr(logits_processors, name))(logits, *arguments)
    changed = any(not torch.equal(one, other) for one, other in zip(given, before, strict=True))
    return {"rows": [_finite(row) for row in result.tolist()], "changed": changed}


def _made(kind: Any, value: Any) -> Any:
    return torch.tensor(value, dtype=kind) if isinstance(kind, torch.dtype) else kind(value)


def _finite(row: list[float]) -> list[float | None]:
    return [None if value == float("-inf") else value for value in row]


def rows_processed(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """A batch of recorded rows through `process`: a row's log-probabilities, or its greedy token.

    Where `process` is the engine's own, it calls the student's functions all the same.
    """
    states = [_state(index, sampling_params_of(row), row) for index, row in enumerate(asked["rows"])]
    logits = torch.tensor([row["logits"] for row in asked["rows"]], dtype=torch.float32)
    before = logits.clone()
    greedy, processed = _process_of(parts)(logits, make_sampling_metadata(states, logits.shape[1], CPU))
    logprobs = processed.log_softmax(dim=-1).tolist()
    rows = [
        int(greedy[index])
        if state.sampling_params.sampling_type is SamplingType.GREEDY
        else describe_logprobs(logprobs[index])
        for index, state in enumerate(states)
    ]
    return {"rows": rows, "changed": not torch.equal(logits, before)}


def _process_of(parts: Parts) -> Any:
    process = parts.get("process", engine.process)
    if process is not engine.process:
        return process
    functions = {name: part for name, part in parts.items() if name in STEPS}
    return types.FunctionType(process.__code__, process.__globals__ | functions)


def _state(index: int, params: SamplingParams, row: dict[str, Any]) -> CachedRequestState:
    generator = None if params.seed is None else torch.Generator().manual_seed(params.seed)
    return CachedRequestState(
        req_id=f"r{index}",
        prompt_token_ids=row.get("prompt_token_ids", [0]),
        sampling_params=params,
        block_ids=[],
        num_computed_tokens=0,
        generator=generator,
        output_token_ids=row.get("output_token_ids", []),
    )


# ---------------------------------------------------------------------- draws


def counted(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[int]:
    """How often a token was drawn. asked: probs of one row, draws (rows in a call), calls, own (a generator each)."""
    num_rows, probs = asked["draws"], torch.tensor(asked["probs"], dtype=torch.float32)
    draw = parts.get("random_sample", engine.random_sample)
    generators = {row: torch.Generator().manual_seed(1000 + row) for row in range(num_rows)} if asked["own"] else {}
    default = torch.Generator().manual_seed(17)
    counts = torch.zeros(len(probs), dtype=torch.int64)
    for _ in range(asked["calls"]):
        tokens = torch.as_tensor(draw(probs.repeat(num_rows, 1), generators, default))
        counts += tokens.long().bincount(minlength=len(probs))
    return counts.tolist()


def sequences(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[list[int]]:
    """What each row draws, call after call, from equal probabilities of many tokens.

    asked: seeds (of each row, None: none), default (the seed of the default generator), calls, size (tokens).
    """
    draw = parts.get("random_sample", engine.random_sample)
    generators = {
        row: torch.Generator().manual_seed(seed) for row, seed in enumerate(asked["seeds"]) if seed is not None
    }
    default = torch.Generator().manual_seed(asked["default"])
    drawn: list[list[int]] = [[] for _ in asked["seeds"]]
    for _ in range(asked["calls"]):
        probs = torch.full((len(drawn), asked["size"]), 1 / asked["size"])
        for row, token in enumerate(torch.as_tensor(draw(probs, generators, default)).tolist()):
            drawn[row].append(int(token))
    return drawn


def forwarded(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[list[int]]:
    """What each row of a batch gets from Sampler.forward, call after call.

    asked: logits of one row, sampling of each row, discarded (a list of rows for each call).
    """
    sampler = parts.get("sampler", engine.Sampler)(seed=3, device=CPU)
    logits = torch.tensor([asked["logits"]] * len(asked["sampling"]), dtype=torch.float32)
    states = [_state(index, SamplingParams(**sampling), {}) for index, sampling in enumerate(asked["sampling"])]
    metadata = make_sampling_metadata(states, logits.shape[1], CPU)
    drawn: list[list[int]] = [[] for _ in states]
    for discarded in asked["discarded"]:
        output = sampler.forward(logits, metadata, set(discarded))
        for row, token in enumerate(torch.as_tensor(output.sampled_token_ids).tolist()):
            if row not in discarded:
                drawn[row].append(int(token))
    return drawn
