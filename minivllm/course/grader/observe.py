"""Observers: what the child runs with a student's parts, and what it writes down.

Owns: the drivers of scheduler, pool and cache for the labs 02 to 06, and the picture of their state.
Interface: run_workload, pool_program. An observer is called with the parts, an input, and the list `seen`, into which
it writes as it goes, so that a crash leaves what came before it.
Must not know: what is expected.

The same observers, called with no parts, run the engine's own: that is where the expectations of the unit checks come
from.
"""

import sys
from typing import Any

from minivllm.core.block_pool import BlockPool, KVCacheBlock
from minivllm.core.request import Request, RequestStatus, update_request_with_output
from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.course.grader.child import Endless, Parts
from minivllm.engine.core import EngineCore
from minivllm.parts import load_part
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps
from minivllm.sampling_params import SamplingParams

Seen = list[Any]


HASH_SEED = "labs"  # hashes are the same in every run


def make_core(settings: dict[str, Any], parts: Parts) -> EngineCore:
    """A core with the `config` of a recorded workload, built of parts, with no request yet."""
    return build_core({"config": settings, "requests": []}, parts, hash_seed=HASH_SEED)


def make_pool(num_blocks: int, parts: Parts) -> BlockPool:
    """A block pool with prefix caching, built of parts."""
    return load_part("block_pool", parts)(num_blocks, True, free_queue=load_part("free_queue", parts))


