"""Filled-in cases of lab 13: mends and diagnoses that must be refused, and other forms of the right mend.

For the tests, and for instructors who want to see what students do.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mend:
    """A mended method, as edits of the engine's own (of `symbol`); why: what its author thinks."""

    bug: str
    symbol: str
    edits: tuple[tuple[str, str], ...]
    right: bool
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One answer that is wrong: to `event` ("symptom": the last event, or the one that raised), `rule` or `cause`."""

    bug: str
    field: str
    answer: str
    why: str


def _wrong(bug: str, symbol: str, old: str, new: str, why: str) -> Mend:
    return Mend(bug, symbol, ((old, new),), False, why)


def _right(bug: str, symbol: str, why: str, *edits: tuple[str, str]) -> Mend:
    return Mend(bug, symbol, edits, True, why)


LOCATE = "locate_tokens"
ALLOCATE, HITS = "KVCacheManager.allocate_slots", "KVCacheManager.get_computed_blocks"
PREEMPT = "Scheduler._preempt_request"
POSITIONS = "positions = num_computed[req_indices] + query_pos"
LENGTHS = "seq_lens = num_computed + num_scheduled"
ROW = "row = result.req_id_to_index[request_id]"
DECODED = "self.tokenizer.decode([token_id], skip_special_tokens=self.skip_special_tokens)"
EVICTED = "[block.block_id for block in blocks if self._maybe_evict_cached_block(block)]"

MENDS = [
    _wrong(
        "block_one_token_late",
        ALLOCATE,
        "cdiv(num_tokens, self.block_size)",
        "cdiv(num_tokens + 1, self.block_size)",
        "better one block too many",
    ),
    _right(
        "block_one_token_late",
        ALLOCATE,
        "rounded up by hand",
        ("cdiv(num_tokens, self.block_size)", "(num_tokens + self.block_size - 1) // self.block_size"),
    ),
    _right(
        "block_one_token_late",
        ALLOCATE,
        "whole blocks and a rest",
        ("cdiv(num_tokens, self.block_size)", "num_tokens // self.block_size + bool(num_tokens % self.block_size)"),
    ),
    _wrong(
        "touch_without_unlink",
        "FreeKVCacheBlockQueue.popleft",
        "if block is self._tail:",
        "while block.ref_cnt > 0:\n        block = block.next_free_block\n    if block is self._tail:",
        "repaired where it hurts: skip blocks that are in use",
    ),
    _right(
        "touch_without_unlink",
        "BlockPool.touch",
        "count first, unlink then",
        ("if block.ref_cnt == 0 and not block.is_null:", "block.ref_cnt += 1\n        if block.ref_cnt == 1:"),
        ("self.free_block_queue.remove(block)\n        block.ref_cnt += 1", "self.free_block_queue.remove(block)"),
    ),
    _wrong(
        "whole_prompt_cached",
        "Scheduler._num_new_tokens",
        "return min(missing, token_budget)",
        "return max(1, min(missing, token_budget))",
        "avoid the zero",
    ),
    _right(
        "whole_prompt_cached",
        HITS,
        "all blocks but the last, which may be a part",
        ("(request.num_tokens - 1) // self.block_size", "-(-request.num_tokens // self.block_size) - 1"),
    ),
    _wrong(
        "stale_hash",
        "BlockPool.free_blocks",
        "self.free_block_queue.append(block)",
        "self.free_block_queue.append(block)\n            self._maybe_evict_cached_block(block)",
        "evicted when freed, nothing is stale",
    ),
    _right(
        "stale_hash",
        "BlockPool.get_new_blocks",
        "evict after the count is set",
        (EVICTED, "[]"),
        (
            "block.ref_cnt = 1",
            "block.ref_cnt = 1\n        if self._maybe_evict_cached_block(block):\n"
            "            self.evicted_block_ids.append(block.block_id)",
        ),
    ),
    _wrong(
        "outputs_lost_by_preemption",
        PREEMPT,
        "victim.num_computed_tokens = 0",
        "victim.num_computed_tokens = 0; victim.block_hashes.clear()",
        "its blocks are gone, so its hashes are",
    ),
    _wrong(
        "outputs_lost_by_preemption",
        PREEMPT,
        "victim.num_computed_tokens = 0",
        "victim.num_computed_tokens = 0; victim.max_tokens -= victim.num_output_tokens; "
        "del victim.output_token_ids[:], victim.all_token_ids[victim.num_prompt_tokens :]",
        "it says too much, so it may say less",
    ),
    _wrong(
        "resumed_table_appended",
        "InputBatch._update_known",
        "state.block_ids = list(new_block_ids)",
        "state.block_ids = state.block_ids or list(new_block_ids)",
        "it has a table already",
    ),
    _right(
        "resumed_table_appended",
        "InputBatch._update_known",
        "in place",
        ("state.block_ids = list(new_block_ids)", "state.block_ids[:] = new_block_ids"),
    ),
    _wrong("length_is_the_chunk", LOCATE, LENGTHS, "seq_lens = positions[cumulative - 1]", "the last position"),
    _right(
        "length_is_the_chunk",
        LOCATE,
        "the last position and one",
        (LENGTHS, "seq_lens = positions[cumulative - 1] + 1"),
    ),
    _wrong(
        "rows_in_scheduling_order",
        "Scheduler.update_from_output",
        ROW,
        "row = sorted(plan.num_scheduled_tokens).index(request_id)",
        "the requests of the complaint are swapped back",
    ),
    _right(
        "rows_in_scheduling_order",
        "Scheduler.update_from_output",
        "by the order of the rows",
        (ROW, "row = result.req_ids.index(request_id)"),
    ),
    _right(
        "rows_in_scheduling_order",
        "Scheduler.update_from_output",
        "a dict by id",
        (ROW, "row = {req_id: row for row, req_id in enumerate(result.req_ids)}[request_id]"),
    ),
    _wrong(
        "top_p_loses_a_token",
        "apply_top_k_top_p",
        "<= 1 - p[:, None]",
        "<= 0.9 - p[:, None]",
        "a little more of it",
    ),
    _right(
        "top_p_loses_a_token",
        "apply_top_k_top_p",
        "what is below a token decides, the other way round",
        (
            "ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - p[:, None]",
            "~(ascending.softmax(dim=-1).cumsum(dim=-1) > 1 - p[:, None])",
        ),
    ),
    _wrong(
        "half_characters",
        "TextStream.step",
        "self._protected_step(token_id)",
        DECODED + '.replace("\\N{REPLACEMENT CHARACTER}", "")',
        "what can't be seen is gone",
    ),
    _wrong(
        "freed_although_shared",
        "BlockPool.free_blocks",
        "if block.ref_cnt == 0 and",
        "if block.ref_cnt <= 1 and",
        "the one who frees it counts too",
    ),
    _wrong("positions_restart", LOCATE, POSITIONS, "positions = np.arange(len(req_indices))", "one count for all"),
    _right(
        "positions_restart",
        LOCATE,
        "row by row",
        (
            POSITIONS,
            "positions = np.concatenate([np.arange(c, c + n) for c, n in zip(num_computed, num_scheduled)])",
        ),
    ),
    _wrong(
        "no_chain_in_the_hash",
        "extend_block_hashes",
        "block_hashes[-1] if block_hashes else none_hash",
        "none_hash + bytes([start % 256])",
        "the place of the block tells it from others",
    ),
    _wrong(
        "sample_of_a_chunk_kept",
        "InputBatch.rows_with_incomplete_prompt",
        "if seq_lens[row] < self",
        "if seq_lens[row] <= self",
        "better too careful",
    ),
    _wrong(
        "victim_keeps_its_blocks",
        PREEMPT,
        "self.kv_cache_manager.free(victim)",
        "self.kv_cache_manager.block_pool.free_blocks(self.kv_cache_manager.req_to_blocks[victim.request_id])",
        "the pool has them back",
    ),
    _wrong(
        "uncomputed_block_hit",
        "KVCacheManager.forget_uncomputed_blocks",
        "self.req_to_blocks.get(request.request_id, [])[first:]",
        "self.req_to_blocks.get(request.request_id, [])",
        "all its blocks may be hit no more",
    ),
]

DIAGNOSES = [
    Diagnosis("touch_without_unlink", "event", "symptom", "where it crashed"),
    Diagnosis("block_one_token_late", "event", "symptom", "the first wrong token"),
    Diagnosis("resumed_table_appended", "event", "symptom", "the first wrong token"),
    Diagnosis("stale_hash", "event", "symptom", "where it crashed"),
    Diagnosis("touch_without_unlink", "cause", "FreeKVCacheBlockQueue.popleft", "it was raised there"),
    Diagnosis("touch_without_unlink", "cause", "Scheduler.schedule", "it was raised there"),
    Diagnosis("stale_hash", "cause", "BlockPool.cache_full_blocks", "it was raised there"),
    Diagnosis("whole_prompt_cached", "cause", "KVCacheManager.allocate_slots", "it was raised there"),
    Diagnosis("positions_restart", "rule", "F2", "lengths and positions are the same to him"),
    Diagnosis("freed_although_shared", "rule", "P1", "a neighbour in the table"),
]
