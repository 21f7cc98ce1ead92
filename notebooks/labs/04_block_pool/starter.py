"""Lab 04 · Block pool and free queue

Predict the free queue and every reference count after any sequence of allocate, share, free.

    4.1  the free queue, a doubly linked list through the blocks (20 points)
    4.2  hand out and take back (15 points)
    4.3  share (10 points)
    4.4  all of it, as the real vLLM did it (15 points)

Replace every `raise NotImplementedError`; leave names, arguments and decorators as they are.
Then: minivllm lab check 04
"""

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
        raise NotImplementedError("Lab 4.1: link the blocks, in the order given")

    def popleft(self) -> KVCacheBlock:
        """Take the block at the front. Raises ValueError when there is none."""
        raise NotImplementedError("Lab 4.1: take the block at the front")

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Take `n` blocks from the front, in order. Raises ValueError before anything changes."""
        raise NotImplementedError("Lab 4.1: take n blocks, or none")

    def remove(self, block: KVCacheBlock) -> None:
        """Unlink a block from anywhere in the queue. Raises RuntimeError when it isn't in it."""
        raise NotImplementedError("Lab 4.1: unlink the block")

    def append(self, block: KVCacheBlock) -> None:
        """Put a block at the tail."""
        raise NotImplementedError("Lab 4.1: link the block in at the tail")

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Put blocks at the tail, in the order given."""
        raise NotImplementedError("Lab 4.1: append them one after the other")

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """All free blocks, the next to be allocated first. Walks the queue: for traces and tests."""
        raise NotImplementedError("Lab 4.1: walk the queue from the front")


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
        raise NotImplementedError("Lab 4.2: take blocks from the free queue, evict what they held, count their owner")

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One block table less holds these blocks. Those that nobody holds join the free queue in the given order.

        The hash stays: a free block can be hit until it is handed out again.

        vLLM: v1/core/block_pool.py::BlockPool.free_blocks
        """
        raise NotImplementedError("Lab 4.2: count one owner less")

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One more block table holds these blocks. A block that was free leaves the free queue.

        vLLM: v1/core/block_pool.py::BlockPool.touch
        """
        raise NotImplementedError("Lab 4.3: count one owner more")
