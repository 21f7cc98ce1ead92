"""What a trace says about single blocks at one moment, beyond its State: which of their slots were written.

Interface: BlockFact, block_facts, written_slots.
Must not know: how anything is drawn. matplotlib is not imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from minivllm.errors import InputError
from minivllm.trace.replay import Trace
from minivllm.trace.state import State


@dataclass(frozen=True, slots=True)
class BlockFact:
    """One block of the pool.

    vLLM: v1/core/kv_cache_utils.py::KVCacheBlock
    """

    block_id: int
    owners: tuple[str, ...] = ()  # internal ids of the requests that hold it
    written: int = 0  # slots that hold K and V of the tokens that it stands for
    named: bool = False  # it has a hash: a request can hit it
    null: bool = False

    @property
    def form(self) -> str:
        """null, shared, owned, cached (free, with a name) or free."""
        if self.null:
            return "null"
        if self.owners:
            return "shared" if len(self.owners) > 1 else "owned"
        return "cached" if self.named else "free"


def written_slots(trace: Trace, seq: int, before: bool = False) -> dict[int, set[int]]:
    """Block -> the offsets in it that were written since the block was last handed out, at the moment of an event.

    K and V count as written when the step's forward pass is over. Empty for a trace of a scheduler alone.
    """
    block_size = trace.header.config["block_size"]
    until = trace[seq].t0 if before else trace[seq].t1
    ranges: dict[int | None, list] = {}
    moves: list[tuple[int, str, list]] = []
    for event in trace:
        if event.error is not None:
            continue
        if event.kind == "get_slot_mappings":
            ranges[event.step] = event.slot_ranges
        elif event.kind == "model_forward":
            moves.append((event.t1, "write", ranges.get(event.step, [])))
        elif event.kind == "get_new_blocks":
            moves.append((event.t1, "take", event.block_ids))
    written: dict[int, set[int]] = {}
    for at, what, values in sorted(moves, key=lambda move: move[0]):
        if at > until:
            break
        if what == "take":
            for block_id in values:
                written.pop(block_id, None)
        else:
            for first, last in values:
                for slot in range(first, last + 1):
                    written.setdefault(slot // block_size, set()).add(slot % block_size)
    return written


def block_facts(state: State, num_blocks: int, written: Mapping[int, int]) -> list[BlockFact]:
    """Every block of the pool, in order of their numbers. written: block -> how many slots.

    vLLM: v1/core/block_pool.py::BlockPool
    """
    owners: dict[int, list[str]] = {}
    for request_id, table in state.block_tables.items():
        for block_id in table:
            owners.setdefault(block_id, []).append(request_id)
    return [
        BlockFact(
            block_id,
            tuple(owners.get(block_id, ())),
            written.get(block_id, 0),
            block_id in state.block_hashes,
            null=block_id == 0,
        )
        for block_id in range(num_blocks)
    ]


def moment(source: Trace | State, seq: int | None, before: bool) -> tuple[State, dict[int, int]]:
    """The state of a trace at an event, and block -> written slots; a State as it is, with what it counts as computed.

    seq None: the end of the trace. Raises InputError for an event that there is not.
    """
    if isinstance(source, State):
        return source, {}
    if seq is None:
        last = max(source, key=lambda event: event.t1).seq
        return source.final_state(), {block: len(offsets) for block, offsets in written_slots(source, last).items()}
    if seq not in source:
        raise InputError(f"The trace has no event {seq}. It has {len(source)}, from {source.events[0].seq}.")
    state = source.state_at(seq, before=before)
    return state, {block: len(offsets) for block, offsets in written_slots(source, seq, before).items()}


def computed_in_blocks(state: State, block_size: int) -> dict[int, int]:
    """Block -> slots of tokens that count as computed. A plan counts them before they are written."""
    counts: dict[int, int] = {}
    for request_id, table in state.block_tables.items():
        computed = state.requests[request_id].num_computed_tokens if request_id in state.requests else 0
        for place, block_id in enumerate(table):
            counts[block_id] = max(counts.get(block_id, 0), min(block_size, max(0, computed - place * block_size)))
    return counts
