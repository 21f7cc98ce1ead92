"""Observers of lab 07: flat batches, and the rows of the batch under a real scheduler.

Owns: how arrays become lists, and how a recorded scenario becomes a workload that needs no model.
Interface: located, tables_read, padded, rows; arrays_of, workload_of.
Must not know: what is expected.
"""

from typing import Any

import numpy as np

from minivllm.labs.child import Parts
from minivllm.labs.observe import Adapter, make_scheduler
from minivllm.lockstep.recording import Workload
from minivllm.lockstep.scheduler import iterate_scheduler
from minivllm.worker.batch import flatten, locate_tokens, read_tables
from minivllm.worker.input_batch import InputBatch

Seen = list[Any]
LOCATED = ("query_start_loc", "positions", "seq_lens", "logits_indices")
READ = ("input_ids", "slot_mapping")
PADDED = ("input_ids", "positions", "slot_mapping", "query_start_loc", "seq_lens", "logits_indices")
VOCAB_SIZE = 100_000
RUBBISH = 77  # what stands in the tables beyond what is used


def arrays_of(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The arrays of a batch, as InputBatch holds them: wider than any row, with rubbish in the unused places.

    A row: computed, scheduled, tokens (from position 0 on, those of this step included), blocks.

    vLLM: none, vLLM has no labs
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


def located(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, list[Any]]:
    """What locate_tokens says of a batch.

    vLLM: none, vLLM has no labs
    """
    arrays = arrays_of(asked["rows"])
    results = parts.get("locate_tokens", locate_tokens)(arrays["num_computed"], arrays["num_scheduled"])
    return {name: _as_list(result) for name, result in zip(LOCATED, results, strict=True)}


def tables_read(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, list[Any]]:
    """What read_tables says of a batch whose tokens the engine has located.

    vLLM: none, vLLM has no labs
    """
    arrays = arrays_of(asked["rows"])
    starts, positions, _, _ = locate_tokens(arrays["num_computed"], arrays["num_scheduled"])
    results = parts.get("read_tables", read_tables)(
        starts, positions, arrays["token_ids"], arrays["block_table"], asked["block_size"]
    )
    return {name: _as_list(result) for name, result in zip(READ, results, strict=True)}


def padded(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, list[Any]]:
    """All arrays of `flatten`, with pad_to, and the number of tokens that are real.

    vLLM: none, vLLM has no labs
    """
    flat = parts.get("flatten", flatten)(
        **arrays_of(asked["rows"]), block_size=asked["block_size"], pad_to=asked["pad_to"]
    )
    return {name: _as_list(getattr(flat, name)) for name in PADDED} | {"num_actual_tokens": [flat.num_actual_tokens]}


def _as_list(value: Any) -> list[Any]:
    """An array, a tensor or a list as a list of numbers."""
    return np.asarray(value).tolist()


# ---------------------------------------------------------------------- rows


class _Worker(Adapter):
    """The lockstep driver's adapter, with a batch that remembers what is sampled, as the model runner does."""

    def __init__(self, workload: Workload, batch: InputBatch) -> None:
        super().__init__(workload, {})
        self.batch = batch

    def update(self, scheduler: Any, plan: Any, req_ids: list[str], sampled: list[list[int]]) -> list[Any]:
        by_request = dict(zip(req_ids, sampled, strict=True))
        self.batch.append_sampled_tokens([by_request[req_id] for req_id in self.batch.req_ids])
        return super().update(scheduler, plan, req_ids, sampled)


def rows(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """The rows of every step of a workload, while the engine's own scheduler plans and a workload's tokens are sampled.

    An entry: the requests by row; and for each row its blocks, how many of its tokens are computed, and the ids of the
    tokens of this step.

    vLLM: none, vLLM has no labs
    """
    import torch

    workload = asked["workload"]
    config = workload["config"]
    scheduler = make_scheduler(config, {})
    batch = parts.get("InputBatch", InputBatch)(
        config["max_num_seqs"], config["max_model_len"] + 1, config["block_size"], VOCAB_SIZE, torch.device("cpu")
    )
    schedule = scheduler.schedule

    def watched() -> Any:
        plan = schedule()
        batch.update_states(plan)
        if plan.num_scheduled_tokens:
            seen.append(_picture(batch, plan))
        return plan

    scheduler.schedule = watched
    for _ in iterate_scheduler(workload, scheduler, _Worker(workload, batch)):
        continue
    return seen


def _picture(batch: InputBatch, plan: Any) -> dict[str, list[Any]]:
    described = {"rows": list(batch.req_ids), "blocks": [], "computed": [], "tokens": []}
    for row, req_id in enumerate(batch.req_ids):
        computed = int(batch.num_computed_tokens_cpu[row])
        described["blocks"].append(batch.block_table.get_row(row))
        described["computed"].append(computed)
        length = computed + plan.num_scheduled_tokens.get(req_id, 0)
        described["tokens"].append(batch.token_ids_cpu[row, computed:length].tolist())
    return described


def workload_of(scenario: Workload) -> Workload:
    """A recorded scenario of the whole engine as a workload of the scheduler: it samples what was recorded.

    Every request ends by its length, which was recorded too, whatever ended it in truth.

    vLLM: none, vLLM has no labs
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
