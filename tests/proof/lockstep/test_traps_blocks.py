"""Traps 1 to 15 of docs/traps.md: blocks and the prefix cache."""

import subprocess
import sys

import pytest
from proof.lockstep.tools import Core

from minivllm.core.block_hash import hash_block_tokens, init_none_hash


def test_block_0_is_never_handed_out() -> None:
    core = Core(num_blocks=5, max_model_len=16)
    assert core.free() == [1, 2, 3, 4]
    core.add("half", 8, max_tokens=1)
    core.scheduler.schedule()
    assert core.pool.get_usage() == 0.5
    core.abort("half")
    core.add("a", 15)
    core.scheduler.schedule()
    assert sorted(core.blocks("a")) == [1, 2, 3, 4]
    assert core.pool.get_usage() == 1.0
    assert core.pool.null_block.block_id == 0 and core.pool.null_block.block_hash is None


@pytest.mark.parametrize(("length", "hit"), [(7, 4), (8, 4), (9, 8), (12, 8), (4, 0)])
def test_a_prompt_that_is_cached_whole_computes_its_last_block_again(length: int, hit: int) -> None:
    core = Core()
    tokens = core.new_tokens(16)
    core.add("first", tokens, max_tokens=1)
    core.step()
    core.add("again", tokens[:length])
    (new,) = core.step().scheduled_new_reqs
    assert new.num_computed_tokens == hit


def test_a_block_that_is_being_filled_is_shared_with_nobody() -> None:
    core = Core()
    tokens = core.new_tokens(7)
    core.add("a", tokens)
    core.add("b", [*tokens, *core.new_tokens(3)])
    core.step()
    (a_full, a_partial), (b_full, *b_rest) = core.blocks("a"), core.blocks("b")
    assert a_full == b_full
    assert a_partial not in b_rest


def test_equal_prompts_of_one_step_share_blocks() -> None:
    core = Core()
    tokens = core.new_tokens(12)
    core.add("a", tokens)
    core.add("b", tokens)
    plan = core.step()
    assert plan.num_scheduled_tokens == {"a": 12, "b": 4}
    assert core.blocks("b")[:2] == core.blocks("a")[:2]


def test_a_freed_block_can_be_hit_until_it_is_handed_out_again() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    tokens = core.new_tokens(8)
    core.add("a", tokens, max_tokens=1)
    core.step()
    assert not core.scheduler.running
    core.add("b", [*tokens, 1], max_tokens=1)
    assert core.step().scheduled_new_reqs[0].num_computed_tokens == 8
    core.add("fills the pool", 31, max_tokens=1)
    core.step()
    core.add("c", [*tokens, 1], max_tokens=1)
    assert core.step().scheduled_new_reqs[0].num_computed_tokens == 0


def test_the_end_of_a_sequence_is_evicted_before_its_beginning() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    core.add("a", 16, max_tokens=1)
    core.step()
    # never used before, then the request's own, its last block first
    assert core.free() == [5, 6, 7, 8, 4, 3, 2, 1]


def test_a_hit_leaves_the_middle_of_the_free_queue() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    tokens = core.new_tokens(8)
    core.add("a", [*tokens, *core.new_tokens(4)], max_tokens=1)
    core.step()
    core.add("b", [*tokens, 1])
    core.step()
    assert core.blocks("b")[:2] == [1, 2]
    assert not {1, 2} & set(core.free())
    assert core.pool.blocks[1].ref_cnt == 1
    everything = [*core.blocks("b"), *core.free()]
    assert sorted(everything) == list(range(1, 9)), "no block is in two places"


def test_hits_that_lie_in_the_free_queue_count_in_the_fit_test() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    tokens = core.new_tokens(16)
    core.add("a", tokens, max_tokens=1)
    core.step()
    core.add("b", 14)
    core.step()  # takes the 4 blocks that "a" never had
    assert core.free() == [4, 3, 2, 1]
    core.add("c", [*tokens, 1, 1])  # its 4 hits are all that is free, and it needs a fifth block
    assert core.step().num_scheduled_tokens == {"b": 1}


