"""A right solution of lab 05: a hash is made of text; hits are found by asking for longer and longer prefixes."""


def hash_block_tokens(parent: Hash, token_ids: Sequence[int], extra_keys: tuple[str, ...] | None = None) -> Hash:
    words = [parent.hex(), *map(str, token_ids), *(extra_keys or ())]
    return hashlib.sha256(" ".join(words).encode()).digest()


def extend_block_hashes(
    block_hashes: list[Hash],
    token_ids: Sequence[int],
    block_size: int,
    none_hash: Hash,
    cache_salt: str | None = None,
) -> None:
    done = len(block_hashes)
    while (done + 1) * block_size <= len(token_ids):
        tokens = [token_ids[place] for place in range(done * block_size, (done + 1) * block_size)]
        if done:
            new = hash_block_tokens(block_hashes[-1], tokens)
        elif cache_salt:
            new = hash_block_tokens(none_hash, tokens, ("salt", cache_salt))
        else:
            new = hash_block_tokens(none_hash, tokens)
        block_hashes.append(new)
        done += 1


class BlockPool(given.BlockPool):
    @boundary("get_cached_block")
    def get_cached_block(self, block_hash: Hash) -> KVCacheBlock | None:
        if block_hash in self.cached_block_hash_to_block:
            return next(iter(self.cached_block_hash_to_block[block_hash].values()))
        return None

    @boundary("cache_full_blocks")
    def cache_full_blocks(
        self, request: Request, blocks: Sequence[KVCacheBlock], num_cached: int, num_full: int
    ) -> None:
        known = self.cached_block_hash_to_block
        for index in range(num_cached, num_full):
            blocks[index].block_hash = request.block_hashes[index]
            known[request.block_hashes[index]] = known.get(request.block_hashes[index], {}) | {
                blocks[index].block_id: blocks[index]
            }

    def _maybe_evict_cached_block(self, block: KVCacheBlock) -> bool:
        block_hash = block.block_hash
        if block_hash is None:
            return False
        if len(self.cached_block_hash_to_block[block_hash]) > 1:
            del self.cached_block_hash_to_block[block_hash][block.block_id]
        else:
            del self.cached_block_hash_to_block[block_hash]
        block.block_hash = None
        return True


class KVCacheManager(given.KVCacheManager):
    @boundary("get_computed_blocks")
    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        hits: list[KVCacheBlock] = []
        while (len(hits) + 1) * self.block_size < request.num_tokens:
            block = self.block_pool.get_cached_block(request.block_hashes[len(hits)])
            if block is None:
                break
            hits.append(block)
        return hits, sum(self.block_size for _ in hits)

    def get_num_blocks_to_allocate(self, request: Request, num_tokens: int, hits: Sequence[KVCacheBlock]) -> int:
        free_hits = [block for block in hits if not block.ref_cnt]
        table_after = len(self.req_to_blocks.get(request.request_id, ())) + len(hits)
        more = -(-num_tokens // self.block_size) - table_after
        return len(free_hits) + (more if more > 0 else 0)

    def get_shortage(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, int] | None:
        num_free = self.block_pool.get_num_free_blocks()
        if full_sequence_must_fit:
            whole = min(request.num_tokens, self.max_model_len)
            if (cost := self.get_num_blocks_to_allocate(request, whole, hits)) > num_free:
                return cost, num_free
        chunk = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        if (cost := self.get_num_blocks_to_allocate(request, chunk, hits)) > num_free:
            return cost, num_free

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
        if self.get_shortage(request, num_new_tokens, num_hit_tokens, hits, full_sequence_must_fit) is not None:
            return None
        table = self.req_to_blocks.get(request.request_id, [])
        self.block_pool.touch(hits)
        table = [*table, *hits]
        if hits:
            self.num_cached_block[request.request_id] = len(table)
        num_tokens = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        new_blocks: list[KVCacheBlock] = []
        while (len(table) + len(new_blocks)) * self.block_size < num_tokens:
            new_blocks.append(None)
        new_blocks = self.block_pool.get_new_blocks(len(new_blocks)) if new_blocks else []
        self.req_to_blocks[request.request_id] = table + new_blocks
        if self.enable_caching:
            self.cache_blocks(request, min(num_tokens, request.num_tokens))
        return new_blocks

    @boundary("cache_blocks")
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        table = self.req_to_blocks.get(request.request_id, [])
        num_cached = self.num_cached_block.get(request.request_id, 0)
        while (num_cached + 1) * self.block_size <= num_tokens:
            self.block_pool.cache_full_blocks(request, table, num_cached, num_cached + 1)
            num_cached += 1
        self.num_cached_block[request.request_id] = num_cached

    @boundary("free")
    def free(self, request: Request) -> None:
        self.block_pool.free_blocks(self.req_to_blocks.pop(request.request_id, [])[::-1])
        self.num_cached_block.pop(request.request_id, 0)
