"""A right solution of lab 05: blake2b over packed numbers; one walk over the table for all costs."""

import struct
from itertools import takewhile


def hash_block_tokens(parent: Hash, token_ids: Sequence[int], extra_keys: tuple[str, ...] | None = None) -> Hash:
    text = struct.pack(f"<{len(token_ids)}q", *token_ids)
    salt = "\0".join(extra_keys or ()).encode()
    return hashlib.blake2b(parent + text + b"|" + salt, digest_size=32).digest()


def extend_block_hashes(
    block_hashes: list[Hash],
    token_ids: Sequence[int],
    block_size: int,
    none_hash: Hash,
    cache_salt: str | None = None,
) -> None:
    for index in range(len(block_hashes), len(token_ids) // block_size):
        first = index * block_size
        parent = none_hash if index == 0 else block_hashes[-1]
        keys = (cache_salt,) if index == 0 and cache_salt else None
        block_hashes.append(hash_block_tokens(parent, token_ids[first : first + block_size], keys))


class BlockPool(given.BlockPool):
    @boundary("get_cached_block")
    def get_cached_block(self, block_hash: Hash) -> KVCacheBlock | None:
        for block in self.cached_block_hash_to_block.get(block_hash, {}).values():
            return block
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
        block_hash, block.block_hash = block.block_hash, None
        if block_hash is None:
            return False
        left = {i: other for i, other in self.cached_block_hash_to_block.pop(block_hash).items() if other is not block}
        if left:
            self.cached_block_hash_to_block[block_hash] = left
        return True


class KVCacheManager(given.KVCacheManager):
    @boundary("get_computed_blocks")
    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        limit = (request.num_tokens - 1) // self.block_size
        blocks = map(self.block_pool.get_cached_block, request.block_hashes[:limit])
        hits = list(takewhile(lambda block: block is not None, blocks))
        return hits, len(hits) * self.block_size

    def get_num_blocks_to_allocate(self, request: Request, num_tokens: int, hits: Sequence[KVCacheBlock]) -> int:
        needed = cdiv(num_tokens, self.block_size)
        held = len(self.get_block_ids(request.request_id))
        return max(0, needed - held - len(hits)) + [block.ref_cnt for block in hits].count(0)

    def get_shortage(
        self,
        request: Request,
        num_new_tokens: int,
        num_hit_tokens: int = 0,
        hits: Sequence[KVCacheBlock] = (),
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, int] | None:
        lengths = []
        if full_sequence_must_fit:
            lengths.append(min(request.num_tokens, self.max_model_len))
        lengths.append(self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens))
        num_free = self.block_pool.get_num_free_blocks()
        costs = [self.get_num_blocks_to_allocate(request, length, hits) for length in lengths]
        return next(((cost, num_free) for cost in costs if cost > num_free), None)

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
        shortage = self.get_shortage(request, num_new_tokens, num_hit_tokens, hits, full_sequence_must_fit)
        if shortage is not None:
            return None
        request_id = request.request_id
        if request_id not in self.req_to_blocks:
            self.req_to_blocks[request_id] = []
        if hits:
            self.block_pool.touch(hits)
            self.req_to_blocks[request_id].extend(hits)
            self.num_cached_block[request_id] = len(self.req_to_blocks[request_id])
        end = self._num_tokens_with_slots(request, num_new_tokens, num_hit_tokens)
        missing = cdiv(end, self.block_size) - len(self.req_to_blocks[request_id])
        new_blocks = [] if missing <= 0 else self.block_pool.get_new_blocks(missing)
        self.req_to_blocks[request_id].extend(new_blocks)
        if self.enable_caching:
            self.cache_blocks(request, min(end, request.num_tokens))
        return new_blocks

    @boundary("cache_blocks")
    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        first, last = self.num_cached_block.get(request.request_id, 0), num_tokens // self.block_size
        if last > first:
            self.block_pool.cache_full_blocks(request, self.req_to_blocks[request.request_id], first, last)
            first = last
        self.num_cached_block[request.request_id] = first

    @boundary("free")
    def free(self, request: Request) -> None:
        if request.request_id in self.num_cached_block:
            del self.num_cached_block[request.request_id]
        if request.request_id in self.req_to_blocks:
            table = self.req_to_blocks.pop(request.request_id)
            table.reverse()
            self.block_pool.free_blocks(table)
