"""BlockPool: every block of the KV cache, which are free, and which can be found by hash.

Owns: the blocks with their reference counts and hashes, the free queue, the hash map.
Interface: get_new_blocks / free_blocks / touch; get_cached_block / cache_full_blocks / forget_hashes;
reset_prefix_cache, get_num_free_blocks, get_usage.
Must not know: requests' states and counters, the scheduler, or what K and V are: a block is a number.

The free queue is also the eviction order: a freed block keeps its hash and waits at the tail, and only when it comes
to the front and is handed out again is its content gone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from minivllm.boundary import boundary
from minivllm.core.block_hash import Hash
from minivllm.core.request import Request


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """One block: `block_size` slots in every layer's cache.

    vLLM: v1/core/kv_cache_utils.py::KVCacheBlock
    """

    block_id: int
    ref_cnt: int = 0  # block tables that hold it
    block_hash: Hash | None = None  # set once the block is full and can be found
    prev_free_block: "KVCacheBlock | None" = None  # links of the free queue; None: not in it
    next_free_block: "KVCacheBlock | None" = None
    is_null: bool = False

    def __repr__(self) -> str:
        digest = self.block_hash.hex()[:8] if self.block_hash else None
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt}, block_hash={digest})"


class FreeKVCacheBlockQueue:
    """A doubly linked list through the blocks themselves, so that a hit in the middle leaves in constant time.

    The front is allocated next; freed blocks join at the tail.

    vLLM: v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue
    """

    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        # >>> lab 04.1 link the blocks, in the order given
        self._head = KVCacheBlock(block_id=-1)  # sentinels, never handed out
        self._tail = KVCacheBlock(block_id=-1)
        self._head.next_free_block, self._tail.prev_free_block = self._tail, self._head
        self.append_n(blocks)
        # <<< lab 04.1

    def popleft(self) -> KVCacheBlock:
        """Take the block at the front. Raises ValueError when there is none."""
        block = self._head.next_free_block
        if block is self._tail:
            raise ValueError("No free blocks")
        self.remove(block)
        return block

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in order. Raises ValueError before anything changes."""
        if n > self.num_free_blocks:
            raise ValueError(f"Cannot take {n} of {self.num_free_blocks} free blocks")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        """Unlink a block from anywhere in the queue. Raises RuntimeError when it isn't in it."""
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise RuntimeError(f"Block {block.block_id} is not in the free queue")
        before.next_free_block, after.prev_free_block = after, before
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put a block at the tail."""
        last = self._tail.prev_free_block
        block.prev_free_block, block.next_free_block = last, self._tail
        last.next_free_block = self._tail.prev_free_block = block
        self.num_free_blocks += 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks at the tail, in the order given."""
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks, the next to be allocated first. Walks the queue: for traces and tests."""
        found, block = [], self._head.next_free_block
        while block is not self._tail:
            found.append(block)
            block = block.next_free_block
        return found


class BlockPool:
    """All `num_gpu_blocks` blocks. Block 0 is the null block: padding of block tables, never handed out.

    vLLM: v1/core/block_pool.py::BlockPool (simplified: one KV cache group, no KV events)
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        free_queue: Callable[[list[KVCacheBlock]], FreeKVCacheBlockQueue] = FreeKVCacheBlockQueue,
    ) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = free_queue(self.blocks)
        self.null_block = self.free_block_queue.popleft()
        self.null_block.is_null = True
        # Equal blocks are not merged, since block tables only grow at the end: a hash may have several blocks, and
        # the first one cached is the one that is found.
        self.cached_block_hash_to_block: dict[Hash, dict[int, KVCacheBlock]] = {}
        self.evicted_block_ids: list[int] = []  # by the latest get_new_blocks

    @boundary("get_cached_block")
    def get_cached_block(self, block_hash: Hash) -> KVCacheBlock | None:
        """The first block cached under this hash, or None.

        vLLM: v1/core/block_pool.py::BlockPool.get_cached_block
        """
        blocks = self.cached_block_hash_to_block.get(block_hash)
        return next(iter(blocks.values())) if blocks else None

    @boundary("cache_full_blocks")
    def cache_full_blocks(
        self, request: Request, blocks: Sequence[KVCacheBlock], num_cached: int, num_full: int
    ) -> None:
        """Give blocks [num_cached, num_full) of a request's block table their hashes: from now on they can be hit.

        This happens when the blocks are allocated, before the forward pass has filled them.

        vLLM: v1/core/block_pool.py::BlockPool.cache_full_blocks
        """
        for index in range(num_cached, num_full):
            block, block_hash = blocks[index], request.block_hashes[index]
            assert block.block_hash is None, f"{block} is cached already"
            block.block_hash = block_hash
            self.cached_block_hash_to_block.setdefault(block_hash, {})[block.block_id] = block

    @boundary("get_new_blocks")
    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue, each for one block table. What they held is evicted now:
        `evicted_block_ids` says of which, in order.

        Raises ValueError, before anything changes, when fewer are free.

        vLLM: v1/core/block_pool.py::BlockPool.get_new_blocks
        """
        blocks = self.free_block_queue.popleft_n(num_blocks)
        self.evicted_block_ids = [block.block_id for block in blocks if self._maybe_evict_cached_block(block)]
        for block in blocks:
            assert block.ref_cnt == 0, f"{block} was in the free queue while in use"
            block.ref_cnt = 1
        return blocks

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One more block table holds these blocks. A block that was free leaves the free queue.

        vLLM: v1/core/block_pool.py::BlockPool.touch
        """
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One block table less holds these blocks. Those that nobody holds join the free queue in the given order.

        The hash stays: a free block can be hit until it is handed out again.

        vLLM: v1/core/block_pool.py::BlockPool.free_blocks
        """
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.append(block)

    def forget_hashes(self, blocks: Iterable[KVCacheBlock]) -> list[int]:
        """Make blocks that can be hit unfindable; returns their ids.

        vLLM: v1/core/block_pool.py::BlockPool.evict_blocks
        """
        return [block.block_id for block in blocks if self._maybe_evict_cached_block(block)]

    @boundary("reset_prefix_cache")
    def reset_prefix_cache(self) -> bool:
        """Forget every hash. False, and nothing happens, while any block is in use.

        vLLM: v1/core/block_pool.py::BlockPool.reset_prefix_cache
        """
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1:
            return False
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block.block_hash = None
        return True

    def get_num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        """Share of the usable blocks (all but the null block) that are in use, 0.0 to 1.0.

        vLLM: v1/core/block_pool.py::BlockPool.get_usage
        """
        return 1.0 - self.get_num_free_blocks() / (self.num_gpu_blocks - 1)

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        """Take a block out of the hash map; False when it wasn't in it.

        vLLM: v1/core/block_pool.py::BlockPool._maybe_evict_cached_block
        """
        if block.block_hash is None:
            return False
        same_hash = self.cached_block_hash_to_block[block.block_hash]
        del same_hash[block.block_id]
        if not same_hash:
            del self.cached_block_hash_to_block[block.block_hash]
        block.block_hash = None
        return True
