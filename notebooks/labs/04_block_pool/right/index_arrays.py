"""A right solution of lab 04: the links are two arrays of block ids, with one place for both ends."""


class FreeKVCacheBlockQueue:
    def __init__(self, blocks: list[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self.blocks = blocks
        self.end = len(blocks)  # stands before the first and after the last
        self.left = [-1] * (len(blocks) + 1)
        self.right = [-1] * (len(blocks) + 1)
        self.left[self.end] = self.right[self.end] = self.end
        self.place = {block.block_id: place for place, block in enumerate(blocks)}
        self.append_n(blocks)

    def popleft(self) -> KVCacheBlock:
        place = self.right[self.end]
        if place == self.end:
            raise ValueError("nothing is free")
        self.remove(self.blocks[place])
        return self.blocks[place]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if n > self.num_free_blocks:
            raise ValueError(f"{n} blocks are wanted, {self.num_free_blocks} are free")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        place = self.place[block.block_id]
        left, right = self.left[place], self.right[place]
        if left < 0:
            raise RuntimeError(f"{block} is in use")
        self.right[left], self.left[right] = right, left
        self.left[place] = self.right[place] = -1
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        place, last = self.place[block.block_id], self.left[self.end]
        self.left[place], self.right[place] = last, self.end
        self.right[last] = self.left[self.end] = place
        self.num_free_blocks += 1

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        order = []
        place = self.right[self.end]
        while place != self.end:
            order.append(self.blocks[place])
            place = self.right[place]
        return order


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
