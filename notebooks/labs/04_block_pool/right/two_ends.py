"""A right solution of lab 04: links without sentinels, with two ends that may be None."""

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
        self.first: KVCacheBlock | None = None
        self.last: KVCacheBlock | None = None
        for block in blocks:
            self.append(block)

    def popleft(self) -> KVCacheBlock:
        """Take the block at the front. Raises ValueError when there is none."""
        if self.first is None:
            raise ValueError("nothing is free")
        block = self.first
        self.remove(block)
        return block

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in order. Raises ValueError before anything changes."""
        if self.num_free_blocks < n:
            raise ValueError(f"{n} blocks are wanted, {self.num_free_blocks} are free")
        taken = []
        while len(taken) < n:
            taken.append(self.popleft())
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        """Unlink a block from anywhere in the queue. Raises RuntimeError when it isn't in it."""
        left, right = block.prev_free_block, block.next_free_block
        if left is None and self.first is not block:
            raise RuntimeError(f"{block} is in use")
        if left is None:
            self.first = right
        else:
            left.next_free_block = right
        if right is None:
            self.last = left
        else:
            right.prev_free_block = left
        block.prev_free_block = None
        block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put a block at the tail."""
        block.prev_free_block = self.last
        block.next_free_block = None
        if self.last is None:
            self.first = block
        else:
            self.last.next_free_block = block
        self.last = block
        self.num_free_blocks += 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks at the tail, in the order given."""
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks, the next to be allocated first. Walks the queue: for traces and tests."""
        blocks = []
        block = self.first
        while block is not None:
            blocks.append(block)
            block = block.next_free_block
        return blocks


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
        self.evicted_block_ids = []
        for block in taken:
            block.ref_cnt += 1
            if self._maybe_evict_cached_block(block):
                self.evicted_block_ids.append(block.block_id)
        return taken

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One block table less holds these blocks. Those that nobody holds join the free queue in the given order.

        The hash stays: a free block can be hit until it is handed out again.

        vLLM: v1/core/block_pool.py::BlockPool.free_blocks
        """
        blocks = list(ordered_blocks)
        for block in blocks:
            block.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in blocks if b.ref_cnt == 0 and b is not self.null_block)

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One more block table holds these blocks. A block that was free leaves the free queue.

        vLLM: v1/core/block_pool.py::BlockPool.touch
        """
        for block in blocks:
            block.ref_cnt += 1
            if block.ref_cnt == 1 and block is not self.null_block:
                self.free_block_queue.remove(block)
