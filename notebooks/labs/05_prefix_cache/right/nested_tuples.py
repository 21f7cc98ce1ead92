"""A right solution of lab 05: a hash is a tuple that holds the one before it."""


def hash_block_tokens(parent: Hash, token_ids: Sequence[int], extra_keys: tuple[str, ...] | None = None) -> Hash:
    return (parent, tuple(token_ids), extra_keys)


def extend_block_hashes(
    block_hashes: list[Hash],
    token_ids: Sequence[int],
    block_size: int,
    none_hash: Hash,
    cache_salt: str | None = None,
) -> None:
    num_full = len(token_ids) // block_size
    while len(block_hashes) < num_full:
        index = len(block_hashes)
        tokens = token_ids[index * block_size : (index + 1) * block_size]
        if index == 0:
            keys = None if cache_salt is None else (cache_salt,)
            block_hashes.append(hash_block_tokens(none_hash, tokens, keys))
        else:
            block_hashes.append(hash_block_tokens(block_hashes[index - 1], tokens))


class BlockPool(given.BlockPool):
    @boundary("get_cached_block")
    def get_cached_block(self, block_hash: Hash) -> KVCacheBlock | None:
        same = self.cached_block_hash_to_block.get(block_hash)
        if not same:
            return None
        first = min(same, key=list(same).index)
        return same[first]

    @boundary("cache_full_blocks")
    def cache_full_blocks(
        self, request: Request, blocks: Sequence[KVCacheBlock], num_cached: int, num_full: int
    ) -> None:
        for block, block_hash in list(zip(blocks, request.block_hashes, strict=False))[num_cached:num_full]:
            block.block_hash = block_hash
            if block_hash not in self.cached_block_hash_to_block:
                self.cached_block_hash_to_block[block_hash] = {}
            self.cached_block_hash_to_block[block_hash][block.block_id] = block

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        same = self.cached_block_hash_to_block.get(block.block_hash)
        if same is None or block.block_id not in same:
            return False
        same.pop(block.block_id)
        if len(same) == 0:
            self.cached_block_hash_to_block.pop(block.block_hash)
        block.block_hash = None
        return True


class KVCacheManager(given.KVCacheManager):
    @boundary("get_computed_blocks")
    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        found: list[KVCacheBlock] = []
        for number, block_hash in enumerate(request.block_hashes, start=1):
            if number * self.block_size >= request.num_tokens:
                break
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            found.append(block)
        return found, self.block_size * len(found)

    def get_num_blocks_to_allocate(self, request: Request, num_tokens: int, hits: Sequence[KVCacheBlock]) -> int:
        held = self.req_to_blocks.get(request.request_id, [])
        fresh = cdiv(num_tokens, self.block_size) - len(held) - len(hits)
        cost = fresh if fresh > 0 else 0
        for block in hits:
            if block.ref_cnt == 0:
                cost += 1
        return cost

    def get_shortage(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, int] | None:
        free = self.block_pool.get_num_free_blocks()
        wanted = [self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)]
        if full_sequence_must_fit:
            wanted.insert(0, min(request.num_tokens, self.max_model_len))
        for num_tokens in wanted:
            cost = self.get_num_blocks_to_allocate(request, num_tokens, hits)
            if cost > free:
                return cost, free
        return None

    @boundary("allocate_slots")
    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> list[KVCacheBlock] | None:
        if num_new_tokens <= 0:
            raise ValueError(f"num_new_tokens={num_new_tokens} must be positive")
        if self.get_shortage(request, num_new_tokens, num_hit_tokens, hits, full_sequence_must_fit):
            return None
        table = self.req_to_blocks.setdefault(request.request_id, [])
        self.block_pool.touch(hits)
        table += hits
        if hits:
            self.num_cached_block[request.request_id] = len(table)
        total = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        fresh: list[KVCacheBlock] = []
        if cdiv(total, self.block_size) > len(table):
            fresh = self.block_pool.get_new_blocks(cdiv(total, self.block_size) - len(table))
        table += fresh
        if self.enable_caching:
            self.cache_blocks(request, min(total, request.num_tokens))
        return fresh

    @boundary("cache_blocks")
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        before = self.num_cached_block.setdefault(request.request_id, 0)
        now = num_tokens // self.block_size
        if now <= before:
            return
        self.block_pool.cache_full_blocks(request, self.req_to_blocks[request.request_id], before, now)
        self.num_cached_block[request.request_id] = now

    @boundary("free")
    def free(self, request: Request) -> None:
        table = self.req_to_blocks.pop(request.request_id, [])
        self.num_cached_block.pop(request.request_id, None)
        self.block_pool.free_blocks(reversed(table))
