"""Wrong solutions of lab 04: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Wrong

QUEUE = "FreeKVCacheBlockQueue"
POOL = "BlockPool"

WRONG = [
    Wrong(
        id="touch_without_unlink",
        task="4.3",
        symbol=f"{POOL}.touch",
        old="self.free_block_queue.remove(block)",
        new="pass",
        misconception="ref_cnt is enough",
        message="a block that is hit stays in the free queue, although somebody holds it now. The next request will "
        "get it as a new block, and both will write to it.",
    ),
    Wrong(
        id="touch_sets_one",
        task="4.3",
        symbol=f"{POOL}.touch",
        old="block.ref_cnt += 1",
        new="block.ref_cnt = 1",
        misconception="in use is yes or no",
        message="one more user was not counted: the first to finish will free the block for both.",
    ),
    Wrong(
        id="touch_only_free_ones",
        task="4.3",
        symbol=f"{POOL}.touch",
        old="                self.free_block_queue.remove(block)\n            block.ref_cnt += 1",
        new="                self.free_block_queue.remove(block)\n                block.ref_cnt += 1",
        misconception="only a block that was free gets a user",
        message="one more user was not counted: the first to finish will free the block for both.",
    ),
    Wrong(
        id="free_forgets_ref_count",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="if block.ref_cnt == 0 and not block.is_null:",
        new="if not block.is_null:",
        misconception="finished means free",
        message="a block that others still hold was put into the free queue. Only a ref_cnt of 0 frees it.",
    ),
    Wrong(
        id="free_does_not_decrement",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="block.ref_cnt -= 1",
        new="block.ref_cnt = 0",
        misconception="who frees, frees for all",
        message="ref_cnt was set to 0 although others still hold the block. One user less is one less.",
    ),
    Wrong(
        id="freed_to_the_front",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="self.free_block_queue.append(block)",
        new="others = [b for b in self.free_block_queue.get_all_free_blocks()]\n"
        "                self.free_block_queue.append(block)\n"
        "                for other in others:\n"
        "                    self.free_block_queue.remove(other)\n"
        "                    self.free_block_queue.append(other)",
        misconception="reuse what is warm",
        message="a freed block went to the front, where it is handed out next. It belongs to the tail: the front is "
        "what has been free the longest, and goes first.",
    ),
    Wrong(
        id="reverses_again",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="for block in ordered_blocks:",
        new="for block in reversed(list(ordered_blocks)):",
        misconception="the caller did not",
        message="the freed blocks joined in reverse order. The caller has reversed the table already; keep its order.",
    ),
    Wrong(
        id="sorts_the_free_list",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="                self.free_block_queue.append(block)",
        new="                self.free_block_queue.append(block)\n"
        "        queue = self.free_block_queue\n"
        "        for block in sorted(queue.get_all_free_blocks(), key=lambda b: b.block_id):\n"
        "            queue.remove(block)\n"
        "            queue.append(block)",
        misconception="a free list is kept in order",
        message="the free queue is sorted by number. Its order is time: freed first, handed out first.",
    ),
    Wrong(
        id="null_block_handed_out",
        task="4.2",
        symbol=f"{POOL}.get_new_blocks",
        old="        blocks = self.free_block_queue.popleft_n(num_blocks)",
        new="        if self.null_block.ref_cnt == 0 and num_blocks:\n"
        "            self.free_block_queue.append(self.null_block)\n"
        "        blocks = self.free_block_queue.popleft_n(num_blocks)",
        misconception="N blocks are N blocks",
        message="block 0 is in the free queue. It is the null block, which pads block tables, and nobody's.",
    ),
    Wrong(
        id="remove_forgets_counter",
        task="4.1",
        symbol=f"{QUEUE}.remove",
        old="        self.num_free_blocks -= 1",
        new="        pass",
        misconception="popleft counts",
        message="remove() unlinks the block, but num_free_blocks still counts it.",
        more=(
            (
                f"{QUEUE}.popleft",
                "        self.remove(block)",
                "        self.remove(block)\n        self.num_free_blocks -= 1",
            ),
        ),
    ),
    Wrong(
        id="append_forgets_counter",
        task="4.1",
        symbol=f"{QUEUE}.append",
        old="        self.num_free_blocks += 1",
        new="        pass",
        misconception="the count changes when blocks are taken",
        message="append() links the block in, but num_free_blocks does not count it.",
        more=(
            (
                f"{QUEUE}.__init__",
                "        self.append_n(blocks)",
                "        self.append_n(blocks)\n        self.num_free_blocks = len(blocks)",
            ),
        ),
    ),
    Wrong(
        id="remove_half_unlinked",
        task="4.1",
        symbol=f"{QUEUE}.remove",
        old="before.next_free_block, after.prev_free_block = after, before",
        new="before.next_free_block = after",
        misconception="the list is walked forwards",
        message="remove() mends the link forwards, and not the one backwards: the block after it still points at it.",
    ),
    Wrong(
        id="remove_keeps_links",
        task="4.1",
        symbol=f"{QUEUE}.remove",
        old="        block.prev_free_block = block.next_free_block = None\n",
        new="",
        misconception="nobody looks at them",
        message="a removed block keeps its links, so that removing it again is not noticed and breaks its neighbours.",
    ),
    Wrong(
        id="append_half_linked",
        task="4.1",
        symbol=f"{QUEUE}.append",
        old="block.prev_free_block, block.next_free_block = last, self._tail",
        new="block.next_free_block = self._tail",
        misconception="the list is walked forwards",
        message="append() does not tell the block what stands before it, so it can't be removed later.",
    ),
    Wrong(
        id="pops_from_the_tail",
        task="4.1",
        symbol=f"{QUEUE}.popleft",
        old="block = self._head.next_free_block\n        if block is self._tail:",
        new="block = self._tail.prev_free_block\n        if block is self._head:",
        misconception="the last one in is the first one out",
        message="popleft() takes the block at the tail, the one that was freed last. The front goes first.",
    ),
    Wrong(
        id="takes_before_it_counts",
        task="4.1",
        symbol=f"{QUEUE}.popleft_n",
        old="        if n > self.num_free_blocks:\n"
        '            raise ValueError(f"Cannot take {n} of {self.num_free_blocks} free blocks")\n',
        new="",
        misconception="the exception tells",
        message="blocks were taken before it turned out that there are too few: they are lost. Count first.",
    ),
    Wrong(
        id="gives_fewer_when_short",
        task="4.1",
        symbol=f"{QUEUE}.popleft_n",
        old='            raise ValueError(f"Cannot take {n} of {self.num_free_blocks} free blocks")',
        new="            n = self.num_free_blocks",
        misconception="as many as there are",
        message="fewer blocks came back than were asked for. A request can't run with a part of its blocks: raise.",
    ),
    Wrong(
        id="new_blocks_without_owner",
        task="4.2",
        symbol=f"{POOL}.get_new_blocks",
        old="            block.ref_cnt = 1",
        new="            pass",
        misconception="touch counts",
        message="a new block has ref_cnt 0, although a request holds it from now on. It can never become free again.",
    ),
    Wrong(
        id="popleft_n_reversed",
        task="4.1",
        symbol=f"{QUEUE}.popleft_n",
        old="return [self.popleft() for _ in range(n)]",
        new="return [self.popleft() for _ in range(n)][::-1]",
        misconception="a set of blocks has no order",
        message="popleft_n() gives the blocks in reverse order. The first of the queue is the first of the table.",
    ),
    Wrong(
        id="forgets_the_hash_on_free",
        task="4.2",
        symbol=f"{POOL}.free_blocks",
        old="                self.free_block_queue.append(block)",
        new="                self._maybe_evict_cached_block(block)\n"
        "                self.free_block_queue.append(block)",
        misconception="a free block is empty",
        message="a freed block lost its hash, so nothing is ever found in the prefix cache. It keeps its content until "
        "it is handed out again.",
    ),
    Wrong(
        id="never_evicts",
        task="4.2",
        symbol=f"{POOL}.get_new_blocks",
        old="[block.block_id for block in blocks if self._maybe_evict_cached_block(block)]",
        new="[]",
        misconception="what is overwritten is gone",
        message="a block that is handed out again can still be found under its old hash: the next hit reads somebody "
        "else's K and V. Evict it when it is taken.",
    ),
]
