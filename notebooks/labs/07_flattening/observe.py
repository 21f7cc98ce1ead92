"""Observers of lab 07: flat batches, and the rows of the batch under a real scheduler.

Owns: how arrays become lists, and how a recorded scenario becomes a workload that needs no model.
Interface: located, tables_read, padded, rows, watched; arrays_of, workload_of.
Must not know: what is expected.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput
from minivllm.course.grader.child import Parts
from minivllm.course.grader.observe import HASH_SEED
from minivllm.proof.lockstep.recording import Workload
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps
from minivllm.worker.batch import flatten, locate_tokens, read_tables
from minivllm.worker.input_batch import InputBatch
from minivllm.worker.recorded_executor import RecordedExecutor

Seen = list[Any]
LOCATED = ("query_start_loc", "positions", "seq_lens", "logits_indices")
READ = ("input_ids", "slot_mapping")
PADDED = ("input_ids", "positions", "slot_mapping", "query_start_loc", "seq_lens", "logits_indices")
VOCAB_SIZE = 100_000
RUBBISH = 77  # what stands in the tables beyond what is used


def arrays_of(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays of a batch, as InputBatch holds them: wider than any row, with rubbish in the unused places.

    A row: computed, scheduled, tokens (from position 0 on, those of this step included), blocks.
    """
    width = max(len(row["tokens"]) for row in rows) + 2
    token_ids = np.full((len(rows) + 1, width), RUBBISH, dtype=np.int32)
    block_table = np.full((len(rows) + 1, width), RUBBISH, dtype=np.int32)
    for index, row in enumerate(rows):
        token_ids[index, : len(row["tokens"])] = row["tokens"]
        block_table[index, : len(row["blocks"])] = row["blocks"]
    return {
        "num_computed": np.array([row["computed"] for row in rows], dtype=np.int32),
        "num_scheduled": np.array([row["scheduled"] for row in rows], dtype=np.int32),
        "token_ids": token_ids,
        "block_table": block_table,
    }