def test_equal_blocks_are_not_merged_and_the_first_is_found() -> None:
    core = Core()
    tokens = core.new_tokens(8)
    core.add("a", tokens)
    core.add("b", tokens)  # hits the first block, computes the second again
    core.step()
    first, duplicate = core.blocks("a")[1], core.blocks("b")[1]
    assert first != duplicate
    assert core.pool.blocks[first].block_hash == core.pool.blocks[duplicate].block_hash
    core.add("c", [*tokens, 1])
    core.step()
    assert core.blocks("c")[1] == first


def test_hashes_differ_from_process_to_process_unless_seeded() -> None:
    code = (
        "from minivllm.core.block_hash import *; import sys; seed = sys.argv[1] if len(sys.argv) > 1 else None; "
        "print(hash_block_tokens(init_none_hash(seed), [1, 2]).hex())"
    )

    def in_a_process(*arguments: str) -> str:
        return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True).stdout

    assert in_a_process() != in_a_process()
    assert in_a_process("s") == in_a_process("s") == hash_block_tokens(init_none_hash("s"), [1, 2]).hex() + "\n"


def test_a_salt_keeps_requests_apart_through_the_first_block_alone() -> None:
    core = Core()
    tokens = core.new_tokens(12)
    salted = core.add("salted", tokens, cache_salt="s", max_tokens=1)
    plain = core.add("plain", tokens, max_tokens=1)
    core.step()
    assert not set(salted.block_hashes) & set(plain.block_hashes), "the chain carries the salt on"
    rest_of_salted = hash_block_tokens(salted.block_hashes[0], tokens[4:8])
    assert salted.block_hashes[1] == rest_of_salted, "later blocks have no salt of their own"
    core.add("same salt", tokens, cache_salt="s")
    assert core.step().scheduled_new_reqs[0].num_computed_tokens == 8


def test_prompt_logprobs_read_nothing_from_the_cache_but_fill_it() -> None:
    core = Core()
    tokens = core.new_tokens(12)
    for name in ("a", "b"):
        core.add(name, tokens, prompt_logprobs=1, max_tokens=1)
        assert core.step().scheduled_new_reqs[0].num_computed_tokens == 0
    core.add("c", tokens)
    assert core.step().scheduled_new_reqs[0].num_computed_tokens == 8


def test_a_plan_holds_all_blocks_of_a_new_request_and_only_new_ones_of_a_running() -> None:
    core = Core()
    tokens = core.new_tokens(8)
    core.add("a", tokens, max_tokens=1)
    core.step()
    core.add("b", [*tokens, 1, 1, 1])
    (new,) = core.step().scheduled_new_reqs
    assert new.block_ids == core.blocks("b") and len(new.block_ids) == 3
    assert core.step().scheduled_cached_reqs.new_block_ids == [None]  # the token fills the third block
    (block_ids,) = core.step().scheduled_cached_reqs.new_block_ids
    assert block_ids == core.blocks("b")[3:]


def test_a_request_waits_until_its_whole_sequence_fits() -> None:
    core = Core(num_blocks=9, max_num_batched_tokens=8, max_model_len=32)
    core.add("a", 13)
    core.step()
    core.step()
    core.add("b", 20)  # 5 blocks; 4 are free, and 7 tokens of budget
    assert core.step().num_scheduled_tokens == {"a": 1}
    core.abort("a")
    assert core.step().num_scheduled_tokens == {"b": 8}


def test_generated_tokens_are_cached_too() -> None:
    core = Core()
    request = core.add("a", 6, max_tokens=4)
    for _ in range(4):
        core.step()
    assert request.is_finished and request.num_tokens == 10
    core.add("b", [*request.all_token_ids, 1])
    assert core.step().scheduled_new_reqs[0].num_computed_tokens == 8
