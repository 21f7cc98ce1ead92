"""One line for an event: the two or three numbers that matter, tokens, blocks, slots.

Interface: describe, change, ids, ranges, quoted, plural, size.
Must not know: how lines are laid out (table.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

from minivllm.trace.events import Event
from minivllm.trace.events_worker import slot_ranges

MAX_IDS = 8


def describe(event: Event, request_id: str) -> str:
    """What an event did, as far as it concerns one request (internal id)."""
    if event.error is not None:
        return f"failed: {event.error}"
    if event.view_error is not None:
        return f"not looked at: {event.view_error}"
    say = _SAY.get(event.kind)
    return say(event, request_id) if say else ""


def change(pair: tuple[int, int] | None) -> str:
    """`3 → 5`, or `3` for what has not changed."""
    if pair is None:
        return "?"
    before, after = pair
    return f"{before} → {after}" if before != after else str(after)


def ids(numbers: Sequence[int]) -> str:
    """`[1 2 3]`; a long list is cut in its middle."""
    if len(numbers) <= MAX_IDS:
        return f"[{' '.join(map(str, numbers))}]"
    return f"[{' '.join(map(str, numbers[:4]))} … {' '.join(map(str, numbers[-2:]))}]"


def ranges(numbers: Sequence[int]) -> str:
    """`16..52`, or `16..31 48..52`; many runs are cut."""
    runs = slot_ranges(list(numbers))
    parts = [str(first) if first == last else f"{first}..{last}" for first, last in runs]
    return " ".join(parts if len(parts) <= 3 else [*parts[:2], "…", parts[-1]])


def quoted(text: str | int | None, limit: int = 40) -> str:
    """A text in quotes with its line ends made visible; a redacted one as its length."""
    if text is None:
        return "-"
    if isinstance(text, int):
        return f"({text} characters)"
    shown = text.replace("\n", "↵")
    return f"“{shown}”" if len(shown) <= limit else f"“{shown[: limit - 1]}…”"


def plural(count: int | None, word: str) -> str:
    """`1 token`, `2 tokens`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def size(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _generate(event: Any, _: str) -> str:
    return plural(event.num_requests, "request")


def _rendered(event: Any, _: str) -> str:
    return plural(event.num_prompt_tokens, "prompt token")


def _message(event: Any, _: str) -> str:
    return f"message {event.msg}: {event.message_type}, {event.num_bytes} bytes"


def _scheduled(event: Any, request_id: str) -> str:
    if request_id in event.num_scheduled_tokens:
        mine = event.num_scheduled_tokens[request_id]
        total = event.total_num_scheduled_tokens
        tokens = plural(mine, "token") + (f" of {total}" if total != mine else "")
        computed = change(event.num_computed_tokens[request_id])
        return f"{tokens}, computed {computed}, budget {change(event.token_budget)}"
    if request_id in event.finished_req_ids:
        return "the worker is told to forget it"
    return f"no token: {why_not(event, request_id) or 'not its turn'}"


def why_not(event: Any, request_id: str) -> str | None:
    """Why the plan gave a request nothing; None if it does not say."""
    for skipped in event.skipped:
        if skipped.req_id == request_id:
            numbers = ""
            if skipped.blocks_needed is not None:
                numbers = f" (needs {skipped.blocks_needed}, {skipped.blocks_free} free)"
            return skipped.reason.replace("_", " ") + numbers
    return None


def _hits(event: Any, _: str) -> str:
    if event.skip_reading_prefix_cache:
        return "no look-up"
    found = f" {ids(event.block_ids)}" if event.block_ids else ""
    return f"hit {event.num_hit_tokens} of {plural(event.num_tokens, 'token')}{found}"


def _allocated(event: Any, _: str) -> str:
    if event.refused:
        return f"refused: needs {event.blocks_needed} blocks, {event.num_free_blocks[0]} free"
    new = f" {ids(event.hit_block_ids + event.new_block_ids)}" if event.hit_block_ids or event.new_block_ids else ""
    return f"blocks {change(event.num_blocks)}{new}, free {change(event.num_free_blocks)}"


def _pool(event: Any, _: str) -> str:
    evicted = getattr(event, "evicted_block_ids", [])
    loss = f", evicts {ids(evicted)}" if evicted else ""
    return f"{ids(event.block_ids)}, free {change(event.num_free_blocks)}{loss}"


def _executed(event: Any, _: str) -> str:
    return f"{plural(event.total_num_scheduled_tokens, 'token')} of {plural(len(event.reqs), 'request')}"


def _rows(event: Any, request_id: str) -> str:
    if request_id not in event.req_ids:
        return "no row any more"
    row = event.req_ids.index(request_id)
    return f"row {row} of {len(event.req_ids)}, {plural(event.num_blocks_per_row[row], 'block')}"


def _prepared(event: Any, _: str) -> str:
    return f"{plural(event.num_tokens, 'token')}, slots {ranges(event.slot_mapping)}"


def _attention(event: Any, _: str) -> str:
    where = plural(event.calls, "layer") if event.layer is None else f"layer {event.layer}"
    return f"{where}, queries {size(event.query_shape)}"


def _written(event: Any, _: str) -> str:
    where = plural(event.calls, "layer") if event.layer is None else f"layer {event.layer}"
    return f"{where}, K and V {size(event.key_shape)}"


def _sampled(event: Any, request_id: str) -> str:
    if request_id not in event.req_ids:
        return ""
    token_ids = event.sampled_token_ids[event.req_ids.index(request_id)]
    if isinstance(token_ids, int):
        return plural(token_ids, "token")
    return f"token {token_ids[0]}" if token_ids else "thrown away: the prompt is not complete"


def _updated(event: Any, request_id: str) -> str:
    for update in event.updates:
        if update.req_id == request_id:
            ended = f", ends: {update.finish_reason}" if update.finish_reason else ""
            return f"tokens {change(update.num_tokens)}, blocks {change(update.num_blocks)}{ended}"
    return "ended while the step ran"


def _detokenized(event: Any, _: str) -> str:
    if event.stop_string is not None:
        return f"stop string {quoted(event.stop_string)}: text {change(event.num_chars)} characters"
    return f"adds {quoted(event.new_text)}" if event.new_text else "adds nothing yet"


def _ended(event: Any, request_id: str) -> str:
    if request_id not in event.finished:
        return "it had ended already"
    return f"{event.status}, free blocks {change(event.num_free_blocks)}"


_SAY: dict[str, Callable[[Any, str], str]] = {
    "generate": _generate,
    "chat": _generate,
    "run_engine": _generate,
    "render_cmpl": _rendered,
    "render_chat": _rendered,
    "llm_engine.add_request": lambda e, _: f"request {e.external_req_id}" + (f", n = {e.n}" if e.n != 1 else ""),
    "process_inputs": lambda e, _: f"max_tokens {e.max_tokens}, end token {e.eos_token_id}",
    "assign_request_id": lambda e, _: f"{e.external_req_id} becomes {e.request_id}",
    "output_processor.add_request": lambda e, _: f"open requests {change(e.num_open)}",
    "core_client.add_request": _rendered,
    "core_client.send": _message,
    "core.receive": _message,
    "core.send": _message,
    "core_client.receive": _message,
    "preprocess_add_request": lambda e, _: f"{plural(len(e.block_hashes), 'full block')} hashed",
    "scheduler.add_request": lambda e, _: f"waiting {change(e.num_waiting)}, running {e.num_running}",
    "schedule": _scheduled,
    "get_computed_blocks": _hits,
    "allocate_slots": _allocated,
    "cache_blocks": lambda e, _: f"blocks with a hash {change(e.num_cached_blocks)}",
    "forget_uncomputed_blocks": lambda e, _: f"{ids(e.block_ids)} can't be hit any more",
    "free": lambda e, _: f"{ids(e.block_ids)} let go, free {change(e.num_free_blocks)}",
    "get_cached_block": lambda e, _: "missed" if e.block_id is None else f"block {e.block_id}",
    "touch": _pool,
    "get_new_blocks": _pool,
    "free_blocks": _pool,
    "cache_full_blocks": lambda e, _: f"{ids(e.block_ids)} can be hit from now on",
    "executor.execute_model": _executed,
    "worker.execute_model": _executed,
    "update_states": _rows,
    "prepare_inputs": _prepared,
    "get_slot_mappings": lambda e, _: f"{plural(e.num_slots, 'slot')} to {e.device}",
    "build_attention_metadata": lambda e, _: f"longest query {e.max_query_len}, longest sequence {e.max_seq_len}",
    "model_forward": lambda e, _: f"hidden states {size(e.hidden_states_shape)} {e.dtype}",
    "do_kv_cache_update": _written,
    "attention": _attention,
    "kernel.launch": lambda e, _: f"{e.name}, {size(e.grid)} programs",
    "kernel.program": lambda e, _: f"program {ids(e.program)}, {plural(len(e.tiles), 'tile')}",
    "compute_logits": lambda e, _: f"{size(e.hidden_states_shape)} becomes {size(e.logits_shape)}",
    "sample_tokens": _sampled,
    "sampler.forward": lambda e, _: "greedy" if e.all_greedy else "random" if e.all_random else "greedy and random",
    "update_from_output": _updated,
    "get_output": lambda e, _: plural(e.num_outputs, "output"),
    "process_outputs": lambda e, _: f"open requests {change(e.num_open)}",
    "detokenize": _detokenized,
    "abort_requests": lambda e, _: f"the core must end {plural(len(e.reqs), 'request')}",
    "finish_requests": _ended,
    "unfinished": lambda e, _: f"{e.of} never returned",
}
