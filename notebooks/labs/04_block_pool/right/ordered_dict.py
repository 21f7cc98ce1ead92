"""A right solution of lab 04: the queue is an OrderedDict of block ids."""

from collections import OrderedDict


class FreeKVCacheBlockQueue:
    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self.by_id: OrderedDict[int, KVCacheBlock] = OrderedDict()
        self.append_n(blocks)

    def popleft(self) -> KVCacheBlock:
        if not self.by_id:
            raise ValueError("nothing is free")
        self.num_free_blocks -= 1
        return self.by_id.popitem(last=False)[1]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if len(self.by_id) < n:
            raise ValueError(f"{n} blocks are wanted, {len(self.by_id)} are free")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        if self.by_id.pop(block.block_id, None) is None:
            raise RuntimeError(f"{block} is in use")
        self.num_free_blocks = len(self.by_id)

    def append(self, block: KVCacheBlock) -> None:
        self.by_id[block.block_id] = block
        self.num_free_blocks = len(self.by_id)

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.by_id.update((block.block_id, block) for block in blocks)
        self.num_free_blocks = len(self.by_id)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        return list(self.by_id.values())


class BlockPool(given.BlockPool):
    @boundary("get_new_blocks")
    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        taken = self.free_block_queue.popleft_n(num_blocks)
        self.evicted_block_ids = [block.block_id for block in taken if self._maybe_evict_cached_block(block)]
        self._hold(taken)
        return taken

    def _hold(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            block.ref_cnt += 1

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.is_null and block.ref_cnt < 1:
                self.free_block_queue.append(block)

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        free = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
        for block in free:
            self.free_block_queue.remove(block)
        for block in blocks:
            block.ref_cnt = block.ref_cnt + 1
