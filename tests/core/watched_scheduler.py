"""A scheduler that is looked at: after every plan and every update, all that must hold is checked.

The rules have short names, which a failure shows:
P pool: P1 no block twice in the free queue, P2 its length is the counter, P3 the null block is never free nor in a
table, P4 a block's ref_cnt is the number of tables that hold it, P5 it is free if and only if that is 0, P6 a shared
block stands at the same place in all tables, P7 at idle all blocks are back.
S step: S1 tokens within the budget, S2 running within the seats, S3 every n at least 1, S4 no more computed than there
is, S5 who is scheduled holds blocks, S6 exactly as many as its tokens need, S7 a request is in one queue, S8 what the
worker was told is what the scheduler holds.
H hash: H1 map and block agree. R request: R1 within max_model_len.
K keys and values: K1 a slot is written once a step, K2 every request reads its own past.
W why: every live request without tokens is skipped exactly once, with the numbers behind it.
"""

from typing import Any

from minivllm.config import EngineConfig, cdiv
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request
from minivllm.core.sched_output import ModelRunnerOutput, SchedulerOutput, Skipped
from minivllm.core.scheduler import Scheduler

History = int  # a number for a token and all before it; equal numbers, equal pasts


class WatchedScheduler(Scheduler):
    """Checks itself, and plays the worker: it keeps the tables it was told, and what was written to each slot."""

    def __init__(self, config: EngineConfig, kv_cache_manager: KVCacheManager, **parts: Any) -> None:
        super().__init__(config, kv_cache_manager, **parts)
        self.block_size = config.block_size
        self.told_tables: dict[str, list[int]] = {}
        self.slots: dict[int, History] = {}
        self.history_numbers: dict[tuple[Any, int], History] = {}

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        self.check_pool()
        self.check_step(plan)
        self.check_worker_view(plan)
        self.check_keys_and_values(plan)
        check_skipped(self, plan)
        return plan

    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[Any]:
        outputs = super().update_from_output(plan, result)
        self.check_pool()
        for request in self.requests.values():
            assert request.num_computed_tokens <= request.num_tokens <= self.max_model_len, f"R1, S4 {request}"
        return outputs

    # ------------------------------------------------------------------ the rules

    def check_pool(self) -> None:
        manager = self.kv_cache_manager
        pool = manager.block_pool
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        assert len(set(free)) == len(free), "P1"
        assert len(free) == pool.get_num_free_blocks(), "P2"
        tables = {req_id: [block.block_id for block in blocks] for req_id, blocks in manager.req_to_blocks.items()}
        holders: dict[int, list[int]] = {}  # block -> its place in each table that holds it
        for table in tables.values():
            for place, block_id in enumerate(table):
                holders.setdefault(block_id, []).append(place)
        assert 0 not in free and 0 not in holders, "P3"
        for block in pool.blocks[1:]:
            places = holders.get(block.block_id, [])
            assert block.ref_cnt == len(places), f"P4 {block} is held by {len(places)}"
            assert (block.ref_cnt == 0) == (block.block_id in free), f"P5 {block}"
            assert len(set(places)) <= 1, f"P6 {block} at {places}"
            assert len(places) <= 1 or block.block_hash is not None, f"P6 {block} is shared without a hash"
        by_map = {
            block.block_id: block_hash
            for block_hash, blocks in pool.cached_block_hash_to_block.items()
            for block in blocks.values()
        }
        by_block = {block.block_id: block.block_hash for block in pool.blocks if block.block_hash is not None}
        assert by_map == by_block, "H1"
        assert pool.enable_caching or not by_map, "H1: hashes without a prefix cache"

    def check_step(self, plan: SchedulerOutput) -> None:
        scheduled = plan.num_scheduled_tokens
        total = sum(scheduled.values())
        assert plan.total_num_scheduled_tokens == total <= self.max_num_scheduled_tokens, "S1"
        assert plan.token_budget_left == self.max_num_scheduled_tokens - total, "S1"
        assert len(self.running) <= self.max_num_running_reqs, "S2"
        assert all(n >= 1 for n in scheduled.values()), "S3"
        threshold = self.long_prefill_token_threshold
        assert not threshold or all(n <= threshold for n in scheduled.values()), "S3: beyond the threshold"
        for req_id in scheduled:
            request = self.requests[req_id]
            assert request.num_computed_tokens <= request.num_tokens, f"S4 {request}"
            held = len(self.kv_cache_manager.get_block_ids(req_id))
            assert held, f"S5 {request}"
            assert held == cdiv(request.num_computed_tokens, self.block_size), f"S6 {request} holds {held}"
        waiting = [request.request_id for request in self.waiting]
        running = [request.request_id for request in self.running]
        assert sorted(waiting + running) == sorted(self.requests), "S7"
        assert set(scheduled) <= set(running), "S7"
        assert all(not self.kv_cache_manager.get_block_ids(req_id) for req_id in waiting), "S7: blocks while waiting"

    def check_worker_view(self, plan: SchedulerOutput) -> None:
        """S8, by doing what the worker does with the plan."""
        cached = plan.scheduled_cached_reqs
        for req_id in plan.finished_req_ids:
            self.told_tables.pop(req_id, None)
        for new in plan.scheduled_new_reqs:
            assert new.req_id not in self.told_tables, "S8"
            self.told_tables[new.req_id] = list(new.block_ids)
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if req_id in cached.resumed_req_ids:
                self.told_tables[req_id] = list(block_ids)
            else:
                self.told_tables[req_id] += block_ids or []
        assert set(self.told_tables) <= set(self.requests), "S8: an end that the worker is not told"
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
        assert set(computed) == set(plan.num_scheduled_tokens), "S8"
        for req_id, n in plan.num_scheduled_tokens.items():
            assert self.told_tables[req_id] == self.kv_cache_manager.get_block_ids(req_id), f"S8 {req_id}"
            assert computed[req_id] + n == self.requests[req_id].num_computed_tokens, f"S8 {req_id}"

    def check_keys_and_values(self, plan: SchedulerOutput) -> None:
        """K1 and K2: all rows write, then all read. A slot remembers the history that it was written with."""
        written: set[int] = set()
        for req_id, n in plan.num_scheduled_tokens.items():
            request = self.requests[req_id]
            histories = self.histories(request)
            for position in range(request.num_computed_tokens - n, request.num_computed_tokens):
                slot = self.slot(req_id, position)
                assert slot not in written, f"K1 slot {slot} of {req_id}, position {position}"
                written.add(slot)
                self.slots[slot] = histories[position]
        for req_id in plan.num_scheduled_tokens:
            request = self.requests[req_id]
            histories = self.histories(request)
            for position in range(request.num_computed_tokens):
                slot = self.slot(req_id, position)
                assert self.slots.get(slot) == histories[position], f"K2 {req_id} at {position} reads slot {slot}"

    def slot(self, req_id: str, position: int) -> int:
        return self.told_tables[req_id][position // self.block_size] * self.block_size + position % self.block_size

    def histories(self, request: Request) -> list[History]:
        """What each position's K and V depend on: the token and all before it; the salt keeps tenants apart."""
        numbers = self.history_numbers
        found: list[History] = []
        before: Any = request.cache_salt
        for token in request.all_token_ids:
            before = numbers.setdefault((before, token), len(numbers))
            found.append(before)
        return found

    def check_idle(self) -> None:
        """P7, R2: nothing is left of anybody."""
        pool = self.kv_cache_manager.block_pool
        assert not self.requests and not self.running and not self.waiting, "R2"
        assert not self.told_tables, "S8: an end that the worker is not told"
        assert not self.kv_cache_manager.req_to_blocks and not self.kv_cache_manager.num_cached_block, "P7"
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1, "P7"
        assert all(block.ref_cnt == 0 for block in pool.blocks), "P7"


def check_skipped(scheduler: Scheduler, plan: SchedulerOutput) -> None:
    """W: reasons and numbers, worked out anew from the state after the plan."""
    every = scheduler.find_skipped(plan)
    by_id = {skipped.req_id: skipped for skipped in every}
    assert len(by_id) == len(every), "W: a request is skipped twice"
    assert set(by_id) == set(scheduler.requests) - set(plan.num_scheduled_tokens), "W"
    waiting = [request.request_id for request in scheduler.waiting]
    for skipped in every:
        assert skipped.num_running == len(scheduler.running), f"W {skipped}"
        assert skipped.token_budget == plan.token_budget_left, f"W {skipped}"
        _check_reason(scheduler, plan, skipped, waiting, by_id)


def _check_reason(
    scheduler: Scheduler,
    plan: SchedulerOutput,
    skipped: Skipped,
    waiting: list[str],
    by_id: dict[str, Skipped],
) -> None:
    is_waiting = skipped.req_id in waiting
    request = scheduler.requests[skipped.req_id]
    hit = scheduler.kv_cache_manager.get_computed_blocks(request)[1]
    admits = not plan.preempted_req_ids and len(scheduler.running) < scheduler.max_num_running_reqs
    match skipped.reason:
        case "token_budget":
            assert plan.token_budget_left == 0 and not plan.preempted_req_ids, f"W {skipped}"
        case "seats":
            assert is_waiting and len(scheduler.running) == scheduler.max_num_running_reqs, f"W {skipped}"
        case "blocks":
            free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
            assert is_waiting and waiting[0] == skipped.req_id and admits and plan.token_budget_left > 0, f"W {skipped}"
            assert skipped.blocks_needed > skipped.blocks_free == free, f"W {skipped}"
            assert skipped.num_hit_tokens == hit, f"W {skipped}"
            whole = cdiv(request.num_tokens, scheduler.kv_cache_manager.block_size)
            assert skipped.blocks_needed <= whole, f"W {skipped}"
        case "not_fit_in_budget":
            assert is_waiting and waiting[0] == skipped.req_id and admits, f"W {skipped}"
            assert not scheduler.enable_chunked_prefill and skipped.num_hit_tokens == hit, f"W {skipped}"
            assert request.num_tokens - hit > plan.token_budget_left > 0, f"W {skipped}"
        case "head_of_line":
            assert is_waiting and skipped.blocked_by == waiting[0] != skipped.req_id, f"W {skipped}"
            assert by_id[waiting[0]].reason in ("blocks", "not_fit_in_budget"), f"W {skipped}"
        case "preempted":
            taken_for = {preemption.req_id: preemption.for_req_id for preemption in plan.preemptions}
            assert is_waiting and skipped.blocked_by == taken_for[skipped.req_id], f"W {skipped}"
        case "preemption":
            assert skipped.blocked_by == plan.preemptions[-1].for_req_id, f"W {skipped}"
            assert skipped.req_id not in plan.preempted_req_ids, f"W {skipped}"
