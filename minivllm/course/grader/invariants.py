"""Rules that every step keeps, whatever it decides. Checked on the states that the child wrote down.

Owns: the rules and their names. Interface: first_broken, Broken, RULES.
Must not know: what vLLM decided.

P is the pool, S a step, H hashes, K what is read from the cache, R a request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minivllm.config import cdiv
from minivllm.proof.lockstep.recording import Workload

RULES = {
    "P1": "no block stands twice in the free queue",
    "P2": "num_free_blocks is the length of the free queue",
    "P3": "the null block is never free and in no table",
    "P4": "a block's ref_cnt is the number of tables that hold it",
    "P5": "a block is free if and only if nobody holds it",
    "P6": "a shared block stands at the same place in all tables",
    "P7": "at the end all blocks are back",
    "S1": "no more tokens than the budget",
    "S2": "no more running requests than seats",
    "S3": "whoever is scheduled gets at least one token",
    "S4": "no more tokens computed than there are",
    "S5": "whoever is scheduled holds blocks",
    "S6": "a table has as many blocks as its computed tokens need",
    "S7": "a live request stands in exactly one queue",
    "S8": "the worker was told what the scheduler holds",
    "H1": "map and blocks agree on every hash",
    "R1": "no request is longer than max_model_len",
    "R2": "every request ends",
    "K1": "a slot is written once in a step",
    "K2": "every request reads what was written for its own tokens",
}


@dataclass(frozen=True, slots=True)
class Broken:
    """The first rule that does not hold."""

    step: int
    rule: str
    numbers: str  # one clause with the numbers

    def tell(self) -> str:
        return f"breaks {self.rule}: {self.numbers} ({RULES[self.rule]})"


def first_broken(workload: Workload, seen: list[dict[str, Any]], ended: bool = True) -> Broken | None:
    """The first rule that a run breaks. seen: what observe.run_workload wrote down; ended: it came to its end."""
    worker = _Worker(workload)
    for index, entry in enumerate(seen):
        for rule, numbers in _look(workload, entry, worker):
            return Broken(index, rule, numbers)
    if ended and seen:
        last = seen[-1]["updated"]
        if last["num_free"] != workload["config"]["num_blocks"] - 1:
            return Broken(len(seen) - 1, "P7", f"{last['num_free']} free of {workload['config']['num_blocks'] - 1}")
    return None


Findings = Iterator[tuple[str, str]]


def _look(workload: Workload, entry: dict[str, Any], worker: "_Worker") -> Findings:
    yield from _pool(entry["planned"])
    yield from _step(workload, entry)
    yield from worker.take(entry)
    yield from _pool(entry["updated"])
    for req_id, (_, num_tokens, _) in entry["updated"]["requests"].items():
        if num_tokens > workload["config"]["max_model_len"]:
            yield "R1", f"{req_id} has {num_tokens} tokens, the limit is {workload['config']['max_model_len']}"


def _pool(state: dict[str, Any]) -> Findings:
    free, tables = state["free"], state["tables"]
    if len(set(free)) != len(free):
        yield "P1", f"free queue {free}"
    if state["num_free"] != len(free):
        yield "P2", f"{state['num_free']} counted, {len(free)} there"
    places: dict[int, list[int]] = {}
    for table in tables.values():
        for place, block_id in enumerate(table):
            places.setdefault(block_id, []).append(place)
    if 0 in free or 0 in places:
        yield "P3", f"block 0 is {'free' if 0 in free else 'in a table'}"
    for block_id, ref_cnt in enumerate(state["ref_cnts"][1:], start=1):
        held = places.get(block_id, [])
        if ref_cnt != len(held):
            yield "P4", f"block {block_id} has ref_cnt {ref_cnt}, tables that hold it: {len(held)}"
        if (ref_cnt == 0) != (block_id in free):
            yield "P5", f"block {block_id} has ref_cnt {ref_cnt} and is {'free' if block_id in free else 'not free'}"
        if len(set(held)) > 1:
            yield "P6", f"block {block_id} stands at places {held}"
    if state["by_map"] != state["by_block"]:
        wrong = [
            b for b in {**state["by_map"], **state["by_block"]} if state["by_map"].get(b) != state["by_block"].get(b)
        ]
        yield "H1", f"block {wrong[0]}"


def _step(workload: Workload, entry: dict[str, Any]) -> Findings:
    config, step, state = workload["config"], entry["step"], entry["planned"]
    total = sum(n for _, n in step["num_scheduled_tokens"])
    if total > config["max_num_batched_tokens"]:
        yield "S1", f"{total} tokens, the budget is {config['max_num_batched_tokens']}"
    if len(state["running"]) > config["max_num_seqs"]:
        yield "S2", f"{len(state['running'])} running, seats {config['max_num_seqs']}"
    for req_id, n in step["num_scheduled_tokens"]:
        if n < 1:
            yield "S3", f"{req_id} gets {n}"
        computed, num_tokens, _ = state["requests"].get(req_id, (0, 0, ""))
        if computed > num_tokens:
            yield "S4", f"{req_id}: computed {computed} > num_tokens {num_tokens}"
        held = len(state["tables"].get(req_id, ()))
        if not held:
            yield "S5", f"{req_id} holds none"
        elif held != cdiv(computed, config["block_size"]):
            yield "S6", f"{req_id} holds {held} blocks for {computed} tokens of block size {config['block_size']}"
    queued = sorted(state["running"] + state["waiting"])
    if queued != sorted(state["requests"]):
        yield "S7", f"running {state['running']}, waiting {state['waiting']}, alive {sorted(state['requests'])}"


class _Worker:
    """What a worker knows: the tables that it was told, and with which history each slot was written."""

    def __init__(self, workload: Workload) -> None:
        self.block_size = workload["config"]["block_size"]
        self.tokens = {r["id"]: r["prompt_token_ids"] + r["output"] for r in workload["requests"]}
        self.salts = {r["id"]: r.get("cache_salt") for r in workload["requests"]}
        self.tables: dict[str, list[int]] = {}
        self.slots: dict[int, int] = {}
        self.numbers: dict[Any, int] = {}  # (history before, token) -> a number for the history up to the token

    def take(self, entry: dict[str, Any]) -> Findings:
        step, state = entry["step"], entry["planned"]
        for req_id in step["finished"]:
            self.tables.pop(req_id, None)
        computed = {}
        for new in step["new"]:
            self.tables[new["id"]] = list(new["block_ids"])
            computed[new["id"]] = new["num_computed_tokens"]
        for cached in step["cached"]:
            kept = [] if cached["resumed"] else self.tables.get(cached["id"], [])
            self.tables[cached["id"]] = kept + list(cached["new_block_ids"])
            computed[cached["id"]] = cached["num_computed_tokens"]
        scheduled = dict(step["num_scheduled_tokens"])
        if set(scheduled) != set(computed):
            yield "S8", f"scheduled {sorted(scheduled)}, told {sorted(computed)}"
            return
        for req_id, n in scheduled.items():
            held = state["tables"].get(req_id, [])
            if self.tables[req_id] != held:
                yield "S8", f"{req_id}: told blocks {self.tables[req_id]}, held {held}"
                return
            if computed[req_id] + n != state["requests"][req_id][0]:
                yield (
                    "S8",
                    f"{req_id}: told {computed[req_id]} computed before {n} more, held {state['requests'][req_id][0]}",
                )
        yield from self._write_then_read(scheduled, computed)

    def _write_then_read(self, scheduled: dict[str, int], computed: dict[str, int]) -> Findings:
        written: set[int] = set()
        for req_id, n in scheduled.items():
            for position in range(computed[req_id], computed[req_id] + n):
                slot = self._slot(req_id, position)
                if slot is None:
                    yield "S6", f"{req_id} has no block for position {position}"
                    return
                if slot in written:
                    yield "K1", f"slot {slot}, written by {req_id} too"
                written.add(slot)
                self.slots[slot] = self._history(req_id, position)
        for req_id, n in scheduled.items():
            for position in range(computed[req_id] + n):
                slot = self._slot(req_id, position)
                if self.slots.get(slot) != self._history(req_id, position):
                    yield "K2", f"{req_id} reads slot {slot} at position {position}: not its own past"
                    return

    def _slot(self, req_id: str, position: int) -> int | None:
        table, place = self.tables[req_id], position // self.block_size
        return table[place] * self.block_size + position % self.block_size if place < len(table) else None

    def _history(self, req_id: str, position: int) -> int:
        """A number for the tokens up to this position, and the salt."""
        key = ("done", req_id, position)
        if key not in self.numbers:
            before: Any = self._history(req_id, position - 1) if position else self.salts[req_id]
            token = self.tokens[req_id][position] if position < len(self.tokens[req_id]) else None
            self.numbers[key] = self.numbers.setdefault(("history", before, token), len(self.numbers))
        return self.numbers[key]
