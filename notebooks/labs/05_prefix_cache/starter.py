"""Lab 05 · Chained hashes and the prefix cache

Say for any prompt how many of its tokens are cached, in which blocks, and what its admission costs in free blocks.

    5.1  hashes that cover all that came before (15 points)
    5.2  the map from hashes to blocks (15 points)
    5.3  the longest cached prefix (10 points)
    5.4  slots, and what they cost (20 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 05
"""

import hashlib
from array import array
from collections.abc import Sequence

from minivllm.boundary import boundary
from minivllm.config import cdiv
from minivllm.core.block_hash import Hash
from minivllm.core.block_pool import KVCacheBlock
from minivllm.core.request import Request
from minivllm.course.grader import given


def hash_block_tokens(parent: Hash, token_ids: Sequence[int], extra_keys: tuple[str, ...] | None = None) -> Hash:
    """SHA-256 over the parent's hash, the tokens and what else must be equal for two blocks to be the same.

    vLLM: v1/core/kv_cache_utils.py::hash_block_tokens (hashes bytes in place of a pickle)
    """
    raise NotImplementedError("Lab 5.1: one value for parent, tokens and extra keys")


def extend_block_hashes(
    block_hashes: list[Hash],
    token_ids: Sequence[int],
    block_size: int,
    none_hash: Hash,
    cache_salt: str | None = None,
) -> None:
    """Append the hashes of the blocks of `token_ids` that are full and have none yet.

    `cache_salt` keeps tenants apart; an empty one is none. It enters block 0 only; the chain carries it on.

    vLLM: v1/core/kv_cache_utils.py::get_request_block_hasher.request_block_hasher
    """
    raise NotImplementedError("Lab 5.1: hash the full blocks that have no hash yet")


class BlockPool(given.BlockPool):
    """All `num_gpu_blocks` blocks. Block 0 is the null block: padding of block tables, never handed out.

    vLLM: v1/core/block_pool.py::BlockPool (simplified: one KV cache group, no KV events)
    """

    @boundary("get_cached_block")
    def get_cached_block(self, block_hash: Hash) -> KVCacheBlock | None:
        """The first block cached under this hash, or None.

        vLLM: v1/core/block_pool.py::BlockPool.get_cached_block
        """
        raise NotImplementedError("Lab 5.2: look the hash up")

    @boundary("cache_full_blocks")
    def cache_full_blocks(
        self, request: Request, blocks: Sequence[KVCacheBlock], num_cached: int, num_full: int
    ) -> None:
        """Give blocks [num_cached, num_full) of a request's block table their hashes: from now on they can be hit.

        This happens when the blocks are allocated, before the forward pass has filled them.

        vLLM: v1/core/block_pool.py::BlockPool.cache_full_blocks
        """
        raise NotImplementedError("Lab 5.2: give each full block its hash, and enter it in the map")

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        """Take a block out of the hash map; False when it wasn't in it.

        vLLM: v1/core/block_pool.py::BlockPool._maybe_evict_cached_block
        """
        raise NotImplementedError("Lab 5.2: take the block, and no other, out of the map")


class KVCacheManager(given.KVCacheManager):
    """The block tables of all requests, over one pool.

    vLLM: v1/core/kv_cache_manager.py::KVCacheManager (simplified: one full-attention group, so the coordinator and
    SingleTypeKVCacheManager are part of it)
    """

    @boundary("get_computed_blocks")
    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        """The longest cached prefix of a request: its blocks and their tokens. Takes no hold of them.

        At least one token must be left to compute, or there would be no logits. Hits are whole blocks, so of a prompt
        that is cached to its last token the whole last block is computed again.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.get_computed_blocks
        """
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        raise NotImplementedError("Lab 5.3: walk the request's hashes until the first that is not cached")

    def get_num_blocks_to_allocate(self, request: Request, num_tokens: int, hits: Sequence[KVCacheBlock]) -> int:
        """Free blocks that it costs to hold `num_tokens` tokens of a request, beside those it has. Never below 0.

        A hit that nobody holds lies in the free queue: taking it costs a free block like a new one.

        vLLM: v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.get_num_blocks_to_allocate
        """
        raise NotImplementedError("Lab 5.4: what new blocks and hits cost")

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
        raise NotImplementedError("Lab 5.4: the two fit tests")

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
        raise NotImplementedError("Lab 5.4: refuse, or hold the hits, take new blocks, and make full ones findable")

    @boundary("cache_blocks")
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the first `num_tokens` tokens findable, and note in `num_cached_block` how many.

        vLLM: v1/core/single_type_kv_cache_manager.py::SingleTypeKVCacheManager.cache_blocks
        """
        raise NotImplementedError("Lab 5.4: hand the blocks that are full now to the pool, once")

    @boundary("free")
    def free(self, request: Request) -> None:
        """Let go of a request's blocks, if any, the last one first, so that a prefix outlives what follows it.

        vLLM: v1/core/kv_cache_manager.py::KVCacheManager.free
        """
        raise NotImplementedError("Lab 5.4: give all blocks back, the last one first")
