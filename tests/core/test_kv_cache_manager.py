"""KVCacheManager and block hashes: what is shared, what fits, what comes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.config import EngineConfig, cdiv
from minivllm.core.block_hash import extend_block_hashes, get_request_block_hasher, hash_block_tokens, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request
from minivllm.sampling_params import SamplingParams

NONE_HASH = init_none_hash("tests")
TOKEN_LISTS = st.lists(st.integers(0, 2), max_size=7)


def make_manager(num_blocks: int = 12, block_size: int = 2, caching: bool = True) -> KVCacheManager:
    config = EngineConfig(
        block_size=block_size, num_gpu_blocks_override=num_blocks, enable_prefix_caching=caching
    ).resolved(max_model_len=64)
    return KVCacheManager(config, BlockPool(num_blocks, caching))


def make_request(name: str, tokens: list[int], block_size: int = 2, **fields: object) -> Request:
    params = SamplingParams(skip_reading_prefix_cache=bool(fields.pop("skip_reading", False)))
    hasher = get_request_block_hasher(block_size, NONE_HASH)
    return Request(name, tokens, params, arrival_time=0.0, block_hasher=hasher, **fields)


def admit(manager: KVCacheManager, request: Request, n: int) -> list[int] | None:
    """What the scheduler does with a waiting request; returns its blocks."""
    hits, num_hit_tokens = manager.get_computed_blocks(request)
    if manager.allocate_slots(request, n - num_hit_tokens, num_hit_tokens, hits) is None:
        return None
    request.num_computed_tokens = n
    return manager.get_block_ids(request.request_id)


# ---------------------------------------------------------------------- hashes


@given(TOKEN_LISTS, TOKEN_LISTS, st.integers(1, 3), st.sampled_from((None, "a", "b")), st.sampled_from((None, "a")))
def test_hashes_are_equal_exactly_for_equal_prefixes(
    mine: list[int], yours: list[int], block_size: int, my_salt: str | None, your_salt: str | None
) -> None:
    my_hashes: list[bytes] = []
    your_hashes: list[bytes] = []
    extend_block_hashes(my_hashes, mine, block_size, NONE_HASH, my_salt)
    extend_block_hashes(your_hashes, yours, block_size, NONE_HASH, your_salt)
    assert len(my_hashes) == len(mine) // block_size
    for i, my_hash in enumerate(my_hashes):
        for j, your_hash in enumerate(your_hashes):
            end = (i + 1) * block_size
            same = i == j and my_salt == your_salt and mine[:end] == yours[:end]
            assert (my_hash == your_hash) is same


@given(TOKEN_LISTS, st.integers(1, 3), st.integers(0, 7))
def test_hashes_grow_with_the_tokens(tokens: list[int], block_size: int, cut: int) -> None:
    at_once: list[bytes] = []
    extend_block_hashes(at_once, tokens, block_size, NONE_HASH)
    grown: list[bytes] = []
    extend_block_hashes(grown, tokens[:cut], block_size, NONE_HASH)
    extend_block_hashes(grown, tokens, block_size, NONE_HASH)
    assert grown == at_once


def test_the_root_of_the_hashes() -> None:
    assert init_none_hash("seed") == init_none_hash("seed") != init_none_hash("other")
    assert init_none_hash() != init_none_hash()
    assert hash_block_tokens(NONE_HASH, [1, 2]) != hash_block_tokens(NONE_HASH, [12])


# ---------------------------------------------------------------------- hits


@pytest.mark.parametrize(("length", "hit"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (8, 6), (9, 8)])
def test_a_full_hit_leaves_a_token_to_compute(length: int, hit: int) -> None:
    manager = make_manager()
    manager_tokens = list(range(length))
    admit(manager, make_request("a", manager_tokens), length)
    assert manager.get_computed_blocks(make_request("b", manager_tokens))[1] == hit


@given(st.sets(st.integers(0, 5)), st.integers(1, 14))
def test_the_look_up_stops_at_the_first_hole(holes: set[int], length: int) -> None:
    """A chain of six cached blocks, of which any may be gone."""
    manager = make_manager()
    tokens = list(range(14))
    admit(manager, make_request("a", tokens[:12]), 12)
    blocks = manager.req_to_blocks["a"]
    manager.block_pool.forget_hashes(blocks[place] for place in holes)
    found, num_tokens = manager.get_computed_blocks(make_request("b", tokens[:length]))
    wanted = min([*holes, 6, (length - 1) // 2])
    assert found == blocks[:wanted] and num_tokens == 2 * wanted


def test_of_equal_blocks_the_first_is_found() -> None:
    """Two requests that were scheduled together with the same prompt, the second of which computed its last block."""
    manager = make_manager()
    first, second = (admit(manager, make_request(name, [1, 2, 3, 4]), 4) for name in "ab")
    assert first == [1, 2] and second == [1, 3]  # the last block again, or there would be no logits
    assert [block.block_id for block in manager.get_computed_blocks(make_request("c", [1, 2, 3, 4, 5]))[0]] == [1, 2]


def test_no_hits_for_who_does_not_read_or_has_another_salt() -> None:
    manager = make_manager()
    admit(manager, make_request("a", [1, 2, 3], cache_salt="x"), 3)
    assert manager.get_computed_blocks(make_request("b", [1, 2, 3], cache_salt="x"))[1] == 2
    assert manager.get_computed_blocks(make_request("c", [1, 2, 3], cache_salt="y"))[1] == 0
    assert make_request("f", [1, 2, 3], cache_salt="").block_hashes == make_request("g", [1, 2, 3]).block_hashes
    assert manager.get_computed_blocks(make_request("d", [1, 2, 3]))[1] == 0
    assert manager.get_computed_blocks(make_request("e", [1, 2, 3], cache_salt="x", skip_reading=True))[1] == 0
    without_cache = make_manager(caching=False)
    admit(without_cache, make_request("a", [1, 2, 3]), 3)
    assert without_cache.get_computed_blocks(make_request("b", [1, 2, 3]))[1] == 0


# ---------------------------------------------------------------------- slots


@settings(max_examples=200)
@given(st.integers(1, 5), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(2, 12))
def test_blocks_grow_as_tokens_do_and_a_refusal_changes_nothing(
    block_size: int, chunks: list[int], num_blocks: int
) -> None:
    manager = make_manager(num_blocks, block_size, caching=False)
    request = make_request("a", [0] * sum(chunks), block_size)
    for n in chunks:
        before = manager.get_block_ids("a")
        num_free = manager.block_pool.get_num_free_blocks()
        needed = cdiv(request.num_computed_tokens + n, block_size) - len(before)
        new = manager.allocate_slots(request, n)
        if new is None:
            assert needed > num_free
            assert manager.get_block_ids("a") == before and manager.block_pool.get_num_free_blocks() == num_free
            assert manager.get_shortage(request, n) == (needed, num_free)
            break
        assert len(new) == needed <= num_free
        assert manager.get_block_ids("a") == before + [block.block_id for block in new]
        request.num_computed_tokens += n
    manager.free(request)
    assert manager.block_pool.get_num_free_blocks() == num_blocks - 1 and manager.get_block_ids("a") == []


def test_a_free_hit_costs_as_much_as_a_new_block() -> None:
    manager = make_manager(num_blocks=4)
    first = make_request("a", [1, 2, 3, 4])
    admit(manager, first, 4)
    manager.free(first)
    admit(manager, make_request("other", [9, 9]), 2)  # two blocks are left: the two that can be hit
    again = make_request("b", [1, 2, 3, 4, 5])
    hits, num_hit_tokens = manager.get_computed_blocks(again)
    assert num_hit_tokens == 4
    assert manager.allocate_slots(again, 1, num_hit_tokens, hits) is None
    assert manager.get_shortage(again, 1, num_hit_tokens, hits) == (3, 2)
    assert all(block.ref_cnt == 0 for block in hits)


def test_the_whole_sequence_must_fit_when_asked() -> None:
    manager = make_manager(num_blocks=4)
    request = make_request("a", list(range(8)))
    assert manager.allocate_slots(request, 2, full_sequence_must_fit=True) is None
    assert manager.get_shortage(request, 2, full_sequence_must_fit=True) == (4, 3)
    assert manager.allocate_slots(request, 2) is not None


def test_blocks_come_back_last_first() -> None:
    manager = make_manager(num_blocks=5)
    request = make_request("a", list(range(6)))
    admit(manager, request, 6)
    manager.free(request)
    assert [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()] == [4, 3, 2, 1]
    manager.free(request)  # who holds nothing gives nothing back
    assert manager.block_pool.get_num_free_blocks() == 4


def test_uncomputed_blocks_of_a_victim_are_forgotten_unless_shared() -> None:
    manager = make_manager()
    tokens = list(range(8))
    victim = make_request("a", tokens)
    admit(manager, victim, 8)
    victim.num_computed_tokens = 3  # a step that would have computed tokens 3 to 7 does not happen
    admit(manager, make_request("b", tokens[:5]), 5)  # holds blocks 1 and 2 too
    assert manager.forget_uncomputed_blocks(victim) == [3, 4]
    assert manager.get_computed_blocks(make_request("c", tokens))[1] == 4


def test_common_prefix_blocks_count_who_holds_blocks() -> None:
    manager = make_manager()
    assert manager.get_num_common_prefix_blocks("a") == 0
    admit(manager, make_request("a", [1, 2, 3, 4, 5]), 5)
    assert manager.get_num_common_prefix_blocks("a") == 3
    admit(manager, make_request("b", [1, 2, 3, 4, 6]), 5)
    assert manager.get_num_common_prefix_blocks("a") == 2
    admit(manager, make_request("c", [7]), 1)
    assert manager.get_num_common_prefix_blocks("a") == 0


def test_no_tokens_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="num_new_tokens=0"):
        make_manager().allocate_slots(make_request("a", [1]), 0)
