"""Invariants: five rules that hold at every moment of every run, checked on a trace alone.

Owns: the rules, and how many single checks each of them made.
Interface: check; RULES; Result, Broken; swapped_blocks (a copy of a trace that is wrong on purpose).
Must not know: the engine, files, or how a result is shown.

The rules speak of block tables, slots, the pool and messages. They are true of vLLM as well; a backend that keeps them
can be wrong only in what it computes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from minivllm.trace.events import Event
from minivllm.trace.merge import message_pairs
from minivllm.trace.replay import Trace
from minivllm.trace.state import State

SLOTS = "slots"
OWNERS = "owners"
BALANCE = "balance"
HITS = "hits"
MESSAGES = "messages"
RULES = {
    SLOTS: "The slots of a step are distinct, and each is table[position // block_size] · block_size + the rest.",
    OWNERS: "A block has one owner, or it has a name and all its owners share it.",
    BALANCE: "The free blocks and those in block tables together are all usable blocks.",
    HITS: "Every slot that a prefix hit promises has been written by the end of the step that reads it.",
    MESSAGES: "No message is received before it was sent.",
}
SETTLED = ("schedule", "update_from_output", "finish_requests")  # after these, tables and pool fit together


@dataclass(frozen=True, slots=True)
class Broken:
    """One check that failed."""

    rule: str  # a key of RULES
    seq: int  # the event at whose exit it failed
    step: int | None
    what: str  # one sentence with its numbers


@dataclass(slots=True)
class Result:
    """What was checked on one trace."""

    checks: Counter[str] = field(default_factory=Counter)  # rule -> single checks made
    broken: list[Broken] = field(default_factory=list)  # in the order of the trace

    @property
    def holds(self) -> bool:
        return not self.broken

    @property
    def first(self) -> Broken | None:
        return self.broken[0] if self.broken else None


def check(trace: Trace) -> Result:
    """Check all five rules on a trace. It takes a few milliseconds for a thousand events."""
    result, checker = Result(Counter(dict.fromkeys(RULES, 0))), _Checker(trace)
    for event, state in trace.states():
        for rule, what in checker.look(event, state):
            result.checks[rule] += 1
            if what:
                result.broken.append(Broken(rule, event.seq, event.step, what))
    for send, receive in message_pairs(trace):
        result.checks[MESSAGES] += 1
        if receive.t1 < send.t0:
            what = f"message {receive.msg} was received before event {send.seq} sent it"
            result.broken.append(Broken(MESSAGES, receive.seq, receive.step, what))
    return result


Checks = Iterator[tuple[str, str]]  # (rule, what is wrong; "" if nothing is)


class _Checker:
    """One walk through a trace. Remembers what was written where."""

    def __init__(self, trace: Trace) -> None:
        self.block_size: int = trace.header.config["block_size"]
        self.usable = (trace.header.num_gpu_blocks or 1) - 1
        self.batches = {event.step: event for event in trace.filter(kind="prepare_inputs")}
        self.written: dict[int, int] = {}  # slot -> position of the token there; of blocks as they are handed out now
        self.hits: list[tuple[str, list[int]]] = []  # (request, blocks) of this step's plan

    def look(self, event: Event | Any, state: State) -> Checks:
        if event.kind == "get_new_blocks":
            for block_id in event.block_ids:
                for slot in self._slots(block_id):
                    self.written.pop(slot, None)
        elif event.kind == "allocate_slots" and event.hit_block_ids and not event.refused:
            self.hits.append((event.reqs[0], list(event.hit_block_ids)))
        elif event.kind == "update_states" and event.step in self.batches:
            yield from self._batch(self.batches[event.step], state)
            yield from self._promised()
        if event.kind in SETTLED:
            yield from self._pool(event, state)

    def _slots(self, block_id: int) -> range:
        return range(block_id * self.block_size, (block_id + 1) * self.block_size)

    def _batch(self, batch: Any, state: State) -> Checks:
        """Each token's slot, from the scheduler's own block table."""
        times = Counter(batch.slot_mapping)
        for row, (first, last) in enumerate(zip(batch.query_start_loc, batch.query_start_loc[1:], strict=False)):
            request_id = state.rows[row].req_id
            table = state.block_tables.get(request_id, [])
            tokens = zip(batch.positions[first:last], batch.slot_mapping[first:last], strict=True)
            for position, slot in tokens:
                place, rest = divmod(position, self.block_size)
                expected = table[place] * self.block_size + rest if place < len(table) else None
                yield SLOTS, _wrong_slot(request_id, position, slot, expected, times[slot])
                self.written[slot] = position

    def _promised(self) -> Checks:
        """The slots of the blocks that this step's plan found in the prefix cache."""
        for request_id, blocks in self.hits:
            for place, block_id in enumerate(blocks):
                for rest, slot in enumerate(self._slots(block_id)):
                    position = place * self.block_size + rest
                    wrong = f"{request_id} reads position {position} from slot {slot}, where it was never written"
                    yield HITS, "" if self.written.get(slot) == position else wrong
        self.hits = []

    def _pool(self, event: Any, state: State) -> Checks:
        """The tables of the requests against the pool's own counts."""
        owners = Counter(block_id for table in state.block_tables.values() for block_id in table)
        for block_id, count in sorted(owners.items()):
            yield OWNERS, _wrong_owners(state, block_id, count)
        free, used = event.num_free_blocks[1], len(owners)
        yield BALANCE, "" if free + used == self.usable else f"{free} free + {used} in tables are not {self.usable}"


def _wrong_slot(request_id: str, position: int, slot: int, expected: int | None, times: int) -> str:
    if times > 1:
        return f"slot {slot} is written {times} times in one step"
    return "" if slot == expected else f"{request_id}, position {position}: slot {slot}, and the table says {expected}"


def _wrong_owners(state: State, block_id: int, count: int) -> str:
    if count > 1 and block_id not in state.block_hashes:
        return f"block {block_id} has {count} owners and no name"
    ref_cnt = state.ref_cnts.get(block_id, 0)
    return "" if ref_cnt == count else f"block {block_id} has {count} owners, and the pool counts {ref_cnt}"


# ---------------------------------------------------------------------- wrong on purpose


def swapped_blocks(trace: Trace, seq: int) -> Trace:
    """A copy of a trace in which the first two new blocks of the `allocate_slots` event `seq` have changed places.

    Raises ValueError if the event gave out fewer than two.
    """
    event: Any = trace[seq]
    if event.kind != "allocate_slots" or len(event.new_block_ids) < 2:
        raise ValueError(f"Event {seq} is no allocate_slots with two new blocks: there is nothing to swap.")
    first, second, *rest = event.new_block_ids
    changed = msgspec.structs.replace(event, new_block_ids=[second, first, *rest])
    return Trace(trace.header, [changed if one.seq == seq else one for one in trace], trace.truncated)
