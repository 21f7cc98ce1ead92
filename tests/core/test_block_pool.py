"""BlockPool and its free queue against a simple model, under any sequence of operations."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minivllm.core.block_hash import init_none_hash
from minivllm.core.block_pool import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock
from minivllm.core.request import Request
from minivllm.sampling_params import SamplingParams

NUM_BLOCKS = 7  # the null block included


def request_with_hashes(hashes: list[bytes]) -> Request:
    request = Request("r", [0], SamplingParams(), arrival_time=0.0)
    request.block_hashes = hashes
    return request


class PoolMachine(RuleBasedStateMachine):
    """The model: a list of free ids in order, a count of holders, and for each hash its ids, the first cached first."""

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(NUM_BLOCKS, enable_caching=True)
        self.free = list(range(1, NUM_BLOCKS))
        self.holders = dict.fromkeys(range(1, NUM_BLOCKS), 0)
        self.cached: dict[bytes, list[int]] = {}

    def held(self) -> list[int]:
        return [block_id for block_id, count in self.holders.items() if count]

    def hash_of(self, block_id: int) -> bytes | None:
        return next((block_hash for block_hash, ids in self.cached.items() if block_id in ids), None)

    def forget(self, block_id: int) -> bool:
        block_hash = self.hash_of(block_id)
        if block_hash is not None:
            self.cached[block_hash].remove(block_id)
            if not self.cached[block_hash]:
                del self.cached[block_hash]
        return block_hash is not None

    @rule(count=st.integers(0, NUM_BLOCKS))
    def get_new_blocks(self, count: int) -> None:
        if count > len(self.free):
            with pytest.raises(ValueError, match=str(count)):
                self.pool.get_new_blocks(count)
            return
        taken, self.free = self.free[:count], self.free[count:]
        evicted = [block_id for block_id in taken if self.forget(block_id)]
        assert [block.block_id for block in self.pool.get_new_blocks(count)] == taken
        assert self.pool.evicted_block_ids == evicted
        for block_id in taken:
            self.holders[block_id] = 1

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def free_blocks(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.held()), unique=True))
        self.pool.free_blocks(self.pool.blocks[block_id] for block_id in ids)
        for block_id in ids:
            self.holders[block_id] -= 1
            if self.holders[block_id] == 0:
                self.free.append(block_id)

    @rule(ids=st.lists(st.integers(1, NUM_BLOCKS - 1), unique=True))
    def touch(self, ids: list[int]) -> None:
        self.pool.touch([self.pool.blocks[block_id] for block_id in ids])
        for block_id in ids:
            self.holders[block_id] += 1
            if block_id in self.free:
                self.free.remove(block_id)

    @rule(data=st.data(), block_hash=st.sampled_from((b"a", b"b", b"c")))
    def cache_full_blocks(self, data: st.DataObject, block_hash: bytes) -> None:
        unhashed = [block_id for block_id in self.held() if self.hash_of(block_id) is None]
        if not unhashed:
            return
        block_id = data.draw(st.sampled_from(unhashed))
        self.pool.cache_full_blocks(request_with_hashes([block_hash]), [self.pool.blocks[block_id]], 0, 1)
        self.cached.setdefault(block_hash, []).append(block_id)

    @rule(ids=st.lists(st.integers(1, NUM_BLOCKS - 1), unique=True))
    def forget_hashes(self, ids: list[int]) -> None:
        forgotten = [block_id for block_id in ids if self.forget(block_id)]
        assert self.pool.forget_hashes(self.pool.blocks[block_id] for block_id in ids) == forgotten

    @rule()
    def reset_prefix_cache(self) -> None:
        idle = not self.held()
        assert self.pool.reset_prefix_cache() is idle
        if idle:
            self.cached = {}

    @invariant()
    def pool_and_model_agree(self) -> None:
        assert [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()] == self.free
        assert self.pool.get_num_free_blocks() == len(self.free)
        assert {block.block_id: block.ref_cnt for block in self.pool.blocks[1:]} == self.holders
        assert [block.block_hash for block in self.pool.blocks[1:]] == [self.hash_of(i) for i in self.holders]
        for block_hash in (b"a", b"b", b"c"):
            found = self.pool.get_cached_block(block_hash)
            assert (found and found.block_id) == self.cached.get(block_hash, [None])[0]
        assert self.pool.get_usage() == pytest.approx(1 - len(self.free) / (NUM_BLOCKS - 1))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30)


@given(st.lists(st.tuples(st.sampled_from(("popleft", "popleft_n", "remove", "append")), st.integers(0, 5))))
def test_free_queue_is_a_list(program: list[tuple[str, int]]) -> None:
    blocks = [KVCacheBlock(block_id) for block_id in range(6)]
    queue, model = FreeKVCacheBlockQueue(blocks), list(range(6))

    def ids(found: Any) -> list[int]:
        return [block.block_id for block in found]

    for operation, number in program:
        if operation == "popleft" and not model:
            with pytest.raises(ValueError, match="No free"):
                queue.popleft()
        elif operation == "popleft":
            assert queue.popleft().block_id == model.pop(0)
        elif operation == "popleft_n" and number > len(model):
            with pytest.raises(ValueError, match=f"{number} of {len(model)}"):
                queue.popleft_n(number)
        elif operation == "popleft_n":
            assert ids(queue.popleft_n(number)) == model[:number]
            model = model[number:]
        elif operation == "remove" and number not in model:
            with pytest.raises(RuntimeError, match=f"Block {number} "):
                queue.remove(blocks[number])
        elif operation == "remove":
            queue.remove(blocks[number])
            model.remove(number)
        elif number not in model:
            queue.append(blocks[number])
            model.append(number)
        assert ids(queue.get_all_free_blocks()) == model
        assert queue.num_free_blocks == len(model)


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(4, enable_caching=True)
    assert [block.block_id for block in pool.get_new_blocks(3)] == [1, 2, 3]
    assert pool.null_block.is_null and pool.get_num_free_blocks() == 0 and pool.get_usage() == 1.0


def test_a_freed_block_can_be_hit_until_it_is_handed_out_again() -> None:
    pool = BlockPool(3, enable_caching=True)
    first, second = pool.get_new_blocks(2)
    block_hash = init_none_hash("h")
    pool.cache_full_blocks(request_with_hashes([block_hash]), [first], 0, 1)
    pool.free_blocks([second, first])
    assert pool.get_cached_block(block_hash) is first
    pool.get_new_blocks(1)
    assert pool.get_cached_block(block_hash) is first
    pool.get_new_blocks(1)
    assert pool.get_cached_block(block_hash) is None
