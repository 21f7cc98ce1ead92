"""What a plan found in the prefix cache, and why it found no more; what blocks it lacked.

Interface: explain_hits, explain_shortage, kept_blocks.
Must not know: budgets, seats, queues.
"""

from typing import Any

from minivllm.show.describe import plural
from minivllm.show.lives import Life, Lives, StepEvents
from minivllm.show.reasons import Reason, are, blocks, listed, requests

# ---------------------------------------------------------------------- hits and the first miss


def explain_hits(lives: Lives, life: Life, step: StepEvents, lookup: Any) -> tuple[Reason, dict[str, Any]]:
    """What a look-up (get_computed_blocks) found, and why the first block that missed is not there."""
    numbers: dict[str, Any] = {"num_hit_tokens": lookup.num_hit_tokens, "first_miss": lookup.first_miss}
    if lookup.skip_reading_prefix_cache:
        off = not lives.config.get("enable_prefix_caching", True)
        sentence = "The prefix cache is off." if off else "It reads nothing from the prefix cache, as it was asked to."
        return Reason("cache", sentence, (lookup.seq,)), numbers
    seqs = [lookup.seq]
    hits = lookup.block_ids
    sentence = "Nothing is found in the cache."
    if hits:
        sentence = f"{lookup.num_hit_tokens} of its {plural(lookup.num_tokens, 'token')} are found in {blocks(hits)}"
        sentence += f"{_whose(lives, life, step, lookup)}."
    unfilled = _unfilled(lives, step, lookup)
    if unfilled:
        numbers["unfilled_block_ids"] = unfilled
        sentence += f" But no step has ever filled {blocks(unfilled)}: what is read there is wrong."
    if lookup.first_miss is not None:
        why, more, seq = _why_missed(lives, lookup)
        numbers |= more
        seqs += seq
        sentence += f" {_place(lives, lookup.first_miss)} is the first that misses: {why}."
    elif _is_cut(lives, lookup):
        numbers["last_block_again"] = True
        sentence += " Its last block may not be one of them: a token must be left to compute, or there are no logits."
    elif not lookup.num_looked_up:
        sentence += " It has no whole block to look for."
    return Reason("cache", sentence, tuple(seqs)), numbers


def _whose(lives: Lives, life: Life, step: StepEvents, lookup: Any) -> str:
    """Who holds the hits, and whether they are filled only now."""
    tables = lives.trace.state_at(lookup.seq, before=True).block_tables
    holders = {
        i: table for i, table in tables.items() if i != life.request_id and not set(table).isdisjoint(lookup.block_ids)
    }
    if not holders:
        return ", which nobody holds"
    filled_now = " and filled only in this step" if not _fresh(step, lookup).isdisjoint(lookup.block_ids) else ""
    held = [block_id for block_id in lookup.block_ids if any(block_id in table for table in holders.values())]
    by = f"held by {requests([lives.name(request_id) for request_id in holders])}{filled_now}"
    if len(held) == len(lookup.block_ids):
        return f", {by}"
    return f" ({blocks(held)} {by}, the other{'s' * (len(lookup.block_ids) - len(held) > 1)} by nobody)"


def _fresh(step: StepEvents, lookup: Any) -> set[int]:
    """Blocks handed out earlier in this very plan: the step that is being planned fills them."""
    before = (event for event in step.inside if event.kind == "allocate_slots" and event.seq < lookup.seq)
    return {block_id for event in before for block_id in event.new_block_ids}