def run_workload(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Every step of a workload, each with the state after `schedule` and after `update_from_output`.

    asked: the workload without its steps, max_steps, and whether the states are wanted. The result is a list of
    {"step": as recorded, "planned": state, "updated": state}.
    """
    workload, states = asked["workload"], {}
    core = build_core(workload, parts, hash_seed=HASH_SEED)

    def look(name: str) -> None:
        if asked["state"]:
            states[name] = picture(core.scheduler)

    for step in iterate_steps(workload, core, planned=lambda plan: look("planned")):
        if "planned" not in states:
            look("planned")  # nobody was there, so there was no plan
        look("updated")
        seen.append({"step": step, **states})
        states.clear()
        if len(seen) >= asked["max_steps"]:
            raise Endless(f"it did not end within {len(seen)} steps")
    return seen


def picture(scheduler: Scheduler) -> dict[str, Any]:
    """Everything that the invariants look at, as plain values. Hashes are numbered in the order of the blocks."""
    manager, pool = scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool
    numbers: dict[Any, int] = {}
    by_block = {
        block.block_id: numbers.setdefault(block.block_hash, len(numbers))
        for block in pool.blocks
        if block.block_hash is not None
    }
    by_map = {
        block.block_id: numbers.setdefault(block_hash, len(numbers))
        for block_hash, blocks in pool.cached_block_hash_to_block.items()
        for block in blocks.values()
    }
    return {
        "tables": {req_id: [block.block_id for block in blocks] for req_id, blocks in manager.req_to_blocks.items()},
        "requests": {
            req_id: [request.num_computed_tokens, request.num_tokens, request.status.name]
            for req_id, request in scheduler.requests.items()
        },
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "by_block": by_block,
        "by_map": by_map,
        **pool_picture(pool),
    }


def pool_picture(pool: BlockPool) -> dict[str, Any]:
    """The free queue and the reference counts."""
    return {
        "free": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        "num_free": pool.free_block_queue.num_free_blocks,
        "ref_cnts": [block.ref_cnt for block in pool.blocks],
    }


# ---------------------------------------------------------------------- U3: programs on a small pool

POOL_SIZE = 5  # block 0 is the null block


def pool_program(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Operations on a pool of 5 blocks, one after the other; after each, what came back and the whole state.

    An operation is [name, argument]. What it raises is written down as its type; the state after it counts too.
    """
    pool = make_pool(POOL_SIZE, parts)
    seen.append(["start", None, pool_picture(pool)])
    for name, argument in asked["program"]:
        try:
            result = _operate(pool, name, argument)
        except (ValueError, RuntimeError) as error:
            if isinstance(error, NotImplementedError):
                raise
            result = type(error).__name__
        seen.append([name, result, pool_picture(pool)])
    return seen


def _operate(pool: BlockPool, name: str, argument: int) -> Any:
    """One operation. get: n new blocks. pop, move, remove: on the free queue itself; the others on a block's id."""
    queue = pool.free_block_queue
    if name == "get":
        return [block.block_id for block in pool.get_new_blocks(argument)]
    if name == "pop":
        block = queue.popleft()
        queue.append(block)
        return [block.block_id]
    block = pool.blocks[argument]
    if name == "move":
        queue.remove(block)
        queue.append(block)
    elif name == "remove":
        queue.remove(block)
    elif name == "touch":
        pool.touch([block])
    else:
        pool.free_blocks([block])
    return None


class CountedBlock(KVCacheBlock):
    """A block that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedBlock.comparisons += 1
        return self is other

    def __hash__(self) -> int:
        return self.block_id


def work_of_a_removal(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, int]:
    """Comparisons of blocks, and lines of code, that it takes to remove a block from the middle of a long queue."""
    blocks = [CountedBlock(block_id) for block_id in range(asked["num_blocks"])]
    queue = load_part("free_queue", parts)(blocks)
    middle = blocks[asked["num_blocks"] // 2]
    CountedBlock.comparisons, lines = 0, 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        queue.remove(middle)
    finally:
        sys.settrace(None)
    return {"comparisons": CountedBlock.comparisons, "lines": lines}


# ---------------------------------------------------------------------- single methods of the scheduler


def num_new_tokens(parts: Parts, asked: dict[str, int], seen: Seen) -> int:
    """Scheduler._num_new_tokens for one threshold, number of missing tokens, and budget."""
    settings = {
        "block_size": 4,
        "num_blocks": 100,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 200,
        "max_model_len": 200,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": asked["threshold"],
        "policy": "fcfs",
    }
    return make_core(settings, parts).scheduler._num_new_tokens(asked["missing"], asked["budget"])


# ---------------------------------------------------------------------- requests and their ends


def update_with_output(parts: Parts, asked: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """U1: update_request_with_output for a list of tokens that were sampled at once.

    asked: max_tokens, min_tokens, stop_token_ids, ignore_eos, max_model_len, new.
    """
    request = _request("r0", asked)
    counted, ended = parts.get("update_request_with_output", update_request_with_output)(
        request, list(asked["new"]), asked["max_model_len"], load_part("check_stop", parts)
    )
    return {
        "counted": list(counted),
        "ended": ended,
        "outputs": request.output_token_ids,
        "status": request.status.name,
        "stop_reason": request.stop_reason,
    }


def _request(req_id: str, asked: dict[str, Any]) -> Request:
    params = SamplingParams(
        temperature=0,
        max_tokens=asked["max_tokens"],
        min_tokens=asked.get("min_tokens", 0),
        stop_token_ids=asked.get("stop_token_ids", []),
        ignore_eos=asked.get("ignore_eos", False),
    )
    params.set_stop_tokens(2)
    return Request(req_id, asked.get("prompt", [10]), params, float(req_id[1:]))


def abort_program(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """U2: three requests in a scheduler with two seats, and aborts at any moment; after each act, the state.

    An act is "plan" (schedule), "update" (each planned request samples token 10), or a list of ids to abort.
    """
    settings = {
        "block_size": 2,
        "num_blocks": 9,
        "max_num_seqs": 2,
        "max_num_batched_tokens": 3,
        "max_model_len": 8,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
    }
    scheduler, plan = make_core(settings, parts).scheduler, None
    for number, prompt in enumerate(([10, 11], [12, 13, 14], [15])):
        scheduler.add_request(_request(f"r{number}", {"max_tokens": 2, "prompt": prompt}))
    for act in asked["acts"]:
        if act == "plan":
            plan = scheduler.schedule()
            result: Any = [sorted(plan.num_scheduled_tokens), sorted(plan.finished_req_ids)]
        elif act == "update":
            result = _update(scheduler, plan)
        else:
            result = list(scheduler.finish_requests(act, RequestStatus.FINISHED_ABORTED))
        told = sorted(plan.finished_req_ids) if plan else []
        seen.append([result, told, picture(scheduler), sorted(scheduler.finished_req_ids)])
    return seen


def _update(scheduler: Scheduler, plan: Any) -> list[Any]:
    req_ids = list(plan.num_scheduled_tokens)
    sampled = []
    for req_id in req_ids:
        request = scheduler.requests.get(req_id)
        complete = request is None or request.num_computed_tokens >= request.num_tokens
        sampled.append([10] if complete else [])
    rows = {req_id: row for row, req_id in enumerate(req_ids)}
    outputs = scheduler.update_from_output(plan, ModelRunnerOutput(req_ids, rows, sampled))
    return [[out.request_id, list(out.new_token_ids), str(out.finish_reason)] for out in outputs]
