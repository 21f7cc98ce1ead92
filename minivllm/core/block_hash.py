"""Chained block hashes: what makes two blocks "the same" for the prefix cache.

The hash of a block covers its tokens and, through the hash of the block before it, every token before them. So equal
hashes mean equal prefixes, and a look-up needs no comparison of tokens. Only full blocks have a hash.
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Sequence

Hash = bytes  # 32 bytes
BlockHasher = Callable[[list[Hash], Sequence[int], str | None], None]  # (hashes so far, all token ids, cache salt)


def init_none_hash(hash_seed: str | None = None) -> Hash:
    """The parent of a request's first block: random, or the same for the same seed.

    vLLM: v1/core/kv_cache_utils.py::init_none_hash (the seed is an argument in place of PYTHONHASHSEED)
    """
    return os.urandom(32) if hash_seed is None else hashlib.sha256(hash_seed.encode()).digest()


def hash_block_tokens(parent: Hash, token_ids: Sequence[int], extra_keys: tuple[str, ...] | None = None) -> Hash:
    """SHA-256 over the parent's hash, the tokens and what else must be equal for two blocks to be the same.

    vLLM: v1/core/kv_cache_utils.py::hash_block_tokens (hashes bytes in place of a pickle)
    """
    digest = hashlib.sha256(parent)
    digest.update(array("q", token_ids).tobytes())
    if extra_keys is not None:
        digest.update(repr(extra_keys).encode())
    return digest.digest()


def extend_block_hashes(
    block_hashes: list[Hash],
    token_ids: Sequence[int],
    block_size: int,
    none_hash: Hash,
    cache_salt: str | None = None,
) -> None:
    """Append the hashes of the blocks of `token_ids` that are full and have none yet.

    `cache_salt` keeps tenants apart; an empty one is none. It enters block 0 only; the chain carries it on.

    vLLM: v1/core/kv_cache_utils.py::get_request_block_hasher.request_block_hasher
    """
    for start in range(len(block_hashes) * block_size, len(token_ids) - block_size + 1, block_size):
        parent = block_hashes[-1] if block_hashes else none_hash
        extra_keys = (cache_salt,) if cache_salt and start == 0 else None
        block_hashes.append(hash_block_tokens(parent, token_ids[start : start + block_size], extra_keys))


def get_request_block_hasher(
    block_size: int, none_hash: Hash, extend_block_hashes: Callable[..., None] = extend_block_hashes
) -> BlockHasher:
    """The function that a Request calls whenever it has new tokens.

    vLLM: v1/core/kv_cache_utils.py::get_request_block_hasher
    """

    def block_hasher(block_hashes: list[Hash], token_ids: Sequence[int], cache_salt: str | None) -> None:
        if len(token_ids) >= (len(block_hashes) + 1) * block_size:  # most new tokens fill no block
            extend_block_hashes(block_hashes, token_ids, block_size, none_hash, cache_salt)

    return block_hasher