def _unfilled(lives: Lives, step: StepEvents, lookup: Any) -> list[int]:
    """Hits with slots that no step has written since the block was handed out; there should be none."""
    size, fresh = lives.config.get("block_size") or 0, _fresh(step, lookup)
    if not size or not lives.prepared:
        return []
    since = {block_id: 0 for block_id in lookup.block_ids if block_id not in fresh}
    for event in lives.pool_events:
        if event.kind == "get_new_blocks" and event.t1 <= lookup.t0:
            since |= {block_id: event.t1 for block_id in event.block_ids if block_id in since}
    written: dict[int, set[int]] = {block_id: set() for block_id in since}
    for event in lives.prepared:
        if event.t0 < lookup.t0:
            for slot in event.slot_mapping:
                if slot // size in since and event.t0 > since[slot // size]:
                    written[slot // size].add(slot)
    return [block_id for block_id in since if len(written[block_id]) < size]


def _place(lives: Lives, index: int) -> str:
    size = lives.config.get("block_size") or 0
    return f"Block {index} of its table (tokens {index * size} to {(index + 1) * size - 1})"


def _is_cut(lives: Lives, lookup: Any) -> bool:
    """All that was looked for is there, and the last whole block was not looked for."""
    size = lives.config.get("block_size") or 0
    return bool(size and lookup.num_tokens % size == 0 and lookup.num_tokens // size > lookup.num_looked_up)


def _why_missed(lives: Lives, lookup: Any) -> tuple[str, dict[str, Any], list[int]]:
    """Why a hash is not in the cache: it never was, or its block was handed out, or the hash was taken back."""
    missed = [e for e in lives.trace.children(lookup) if e.kind == "get_cached_block" and e.block_id is None]
    if not missed:
        return "it is not cached", {}, []
    block_hash = missed[0].block_hash
    cached = block_id = dropped = None
    for event in lives.pool_events:
        if event.t1 > lookup.t0:
            break
        if event.kind == "cache_full_blocks" and block_hash in event.block_hashes:
            cached, dropped = event, None
            block_id = event.block_ids[event.block_hashes.index(block_hash)]
        elif cached is not None and _drops(event, block_id):
            dropped = event
    if cached is None or dropped is None:
        return (
            "nobody has computed these tokens behind this beginning",
            {"missed_because": "never_cached"},
            [missed[0].seq],
        )
    by = lives.name(cached.reqs[0])
    numbers = {"missed_block": block_id, "cached_by": by}
    seqs = [missed[0].seq, cached.seq, dropped.seq]
    was = f"it was block {block_id} of request {by}"
    if dropped.kind == "reset_prefix_cache":
        return f"{was}, and the prefix cache was reset", numbers | {"missed_because": "reset"}, seqs
    if dropped.kind == "forget_uncomputed_blocks":
        more = {"missed_because": "forgotten", "forgotten_in_step": dropped.step}
        return f"{was}, which was preempted in step {dropped.step} before the block was filled", numbers | more, seqs
    taker = lives.name(dropped.reqs[0]) if dropped.reqs else None
    more = {"missed_because": "evicted", "evicted_for": taker, "evicted_in_step": dropped.step}
    return f"{was}, and was handed to request {taker} in step {dropped.step}", numbers | more, seqs


def _drops(event: Any, block_id: int) -> bool:
    """Whether a block loses its hash here."""
    if event.kind == "get_new_blocks":
        return block_id in event.evicted_block_ids
    if event.kind == "forget_uncomputed_blocks":
        return block_id in event.block_ids
    return event.kind == "reset_prefix_cache" and bool(event.done)


# ---------------------------------------------------------------------- blocks that are not there


def explain_shortage(lives: Lives, refusal: Any, needed: int, free: int) -> tuple[Reason, dict[str, Any]]:
    """The arithmetic of a refused `allocate_slots`."""
    state = lives.trace.state_at(refusal.seq, before=True)
    size = lives.config.get("block_size") or 1
    tokens = refusal.num_tokens
    if not refusal.full_sequence_must_fit:
        tokens = refusal.num_computed_tokens + refusal.num_hit_tokens + refusal.num_new_tokens
    in_all = -(-tokens // size)
    hits = refusal.hit_block_ids
    idle = sum(block_id not in state.ref_cnts for block_id in hits)
    new = needed - idle
    held = {lives.name(request_id): len(table) for request_id, table in state.block_tables.items() if table}
    sentence = f"Its {plural(tokens, 'token')} take {plural(in_all, 'block')} of {size}"
    if hits:
        shared = len(hits) - idle
        sentence += f": {are(len(hits))} found ("
        parts = [f"{shared} held by others and free of charge"] * bool(shared)
        parts += [f"{idle} held by nobody, and so taken from the free ones"] * bool(idle)
        sentence += f"{', '.join(parts)}), {are(new)} new"
    sentence += f". {needed} > {free}."
    if held:
        sentence += f" Now {listed(f'request {name} holds {count}' for name, count in held.items())}."
    numbers = {"num_new_blocks": new, "num_idle_hits": idle, "num_blocks_in_all": in_all, "held_by": held}
    return Reason("blocks", sentence, (refusal.seq,), failed=True), numbers


def kept_blocks(lives: Lives, step: StepEvents, request_id: str) -> tuple[int, Any]:
    """(leading blocks of a victim that keep their hash, the `free` that let them go)."""
    freed = next(iter(step.of("free", request_id)), None)
    if freed is None:
        return 0, None
    hashed = lives.trace.state_at(freed.seq).block_hashes
    kept = 0
    for block_id in freed.block_ids:
        if block_id not in hashed:
            break
        kept += 1
    return kept, freed
