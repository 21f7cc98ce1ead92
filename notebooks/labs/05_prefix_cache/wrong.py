"""Wrong solutions of lab 05: edits of the engine's own lines, each caught, each with what it looks like."""

from minivllm.course.grader.wrong import Wrong

WRONG = [
    Wrong(
        id="no_parent_in_hash",
        task="5.1",
        symbol="hash_block_tokens",
        old="hashlib.sha256(parent)",
        new='hashlib.sha256(b"")',
        misconception="same tokens, same block",
        message=(
            "the hash covers the tokens of the block alone. K and V depend on all tokens before them too: the "
            "hash of the block before must go in."
        ),
    ),
    Wrong(
        id="tokens_without_order",
        task="5.1",
        symbol="hash_block_tokens",
        old='array("q", token_ids)',
        new='array("q", sorted(token_ids))',
        misconception="a set of tokens",
        message="two blocks with the same tokens in another order have the same hash. Their K and V differ.",
    ),
    Wrong(
        id="partial_block_hashed",
        task="5.1",
        symbol="extend_block_hashes",
        old="len(token_ids) - block_size + 1, block_size",
        new="len(token_ids), block_size",
        misconception="share what is there",
        message="a block that is not full got a hash. It will be filled with other tokens later.",
    ),
    Wrong(
        id="last_full_block_not_hashed",
        task="5.1",
        symbol="extend_block_hashes",
        old="len(token_ids) - block_size + 1, block_size",
        new="len(token_ids) - block_size, block_size",
        misconception="a full block is one with a successor",
        message="a block whose last token has just come has no hash. It is full: hash it.",
    ),
    Wrong(
        id="outputs_never_hashed",
        task="5.1",
        symbol="extend_block_hashes",
        old="    for start in range(",
        new="    if block_hashes:\n        return\n    for start in range(",
        misconception="only prompts are shared",
        message="a list that has hashes gets no more of them. Outputs fill blocks too, and their blocks can be hit.",
    ),
    Wrong(
        id="salt_ignored",
        task="5.1",
        symbol="extend_block_hashes",
        old="parent, token_ids[start : start + block_size], extra_keys)",
        new="parent, token_ids[start : start + block_size])",
        misconception="salt is metadata",
        message="the salt does not change the hash, so that tenants share blocks. It goes into the hash of block 0.",
    ),
    Wrong(
        id="salt_in_second_block",
        task="5.1",
        symbol="extend_block_hashes",
        old="and start == 0 else None",
        new="and start == block_size else None",
        misconception="the first block is position 1",
        message=(
            "the salt goes into the second block, and the first is shared with everybody. Block 0 starts at position 0."
        ),
    ),
    Wrong(
        id="chain_starts_anew",
        task="5.1",
        symbol="extend_block_hashes",
        old="parent = block_hashes[-1] if block_hashes else none_hash",
        new=(
            "parent = block_hashes[-1] if start else none_hash\n"
            "        parent = none_hash if start % (2 * block_size) == 0 else parent"
        ),
        misconception="every second block is a new chain",
        message="the chain of hashes is broken in the middle: a block is found although what comes before it differs.",
    ),
    Wrong(
        id="newest_duplicate",
        task="5.2",
        symbol="BlockPool.get_cached_block",
        old="next(iter(blocks.values()))",
        new="list(blocks.values())[-1]",
        misconception="the newest is the best",
        message=(
            "of several blocks with the same hash the last one is returned. vLLM returns the one that was cached first."
        ),
    ),
    Wrong(
        id="map_keeps_last_only",
        task="5.2",
        symbol="BlockPool.cache_full_blocks",
        old="self.cached_block_hash_to_block.setdefault(block_hash, {})[block.block_id] = block",
        new="self.cached_block_hash_to_block[block_hash] = {block.block_id: block}",
        misconception="a hash is one block",
        message=(
            "a second block with the same hash pushes the first one out of the map. Equal blocks are not merged: "
            "the map keeps both."
        ),
    ),
    Wrong(
        id="evicts_all_duplicates",
        task="5.2",
        symbol="BlockPool._maybe_evict_cached_block",
        old=("        del same_hash[block.block_id]\n        if not same_hash:\n            del"),
        new=("        if same_hash:\n            del"),
        misconception="the hash is gone",
        message="evicting one block takes away all blocks with its hash. The others still hold the content.",
    ),
    Wrong(
        id="eviction_keeps_block_hash",
        task="5.2",
        symbol="BlockPool._maybe_evict_cached_block",
        old=("        block.block_hash = None\n"),
        new="",
        misconception="the map is what counts",
        message="an evicted block still has its hash, so that map and block disagree.",
    ),
    Wrong(
        id="empty_entry_stays",
        task="5.2",
        symbol="BlockPool._maybe_evict_cached_block",
        old=("        if not same_hash:\n            del self.cached_block_hash_to_block[block.block_hash]\n"),
        new="",
        misconception="an empty dict is nothing",
        message=(
            "a hash without blocks stays in the map, which grows for ever. Take the entry out with its last block."
        ),
    ),
    Wrong(
        id="caches_from_the_start",
        task="5.2",
        symbol="BlockPool.cache_full_blocks",
        old="for index in range(num_cached, num_full):",
        new="for index in range(num_full):",
        misconception="all full blocks",
        message="blocks that have their hash get it again. Only those from num_cached on are new.",
    ),
    Wrong(
        id="full_hit_uncapped",
        task="5.3",
        symbol="KVCacheManager.get_computed_blocks",
        old="(request.num_tokens - 1) // self.block_size",
        new="request.num_tokens // self.block_size",
        misconception="all cached, nothing to do",
        message=(
            "all tokens are hit, so nothing is left to compute, and there are no logits. At most num_tokens - 1 "
            "may be hit, in whole blocks."
        ),
    ),
    Wrong(
        id="hit_limited_to_prompt",
        task="5.3",
        symbol="KVCacheManager.get_computed_blocks",
        old="(request.num_tokens - 1) // self.block_size",
        new="(request.num_prompt_tokens - 1) // self.block_size",
        misconception="only prompts are cached",
        message="a request that comes back after a preemption hits its prompt alone. Its outputs are hashed too.",
    ),
    Wrong(
        id="one_block_always_left",
        task="5.3",
        symbol="KVCacheManager.get_computed_blocks",
        old="(request.num_tokens - 1) // self.block_size",
        new="request.num_tokens // self.block_size - 1",
        misconception="one block must be left",
        message=(
            "a whole block is left to compute although a token would do. Of a block that is not full nothing can "
            "be hit anyway."
        ),
    ),
    Wrong(
        id="goes_on_after_a_hole",
        task="5.3",
        symbol="KVCacheManager.get_computed_blocks",
        old="                break  #",
        new="                continue  #",
        misconception="later blocks are valid too",
        message=(
            "the look-up goes on after a block that is not cached. What follows a hole has no K and V before it "
            "to stand on."
        ),
    ),
    Wrong(
        id="hit_counts_blocks",
        task="5.3",
        symbol="KVCacheManager.get_computed_blocks",
        old="return hits, len(hits) * self.block_size",
        new="return hits, len(hits)",
        misconception="blocks are tokens",
        message="the second value counts blocks. It is the number of tokens in them.",
    ),
    Wrong(
        id="free_hits_not_charged",
        task="5.4",
        symbol="KVCacheManager.get_num_blocks_to_allocate",
        old="return num_new_blocks + sum(block.ref_cnt == 0 for block in hits)",
        new="return num_new_blocks",
        misconception="they are cached, so free",
        message="a hit that lies in the free queue was not counted. Taking it costs a free block like a new one.",
    ),
    Wrong(
        id="all_hits_charged",
        task="5.4",
        symbol="KVCacheManager.get_num_blocks_to_allocate",
        old="sum(block.ref_cnt == 0 for block in hits)",
        new="len(hits)",
        misconception="every block costs one",
        message="hits that somebody holds were counted. They are not in the free queue, and cost nothing.",
    ),
    Wrong(
        id="hits_not_subtracted",
        task="5.4",
        symbol="KVCacheManager.get_num_blocks_to_allocate",
        old="- num_held - len(hits), 0)",
        new="- num_held, 0)",
        misconception="the tokens need blocks",
        message="new blocks are counted for the tokens that were hit too. They have their blocks: the hits.",
    ),
    Wrong(
        id="touch_after_taking",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old=(
            "        if hits:\n"
            "            # before new blocks are taken: a hit may lie in the free queue\n"
            "            self.block_pool.touch(hits)\n"
            "            blocks.extend(hits)\n"
            "            self.num_cached_block[request.request_id] = len(blocks)\n"
            "        num_tokens = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)\n"
            "        num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks)\n"
            "        new_blocks = self.block_pool.get_new_blocks(num_new_blocks) if num_new_blocks > 0 else []\n"
        ),
        new=(
            "        num_tokens = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)\n"
            "        num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks) - len(hits)\n"
            "        new_blocks = self.block_pool.get_new_blocks(num_new_blocks) if num_new_blocks > 0 else []\n"
            "        if hits:\n"
            "            self.block_pool.touch(hits)\n"
            "            blocks.extend(hits)\n"
            "            self.num_cached_block[request.request_id] = len(blocks)\n"
        ),
        misconception="order does not matter",
        message=(
            "new blocks are taken before the hits are held. A hit may lie at the front of the free queue, and is "
            "handed out as a new block."
        ),
    ),
    Wrong(
        id="touch_before_fit_test",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="        if self.get_shortage(request",
        new=("        self.block_pool.touch(hits)\n        if self.get_shortage(request"),
        misconception="undo is easy",
        message=(
            "the hits are held before it is known whether the request fits. A request that is refused must not "
            "have changed anything."
        ),
        more=(
            (
                "KVCacheManager.allocate_slots",
                ("            self.block_pool.touch(hits)\n            blocks"),
                "            blocks",
            ),
        ),
    ),
    Wrong(
        id="hits_hashed_again",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="self.num_cached_block[request.request_id] = len(blocks)",
        new="self.num_cached_block[request.request_id] = 0",
        misconception="nothing of mine is cached yet",
        message="the hits are handed to the pool to be hashed again. They have their hash: count them as cached.",
    ),
    Wrong(
        id="hashed_one_step_late",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="self.cache_blocks(request, min(num_tokens, request.num_tokens))",
        new="self.cache_blocks(request, request.num_computed_tokens + num_hit_tokens)",
        misconception="only what is computed can be found",
        message=(
            "blocks become findable one step late. They get their hash when they are allocated, before the model "
            "has filled them."
        ),
    ),
    Wrong(
        id="blocks_for_new_tokens_only",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks)",
        new="num_new_blocks = cdiv(num_new_tokens, self.block_size)",
        misconception="new tokens, new blocks",
        message=(
            "blocks are taken for the new tokens alone. The last block may have room: count all tokens, less the "
            "blocks that are held."
        ),
    ),
    Wrong(
        id="one_block_too_many_at_the_edge",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks)",
        new="num_new_blocks = num_tokens // self.block_size + 1 - len(blocks)",
        misconception="better too many",
        message="at the edge of a block one block too many is taken. Round up, and no further.",
    ),
    Wrong(
        id="partial_block_forgotten",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="num_new_blocks = cdiv(num_tokens, self.block_size) - len(blocks)",
        new="num_new_blocks = num_tokens // self.block_size - len(blocks)",
        misconception="full blocks only",
        message="no block is taken for tokens that do not fill one. They need a slot too: round up.",
    ),
    Wrong(
        id="partial_block_cached",
        task="5.4",
        symbol="KVCacheManager.cache_blocks",
        old="num_full = num_tokens // self.block_size",
        new="num_full = min(cdiv(num_tokens, self.block_size), len(request.block_hashes))",
        misconception="its hash is there",
        message=(
            "a block is made findable before all its tokens are planned. Another request would read slots that "
            "nobody has written."
        ),
    ),
    Wrong(
        id="fit_counts_prompt_only",
        task="5.4",
        symbol="KVCacheManager.get_shortage",
        old="whole = min(request.num_tokens, self.max_model_len)",
        new="whole = min(request.num_prompt_tokens, self.max_model_len)",
        misconception="the sequence is the prompt",
        message="the whole-sequence test counts the prompt alone. A resumed request has outputs to compute again.",
    ),
    Wrong(
        id="freed_in_table_order",
        task="5.4",
        symbol="KVCacheManager.free",
        old="blocks[::-1]",
        new="blocks",
        misconception="first in, first out",
        message=(
            "the blocks are freed from the beginning of the table. The last one goes first, so that a prefix is "
            "evicted after what follows it."
        ),
    ),
    Wrong(
        id="free_keeps_cached_count",
        task="5.4",
        symbol="KVCacheManager.free",
        old=("        self.num_cached_block.pop(request.request_id, None)\n"),
        new="",
        misconception="the request is gone",
        message=(
            "the number of cached blocks stays after a request was freed. When it comes back after a preemption "
            "its new blocks get no hash."
        ),
    ),
    Wrong(
        id="hashes_all_blocks_again",
        task="5.1",
        symbol="extend_block_hashes",
        old="range(len(block_hashes) * block_size, ",
        new="range(0, ",
        misconception="the list is made anew",
        message=(
            "blocks that have their hash get one more. The list is the request's own, and grows: begin after its "
            "last entry."
        ),
    ),
    Wrong(
        id="whole_sequence_not_tested",
        task="5.4",
        symbol="KVCacheManager.get_shortage",
        old="        if full_sequence_must_fit:\n",
        new="        if False:\n",
        misconception="the chunk fits",
        message=(
            "full_sequence_must_fit changes nothing. With it the whole present sequence must find blocks, and "
            "not this chunk alone."
        ),
    ),
    Wrong(
        id="one_block_kept_in_reserve",
        task="5.4",
        symbol="KVCacheManager.get_shortage",
        old="            if needed > num_free:\n",
        new="            if needed >= num_free:\n",
        misconception="one must be left",
        message="a request is refused that needs exactly the blocks that are free. It fits.",
        more=(("KVCacheManager.get_shortage", "if needed > num_free else None", "if needed >= num_free else None"),),
    ),
    Wrong(
        id="hits_not_in_the_table",
        task="5.4",
        symbol="KVCacheManager.allocate_slots",
        old="            blocks.extend(hits)\n            self.num_cached_block[request.request_id] = len(blocks)\n",
        new="            self.num_cached_block[request.request_id] = len(hits)\n",
        misconception="they are held",
        message="the hits are held, and are not in the request's block table. They are its first blocks.",
    ),
    Wrong(
        id="free_needs_a_table",
        task="5.4",
        symbol="KVCacheManager.free",
        old="self.req_to_blocks.pop(request.request_id, [])",
        new="self.req_to_blocks.pop(request.request_id)",
        misconception="who is freed held blocks",
        message="a request without blocks can't be freed. One that is aborted while it waits holds none.",
    ),
]
