"""A right solution of lab 04: links without sentinels, with two ends that may be None."""


class FreeKVCacheBlockQueue:
    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self.first: KVCacheBlock | None = None
        self.last: KVCacheBlock | None = None
        for block in blocks:
            self.append(block)

    def popleft(self) -> KVCacheBlock:
        if self.first is None:
            raise ValueError("nothing is free")
        block = self.first
        self.remove(block)
        return block

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if self.num_free_blocks < n:
            raise ValueError(f"{n} blocks are wanted, {self.num_free_blocks} are free")
        taken = []
        while len(taken) < n:
            taken.append(self.popleft())
        return taken

    def remove(self, block: KVCacheBlock) -> None:
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
        block.prev_free_block = self.last
        block.next_free_block = None
        if self.last is None:
            self.first = block
        else:
            self.last.next_free_block = block
        self.last = block
        self.num_free_blocks += 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        blocks = []
        block = self.first
        while block is not None:
            blocks.append(block)
            block = block.next_free_block
        return blocks


class BlockPool(given.BlockPool):
    @boundary("get_new_blocks")
    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        taken = self.free_block_queue.popleft_n(num_blocks)
        self.evicted_block_ids = []
        for block in taken:
            block.ref_cnt += 1
            if self._maybe_evict_cached_block(block):
                self.evicted_block_ids.append(block.block_id)
        return taken

    @boundary("free_blocks")
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(ordered_blocks)
        for block in blocks:
            block.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in blocks if b.ref_cnt == 0 and b is not self.null_block)

    @boundary("touch")
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            block.ref_cnt += 1
            if block.ref_cnt == 1 and block is not self.null_block:
                self.free_block_queue.remove(block)
