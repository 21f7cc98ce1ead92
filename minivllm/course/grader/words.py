"""Plain words for workloads, states and differences: what a message of a failed check is made of.

Owns: how things are told. Interface: tell_workload, tell_state, tell_field, shorten.
Must not know: what is right.
"""

from typing import Any

from minivllm.proof.lockstep.recording import Workload

LONGEST = 8  # items of a list before it is cut around the first difference
FIELDS = {
    "num_scheduled_tokens": "tokens of this step",
    "new": "admitted",
    "cached": "going on",
    "preempted": "preempted",
    "finished": "told to the worker as ended",
    "running": "running after schedule",
    "waiting": "waiting after schedule",
    "free_blocks_after_schedule": "free queue after schedule",
    "free_blocks_after_update": "free queue after update_from_output",
    "sampled": "sampled",
    "outputs": "outputs",
    "aborted": "aborted",
    "added": "added",
}


def tell_workload(workload: Workload, whole: bool = False) -> str:
    """Settings and requests of a workload in one line. whole: all tokens, however many."""
    config = workload["config"]
    settings = [
        f"block size {config['block_size']}",
        f"{config['num_blocks'] - 1} usable blocks",
        count(config["max_num_seqs"], "seat"),
        f"budget {config['max_num_batched_tokens']}",
        f"max_model_len {config['max_model_len']}",
    ]
    if config["enable_prefix_caching"]:
        settings.append("prefix cache on")
    if not config["enable_chunked_prefill"]:
        settings.append("chunked prefill off")
    if config["long_prefill_token_threshold"]:
        settings.append(f"threshold {config['long_prefill_token_threshold']}")
    if config["policy"] == "priority":
        settings.append("priority policy")
    return f"{', '.join(settings)}; {'; '.join(_tell_request(request, whole) for request in workload['requests'])}"


def _tell_request(request: dict[str, Any], whole: bool) -> str:
    prompt = request["prompt_token_ids"]
    shown = tell_list(prompt) if whole or len(prompt) <= LONGEST else f"of {len(prompt)} tokens"
    words = [f"{request['id']} prompt {shown} max_tokens {request['max_tokens']}"]
    if request["arrival_step"]:
        words.append(f"arrives in step {request['arrival_step']}")
    if request["priority"]:
        words.append(f"priority {request['priority']}")
    if request["min_tokens"]:
        words.append(f"min_tokens {request['min_tokens']}")
    if request["stop_token_ids"]:
        words.append(f"stop ids {tell_list(request['stop_token_ids'])}")
    if request["ignore_eos"]:
        words.append("ignore_eos")
    if request["abort_step"] is not None:
        words.append(f"aborted in step {request['abort_step']}")
    if any(token != 10 for token in request["output"]) and (whole or request["max_tokens"] <= LONGEST):
        words.append(f"samples {tell_list(request['output'][: request['max_tokens']])}")
    return " ".join(words)


def tell_state(state: dict[str, Any] | None) -> str:
    """Queues, counters and free blocks in one line."""
    if state is None:
        return "nothing has happened yet"
    counters = {req_id: f"{req_id} {computed}/{num}" for req_id, (computed, num, _) in state["requests"].items()}
    words = [
        f"running [{', '.join(counters.get(req_id, req_id) for req_id in state['running'])}]",
        f"waiting [{', '.join(counters.get(req_id, req_id) for req_id in state['waiting'])}]",
        f"free blocks {tell_list(state['free'])}",
    ]
    tables = [f"{req_id} holds {tell_list(table)}" for req_id, table in state["tables"].items()]
    if tables:
        words.append(", ".join(tables))
    hashed = [block_id for block_id in state["by_block"] if block_id in state["free"]]
    if hashed:
        words.append(f"free, but still in the prefix cache: {tell_list(sorted(hashed))}")
    return " · ".join(words)


def tell_field(field: str, value: Any) -> str:
    """One field of a recorded step in words."""
    if field == "num_scheduled_tokens":
        return ", ".join(f"{req_id} gets {count(n, 'token')}" for req_id, n in value) or "nobody gets a token"
    if field == "new":
        return ", ".join(_tell_new(entry) for entry in value) or "nobody is admitted for the first time"
    if field == "cached":
        return ", ".join(_tell_cached(entry) for entry in value) or "nobody goes on"
    if field == "outputs":
        return ", ".join(_tell_output(entry) for entry in value) or "no output"
    if field == "preempted":
        return f"preempted {tell_list(value)}"
    return f"{FIELDS.get(field, field)} {tell_list(value) if isinstance(value, list) else value}"


def _tell_new(entry: dict[str, Any]) -> str:
    cached = f", {count(entry['num_computed_tokens'], 'token')} cached" if entry["num_computed_tokens"] else ""
    return f"{entry['id']} admitted with blocks {tell_list(entry['block_ids'])}{cached}"


def _tell_cached(entry: dict[str, Any]) -> str:
    verb = "resumes" if entry["resumed"] else "goes on"
    blocks = tell_list(entry["new_block_ids"]) if entry["new_block_ids"] else "none"
    counts = f"computed {entry['num_computed_tokens']}, outputs {entry['num_output_tokens']}"
    return f"{entry['id']} {verb} ({counts}, new blocks {blocks})"


def _tell_output(entry: dict[str, Any]) -> str:
    words = f"{entry['id']} {tell_list(entry['new_token_ids'])}"
    if entry["finish_reason"] is not None:
        words += f" ends ({entry['finish_reason']}, stop_reason {entry['stop_reason']})"
    return words


def shorten(one: list[Any], other: list[Any]) -> tuple[list[Any], list[Any]]:
    """Both lists, cut around the first place where they differ."""
    if max(len(one), len(other)) <= LONGEST:
        return one, other
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(place - 2, 0)
    before = ["…"] if start else []
    return tuple(
        before + items[start : start + LONGEST - 2] + (["…"] if len(items) > start + LONGEST - 2 else [])
        for items in (one, other)
    )


def tell_list(items: list[Any]) -> str:
    """A list as text, without commas: [1 2 3]."""
    return f"[{' '.join(map(str, items))}]"


def count(number: int, what: str, many: str = "") -> str:
    """1 token, 2 tokens. many: the plural, where an s is not enough."""
    return f"{number} {what if number == 1 else many or f'{what}s'}"
