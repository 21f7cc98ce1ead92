"""Events of the KV cache: B11, the manager of block tables, and B12, the block pool."""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from typing import Any

from minivllm.trace.events import Call, Change, Event
from minivllm.trace.events_core import short_hash


class GetComputedBlocks(Event, tag="get_computed_blocks"):
    """The longest cached prefix of a waiting request is looked up. Nothing is taken yet."""

    num_tokens: int | None = None
    num_hit_tokens: int | None = None
    block_ids: list[int] = []  # the hits
    num_looked_up: int | None = None  # blocks that may be hit: whole ones, and one token must be left to compute
    first_miss: int | None = None  # index of the first block that is not cached; None: all looked-up ones are
    skip_reading_prefix_cache: bool | None = None  # the request wants none, or caching is off

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request, manager = call.arg(0, "request"), call.owner
        hits, num_hit_tokens = call.out
        skip = not manager.enable_caching or request.skip_reading_prefix_cache
        num_looked_up = 0 if skip else min((request.num_tokens - 1) // manager.block_size, len(request.block_hashes))
        return {
            "reqs": [request.request_id],
            "num_tokens": request.num_tokens,
            "num_hit_tokens": num_hit_tokens,
            "block_ids": [block.block_id for block in hits],
            "num_looked_up": num_looked_up,
            "first_miss": len(hits) if len(hits) < num_looked_up else None,
            "skip_reading_prefix_cache": skip,
        }


class AllocateSlots(Event, tag="allocate_slots"):
    """A request asks for slots. Refused, nothing changes."""

    refused: bool | None = None  # too few blocks are free
    num_tokens: int | None = None
    num_computed_tokens: int | None = None
    num_new_tokens: int | None = None  # asked for
    num_hit_tokens: int | None = None  # cached ones that it may share
    hit_block_ids: list[int] = []
    new_block_ids: list[int] = []
    full_sequence_must_fit: bool | None = None  # and not only this chunk
    blocks_needed: int | None = None  # of the test that failed
    num_blocks: Change | None = None  # held by the request
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> Change:
        return _held(call)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request, manager = call.arg(0, "request"), call.owner
        hits = call.arg(3, "hits", ())
        needed = None
        if call.out is None:
            shortage = manager.get_shortage(*call.args, **call.kwargs)
            needed = shortage[0] if shortage else None
        held, free = _held(call)
        return {
            "reqs": [request.request_id],
            "refused": call.out is None,
            "num_tokens": request.num_tokens,
            "num_computed_tokens": request.num_computed_tokens,
            "num_new_tokens": call.arg(1, "num_new_tokens"),
            "num_hit_tokens": call.arg(2, "num_hit_tokens", 0),
            "hit_block_ids": [block.block_id for block in hits] if hits else [],
            "new_block_ids": [block.block_id for block in call.out] if call.out else [],
            "full_sequence_must_fit": call.arg(4, "full_sequence_must_fit", False),
            "blocks_needed": needed,
            "num_blocks": (call.before[0], held),
            "num_free_blocks": (call.before[1], free),
        }


class CacheBlocks(Event, tag="cache_blocks"):
    """The full blocks of a request are made findable, before the model has filled them."""

    num_tokens: int | None = None  # that have slots
    num_cached_blocks: Change | None = None  # leading blocks with a hash

    @staticmethod
    def before(call: Call) -> int:
        return call.owner.num_cached_block.get(call.arg(0, "request").request_id, 0)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request_id = call.arg(0, "request").request_id
        return {
            "reqs": [request_id],
            "num_tokens": call.arg(1, "num_tokens"),
            "num_cached_blocks": (call.before, call.owner.num_cached_block.get(request_id, 0)),
        }


class ForgetUncomputedBlocks(Event, tag="forget_uncomputed_blocks"):
    """A victim's blocks that this step was to fill become unfindable."""

    block_ids: list[int] = []

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {"reqs": [call.arg(0, "request").request_id], "block_ids": list(call.out)}


class Free(Event, tag="free"):
    """A request lets go of its blocks: it has ended, or is preempted."""

    block_ids: list[int] = []  # its block table
    num_blocks: Change | None = None  # held by the request
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> Any:
        blocks = call.owner.req_to_blocks.get(call.arg(0, "request").request_id, ())
        return *_held(call), [block.block_id for block in blocks]

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        held, free = _held(call)
        return {
            "reqs": [call.arg(0, "request").request_id],
            "block_ids": call.before[2],
            "num_blocks": (call.before[0], held),
            "num_free_blocks": (call.before[1], free),
        }


def _held(call: Call) -> Change:
    """(blocks that the request holds, free blocks), of a call on the manager."""
    blocks = call.owner.req_to_blocks.get(call.arg(0, "request").request_id, ())
    return len(blocks), call.owner.block_pool.get_num_free_blocks()


class GetCachedBlock(Event, tag="get_cached_block"):
    """One block is looked for by its hash."""

    block_hash: str | None = None
    block_id: int | None = None  # None: a miss

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "block_hash": short_hash(call.arg(0, "block_hash")),
            "block_id": None if call.out is None else call.out.block_id,
        }


class Touch(Event, tag="touch"):
    """A request takes hold of cached blocks. Those that nobody held leave the free queue."""

    block_ids: list[int] = []
    ref_cnts: list[int] = []  # after
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> int:
        return call.owner.get_num_free_blocks()

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        blocks = call.arg(0, "blocks")
        return {
            "block_ids": [block.block_id for block in blocks],
            "ref_cnts": [block.ref_cnt for block in blocks],
            "num_free_blocks": (call.before, call.owner.get_num_free_blocks()),
        }


class GetNewBlocks(Event, tag="get_new_blocks"):
    """Blocks are taken from the front of the free queue; what they held can't be hit any more."""

    block_ids: list[int] = []
    evicted_block_ids: list[int] = []  # of these, those that had a hash
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> int:
        return call.owner.get_num_free_blocks()

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "block_ids": [block.block_id for block in call.out],
            "evicted_block_ids": list(call.owner.evicted_block_ids),
            "num_free_blocks": (call.before, call.owner.get_num_free_blocks()),
        }


class CacheFullBlocks(Event, tag="cache_full_blocks"):
    """Full blocks of a request get their hashes: from now on they can be hit."""

    block_ids: list[int] = []
    block_hashes: list[str] = []
    num_cached_blocks: Change | None = None  # leading blocks of the request with a hash

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request, blocks = call.arg(0, "request"), call.arg(1, "blocks")
        num_cached, num_full = call.arg(2, "num_cached"), call.arg(3, "num_full")
        return {
            "reqs": [request.request_id],
            "block_ids": [block.block_id for block in blocks[num_cached:num_full]],
            "block_hashes": [short_hash(block_hash) for block_hash in request.block_hashes[num_cached:num_full]],
            "num_cached_blocks": (num_cached, num_full),
        }


class FreeBlocks(Event, tag="free_blocks"):
    """Blocks lose a holder. Those without any join the tail of the free queue, in this order."""

    block_ids: list[int] = []
    ref_cnts: list[int] = []  # after
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> int:
        return call.owner.get_num_free_blocks()

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        blocks = call.arg(0, "ordered_blocks")
        return {
            "block_ids": [block.block_id for block in blocks],
            "ref_cnts": [block.ref_cnt for block in blocks],
            "num_free_blocks": (call.before, call.owner.get_num_free_blocks()),
        }


class ResetPrefixCache(Event, tag="reset_prefix_cache"):
    """All hashes are forgotten, unless a block is in use."""

    done: bool | None = None  # False: a block is in use, nothing was changed

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {"done": call.out}