def located(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What locate_tokens says of a batch; see `_results`."""
    arrays = arrays_of(asked["rows"])
    given = {name: arrays[name] for name in ("num_computed", "num_scheduled")}
    return _results(parts.get("locate_tokens", locate_tokens), given, LOCATED)


def tables_read(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """What read_tables says of a batch whose tokens the engine has located; see `_results`."""
    arrays = arrays_of(asked["rows"])
    starts, positions, _, _ = locate_tokens(arrays["num_computed"], arrays["num_scheduled"])
    given = {"query_start_loc": starts, "positions": positions} | {
        name: arrays[name] for name in ("token_ids", "block_table")
    }
    return _results(parts.get("read_tables", read_tables), given | {"block_size": asked["block_size"]}, READ)


def padded(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """All arrays of `flatten`, with pad_to, and the number of tokens that are real."""
    flat = parts.get("flatten", flatten)(
        **arrays_of(asked["rows"]), block_size=asked["block_size"], pad_to=asked["pad_to"]
    )
    return {name: _as_list(getattr(flat, name)) for name in PADDED} | {"num_actual_tokens": [flat.num_actual_tokens]}


def _results(function: Callable[..., Any], given: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What a function returns, by name, and `changed`: the arrays that were given and are not what they were.

    Results that can't have these names, such as None, stand in words under `returned` alone.
    """
    before = {name: value.copy() for name, value in given.items() if isinstance(value, np.ndarray)}
    results = function(*given.values())
    if not hasattr(results, "__len__") or isinstance(results, str | dict) or len(results) != len(names):
        return {"returned": _tell_results(results)}
    changed = {name: given[name].tolist() for name, value in before.items() if not np.array_equal(value, given[name])}
    found = {name: _as_list(result) for name, result in zip(names, results, strict=True)}
    return found | {"changed": changed}


def _tell_results(results: Any) -> str:
    if results is None:
        return "None: nothing is returned"
    return f"{len(results)} of them" if isinstance(results, tuple | list) else f"one {type(results).__name__}"


def _as_list(value: Any) -> list[Any] | str:
    """An array, a tensor or a list as a list of whole numbers; in words what can't be one."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return "a list of lists: they must lie side by side in one"
    if array.dtype.kind == "f" and array.size:
        return f"floats, {' '.join(map(str, array.ravel()[:3].tolist()))}: they must be integers"
    return array.tolist()


# ---------------------------------------------------------------------- rows


class _BatchExecutor(RecordedExecutor):
    """Says the workload's tokens, by the plans that a batch has seen; the batch remembers them, as in the engine."""

    def __init__(self, workload: Workload, batch: InputBatch, seen: Seen) -> None:
        super().__init__({request["id"]: request["output"] for request in workload["requests"]})
        self.batch, self.seen = batch, seen

    def execute_model(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        batch = self.batch
        self.seen.append({"plan": _plan(plan)})
        batch.update_states(plan)
        self.seen[-1] |= _picture(batch, plan)
        if len(batch.req_ids) != len(plan.num_scheduled_tokens) or set(batch.req_ids) != set(plan.num_scheduled_tokens):
            raise _Astray
        result = super().execute_model(plan)
        by_request = dict(zip(result.req_ids, result.sampled_token_ids, strict=True))
        batch.append_sampled_tokens([by_request[req_id] for req_id in batch.req_ids])
        return result


class _Astray(Exception):
    """The rows are not those of the plan: nothing can be sampled for them."""


def rows(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """The rows of every step of a workload that has tokens; `watched` without the rest."""
    return [entry for entry in watched(parts, asked, seen) if entry["plan"]["tokens"]]


def watched(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """What the batch holds after every plan of a workload, while the engine's own scheduler plans and a workload's
    tokens are sampled. It ends where the rows are not those of the plan.

    An entry: the plan; the requests by row; for each row its blocks, how many of its tokens are computed, and the ids
    of the tokens of this step; and the blocks of every request that is remembered. It is the plan alone when the
    student's code did not come back.
    """
    import torch

    workload = asked["workload"]
    config = workload["config"]
    batch = parts.get("input_batch", InputBatch)(
        config["max_num_seqs"], config["max_model_len"] + 1, config["block_size"], VOCAB_SIZE, torch.device("cpu")
    )
    core = build_core(workload, {}, _BatchExecutor(workload, batch, seen), hash_seed=HASH_SEED)
    with suppress(_Astray):
        for _ in iterate_steps(workload, core):
            continue
    return seen


def _plan(plan: SchedulerOutput) -> dict[str, Any]:
    """What of a plan concerns the rows."""
    cached = plan.scheduled_cached_reqs
    return {
        "ended": sorted(plan.finished_req_ids),
        "new": [[new.req_id, list(new.block_ids), new.num_computed_tokens] for new in plan.scheduled_new_reqs],
        "known": [
            [req_id, req_id in cached.resumed_req_ids, None if blocks is None else list(blocks), computed]
            for req_id, blocks, computed in zip(
                cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
            )
        ],
        "tokens": [[req_id, n] for req_id, n in plan.num_scheduled_tokens.items()],
    }


def _picture(batch: InputBatch, plan: SchedulerOutput) -> dict[str, Any]:
    described = {"rows": list(batch.req_ids), "blocks": [], "computed": [], "tokens": []}
    for row, req_id in enumerate(batch.req_ids):
        computed = int(batch.num_computed_tokens_cpu[row])
        described["blocks"].append(batch.block_table.get_row(row))
        described["computed"].append(computed)
        length = computed + plan.num_scheduled_tokens.get(req_id, 0)
        described["tokens"].append(batch.token_ids_cpu[row, computed:length].tolist())
    remembered = {req_id: list(state.block_ids) for req_id, state in sorted(batch.requests.items())}
    return described | {"remembered": remembered}


def workload_of(scenario: Workload) -> Workload:
    """A recorded scenario of the whole engine as a workload of the scheduler: it samples what was recorded.

    Every request ends by its length, which was recorded too, whatever ended it in truth.
    """
    arguments = scenario["engine_args"]
    sampled = {output["request_id"]: output["outputs"][0]["token_ids"] for output in scenario["outputs"]}
    return {
        "name": scenario["name"],
        "eos_token_id": -1,
        "config": {
            "block_size": arguments["block_size"],
            "num_blocks": arguments["num_gpu_blocks_override"],
            "max_num_seqs": arguments["max_num_seqs"],
            "max_num_batched_tokens": arguments["max_num_batched_tokens"],
            "max_model_len": arguments["max_model_len"],
            "enable_prefix_caching": arguments["enable_prefix_caching"],
            "enable_chunked_prefill": True,
            "long_prefill_token_threshold": 0,
            "policy": "fcfs",
        },
        "requests": [
            {
                "id": str(index),
                "arrival_step": 0,
                "prompt_token_ids": request["prompt_token_ids"],
                "max_tokens": len(sampled[str(index)]),
                "min_tokens": 0,
                "ignore_eos": True,
                "stop_token_ids": [],
                "priority": 0,
                "abort_step": None,
                "output": [*sampled[str(index)], 0],
            }
            for index, request in enumerate(scenario["requests"])
        ],
    }
