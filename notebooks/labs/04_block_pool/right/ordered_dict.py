"""A right solution of lab 04: the queue is an OrderedDict of block ids."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from minivllm.boundary import boundary
from minivllm.core.block_pool import KVCacheBlock
from minivllm.course.grader import given


class FreeKVCacheBlockQueue:
    """A doubly linked list through the blocks themselves, so that a hit in the middle leaves in constant time.

    The front is allocated next; freed blocks join at the tail.

    vLLM: v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue
    """

    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self.by_id: OrderedDict[int, KVCacheBlock] = OrderedDict()
        self.append_n(blocks)

    def popleft(self) -> KVCacheBlock:
        """Take the block at the front. Raises ValueError when there is none."""
        if not self.by_id:
            raise ValueError("nothing is free")
        self.num_free_blocks -= 1
        return self.by_id.popitem(last=False)[1]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in order. Raises ValueError before anything changes."""
        if len(self.by_id) < n:
            raise ValueError(f"{n} blocks are wanted, {len(self.by_id)} are free")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        """Unlink a block from anywhere in the queue. Raises RuntimeError when it isn't in it."""
        if self.by_id.pop(block.block_id, None) is None:
            raise RuntimeError(f"{block} is in use")
        self.num_free_blocks = len(self.by_id)

    def append(self, block: KVCacheBlock) -> None:
        """Put a block at the tail."""
        self.by_id[block.block_id] = block
        self.num_free_blocks = len(self.by_id)

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks at the tail, in the order given."""
        self.by_id.update((block.block_id, block) for block in blocks)
        self.num_free_blocks = len(self.by_id)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks, the next to be allocated first. Walks the queue: for traces and tests."""
        return list(self.by_id.values())


class BlockPool(given.BlockPool):
    """All `num_gpu_blocks` blocks. Block 0 is the null block: padding of block tables, never handed out.

    vLLM: v1/core/block_pool.py::BlockPool (simplified: one KV cache group, no KV events)
    """

    @boundary("get_new_blocks")
    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Take blocks from the front of the free queue, each for one block table. What they held is evicted now:
        `evicted_block_ids` says of which, in order.

        Raises ValueError, before anything changes, when fewer are free.

        vLLM: v1/core/block_pool.py::BlockPool.get_new_blocks
        """
        taken = self.free_block_queue.popleft_n(num_blocks)
        self.evicted_block_ids = [block.block_id for block in taken if self._maybe_evict_cached_block(block)]
        self._hold(taken)
        return taken

    def _hold(self, blocks: Iterable[KVCacheBlock]) -> None:
        """A helper of the student's own."""
        for block in blocks:
            block.ref_cnt += 1

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One block table less holds these blocks. Those that nobody holds join the free queue in the given order.

        The hash stays: a free block can be hit until it is handed out again.

        vLLM: v1/core/block_pool.py::BlockPool.free_blocks
        """
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.is_null and block.ref_cnt < 1:
                self.free_block_queue.append(block)

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One more block table holds these blocks. A block that was free leaves the free queue.

        vLLM: v1/core/block_pool.py::BlockPool.touch
        """
        free = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
        for block in free:
            self.free_block_queue.remove(block)
        for block in blocks:
            block.ref_cnt = block.ref_cnt + 1
