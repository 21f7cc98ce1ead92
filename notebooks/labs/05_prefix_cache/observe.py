"""Observers of lab 05: hashes of token lists, the map from hashes to blocks, and the look-up of a prefix.

Interface: hash_labels, map_program, look_up; POOL_SIZE.
Must not know: what is expected.
"""

from types import SimpleNamespace
from typing import Any

from minivllm.core.block_hash import extend_block_hashes
from minivllm.core.block_pool import BlockPool
from minivllm.course.grader.child import Parts
from minivllm.course.grader.observe import Seen
from minivllm.proof.lockstep.scheduler import SchedulerAdapter, build_core

POOL_SIZE = 5
HASHES = (b"h0" * 16, b"h1" * 16, b"h2" * 16)
NONE_HASH = b"\0" * 32


def hash_labels(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[list[int]]:
    """For each token list a number for each block hash; equal hashes have equal numbers, in order of appearance.

    asked: block_size; lists of [tokens, salt, hashed before]: so many tokens were there when it was hashed first.
    """
    extend = parts.get("extend_block_hashes", extend_block_hashes)
    numbers: dict[Any, int] = {}
    for tokens, salt, before in asked["lists"]:
        hashes: list[Any] = []
        extend(hashes, tokens[:before], asked["block_size"], NONE_HASH, salt)
        extend(hashes, tokens, asked["block_size"], NONE_HASH, salt)
        seen.append([numbers.setdefault(block_hash, len(numbers)) for block_hash in hashes])
    return seen


def map_program(parts: Parts, asked: dict[str, Any], seen: Seen) -> Seen:
    """Operations on the map of a pool of 5 blocks; after each, what came back, and what can be found.

    cache [block, hash]; row [first, last]: blocks 1, 2, 3 of a table with three hashes, those from first to before
    last; find hash; evict block.
    """
    pool = parts.get("block_pool", BlockPool)(POOL_SIZE, True)
    for name, argument in asked["program"]:
        seen.append([name, _operate(pool, name, argument), _map_picture(pool)])
    return seen


def _operate(pool: BlockPool, name: str, argument: Any) -> Any:
    if name == "cache":
        block, number = argument
        pool.cache_full_blocks(SimpleNamespace(block_hashes=[HASHES[number]]), [pool.blocks[block]], 0, 1)
    elif name == "row":
        pool.cache_full_blocks(SimpleNamespace(block_hashes=list(HASHES)), pool.blocks[1:4], *argument)
    elif name == "find":
        block = pool.get_cached_block(HASHES[argument])
        return None if block is None else block.block_id
    else:
        return pool._maybe_evict_cached_block(pool.blocks[argument])
    return None


def _map_picture(pool: BlockPool) -> dict[str, Any]:
    known = pool.cached_block_hash_to_block
    return {
        "block_hash": [HASHES.index(block.block_hash) if block.block_hash else None for block in pool.blocks],
        "map": [list(known.get(block_hash, ())) for block_hash in HASHES],
        "entries": len(known),
    }


def look_up(parts: Parts, asked: dict[str, Any], seen: Seen) -> list[Any]:
    """[blocks, tokens] that are found for a request whose blocks `cached` are in the cache, block i being block i + 1.

    asked: block_size, num_blocks (full ones of the request), extra tokens beyond them, cached.
    """
    size, count = asked["block_size"], asked["num_blocks"]
    num_tokens = size * count + asked["extra"]
    config = {
        "block_size": size,
        "num_blocks": count + 3,
        "max_num_seqs": 1,
        "max_num_batched_tokens": num_tokens + 2,
        "max_model_len": num_tokens + 2,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
    }
    recorded = {
        "id": "r0",
        "prompt_token_ids": list(range(10, 10 + num_tokens)),
        "max_tokens": 1,
        "min_tokens": 0,
        "ignore_eos": False,
        "stop_token_ids": [],
        "priority": 0,
    }
    workload = {"config": config, "eos_token_id": 2, "requests": []}
    core = build_core(workload, {seam: part for seam, part in parts.items() if seam != "extend_block_hashes"})
    request = SchedulerAdapter(workload, core).make_request(recorded, 0.0)
    manager = core.scheduler.kv_cache_manager
    pool = manager.block_pool
    blocks = pool.get_new_blocks(count) if count else []
    for index in asked["cached"]:
        pool.cache_full_blocks(request, blocks, index, index + 1)
    hits, num_tokens = manager.get_computed_blocks(request)
    return [[block.block_id for block in hits], num_tokens]
