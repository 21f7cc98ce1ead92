"""KVCacheManager: which blocks a request holds, which it may share, and whether more would fit.

Owns: the block table of every request that holds blocks, and how many blocks of each are cached.
Interface: get_computed_blocks / allocate_slots / free / cache_blocks; get_block_ids, get_num_common_prefix_blocks.
Must not know: queues, budgets, why a request is scheduled.

The tokens of a request, from left to right:

    | num_computed_tokens | hit tokens | new tokens of this step |
      its blocks already    cached       blocks are allocated here
                            blocks
"""

from collections.abc import Sequence

from minivllm.boundary import boundary
from minivllm.config import EngineConfig, cdiv
from minivllm.core.block_pool import BlockPool, KVCacheBlock
from minivllm.core.request import Request


class KVCacheManager:
    """The block tables of all requests, over one pool.

    vLLM: v1/core/kv_cache_manager.py::KVCacheManager (simplified: one full-attention group, so the coordinator and
    SingleTypeKVCacheManager are part of it)
    """

    def __init__(self, config: EngineConfig, block_pool: BlockPool) -> None:
        self.block_size = config.block_size
        self.max_model_len = config.max_model_len
        self.enable_caching = config.enable_prefix_caching
        self.block_pool = block_pool
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}  # leading blocks of a request that have their hash

    @boundary("get_computed_blocks")
    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        """The longest cached prefix of a request: its blocks and their tokens. Takes no hold of them.

        At least one token must be left to compute, or there would be no logits. Hits are whole blocks, so of a prompt
        that is cached to its last token the whole last block is computed again.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.get_computed_blocks
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        # >>> lab 05.3 walk the request's hashes until the first that is not cached
        hits: list[KVCacheBlock] = []
        max_num_hits = (request.num_tokens - 1) // self.block_size
        for block_hash in request.block_hashes[:max_num_hits]:
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break  # a later block may be cached, but its prefix isn't
            hits.append(block)
        return hits, len(hits) * self.block_size
        # <<< lab 05.3

    @boundary("allocate_slots")
    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> list[KVCacheBlock] | None:
        """Give a request slots for `num_new_tokens` more tokens. Returns the new blocks, or None when they don't fit;
        then nothing has changed.

        full_sequence_must_fit: refuse also when the whole present sequence would not fit, though this chunk does.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.allocate_slots (simplified: no external cache, no lookahead)
        """
        if num_new_tokens <= 0:
            raise ValueError(f"num_new_tokens={num_new_tokens} must be positive")
        # >>> lab 05.4 refuse, or hold the hits, take new blocks, and make full ones findable
        if self.get_shortage(request, num_new_tokens, num_hit_tokens, hits, full_sequence_must_fit) is not None:
            return None
        blocks = self.req_to_blocks.setdefault(request.request_id, [])
        if hits:
            # before new blocks are taken: a hit may lie in the free queue
            self.block_pool.touch(hits)
            blocks.extend(hits)
            self.num_cached_block[request.request_id] = len(blocks)
        num_tokens = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks)
        new_blocks = self.block_pool.get_new_blocks(num_new_blocks) if num_new_blocks > 0 else []
        blocks.extend(new_blocks)
        if self.enable_caching:
            self.cache_blocks(request, min(num_tokens, request.num_tokens))
        return new_blocks
        # <<< lab 05.4

    def get_shortage(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, int] | None:
        """(blocks needed, blocks free) of the first fit test that fails, or None when the tokens fit.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.allocate_slots (its two fit tests)
        """
        num_free = self.block_pool.get_num_free_blocks()
        if full_sequence_must_fit:
            whole = min(request.num_tokens, self.max_model_len)
            needed = self.get_num_blocks_to_allocate(request, whole, hits)
            if needed > num_free:
                return needed, num_free
        num_tokens = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        needed = self.get_num_blocks_to_allocate(request, num_tokens, hits)
        return (needed, num_free) if needed > num_free else None

    def get_num_blocks_to_allocate(self, request: Request, num_tokens: int, hits: Sequence[KVCacheBlock]) -> int:
        """Free blocks that it costs to hold `num_tokens` tokens of a request, beside those it has. Never below 0.

        A hit that nobody holds lies in the free queue: taking it costs a free block like a new one.

        vLLM: v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.get_num_blocks_to_allocate
        """
        num_held = len(self.req_to_blocks.get(request.request_id, ()))
        num_new_blocks = max(cdiv(num_tokens, self.block_size) - num_held - len(hits), 0)
        if not hits:
            return num_new_blocks
        return num_new_blocks + sum(block.ref_cnt == 0 for block in hits)

    @boundary("cache_blocks")
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the first `num_tokens` tokens findable, and note in `num_cached_block` how many.

        vLLM: v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.cache_blocks
        """
        num_cached = self.num_cached_block.get(request.request_id, 0)
        num_full = num_tokens // self.block_size
        if num_full > num_cached:
            blocks = self.req_to_blocks[request.request_id]
            self.block_pool.cache_full_blocks(request, blocks, num_cached, num_full)
        self.num_cached_block[request.request_id] = max(num_cached, num_full)

    @boundary("free")
    def free(self, request: Request) -> None:
        """Let go of a request's blocks, if any, the last one first, so that a prefix outlives what follows it.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.free
        """
        self.num_cached_block.pop(request.request_id, None)
        blocks = self.req_to_blocks.pop(request.request_id, [])
        self.block_pool.free_blocks(blocks[::-1])

    @boundary("forget_uncomputed_blocks")
    def forget_uncomputed_blocks(self, request: Request) -> list[int]:
        """Take back the hashes of a request's own blocks that its K and V have not reached; returns their ids.

        For a victim that already had tokens in this step: its new blocks can be hit since they were allocated, but
        the step that would have filled them is not going to happen.

        vLLM: none, vLLM leaves the hashes (docs/differences.md)
        """
        first = request.num_computed_tokens // self.block_size
        uncomputed = self.req_to_blocks.get(request.request_id, [])[first:]
        return self.block_pool.forget_hashes(block for block in uncomputed if block.ref_cnt == 1)

    def get_block_ids(self, request_id: str) -> list[int]:
        """A request's block table.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.get_block_ids
        """
        return [block.block_id for block in self.req_to_blocks.get(request_id, ())]

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        """Leading blocks that every request with blocks shares; without a prefix cache nothing is shared.

        vLLM: v1/core/single_type_kv_cache_manager.py::FullAttentionManager.get_num_common_prefix_blocks
        """
        if not self.enable_caching:
            return 0
        num_common = 0
        for block in self.req_to_blocks.get(running_request_id, ()):
            if block.ref_cnt != len(self.req_to_blocks):
                break
            num_common += 1
        return num_common

    def _num_tokens_with_slots(self, request: Request, num_new_tokens: int, num_hit_tokens: int) -> int:
        return min(request.num_computed_tokens + num_hit_tokens + num_new_tokens, self.max_model_len)
