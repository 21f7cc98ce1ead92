"""State: what the engine looked like at one moment, rebuilt from events alone.

Owns: the rule by which each kind of event changes the engine's state.
Interface: State.new, apply, copy; the fields.
Must not know: files, or in which order events took effect (replay.py).

A component's state changes at the exit of its own marked methods: a block leaves the free queue at the exit of
`get_new_blocks`, a request moves from waiting to running at the exit of `schedule`. Only a message is on its way from
the entry of its send on, which may return after the other side has received. A call that failed changes nothing.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from minivllm.trace.events import Event


@dataclass(slots=True)
class RequestState:
    """One request, as core and caller know it.

    vLLM: v1/request.py::Request
    """

    request_id: str  # internal
    external_req_id: str | None = None
    status: str = "NEW"  # on its way to the scheduler; then WAITING, RUNNING, PREEMPTED, FINISHED_…
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    num_computed_tokens: int = 0
    num_preemptions: int = 0
    priority: int = 0
    output_token_ids: tuple[int, ...] = ()  # empty in a redacted trace
    output_text: str = ""  # on the caller's side; empty in a redacted trace
    is_open: bool = False  # the caller still waits for it

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        return self.status.startswith("FINISHED")


@dataclass(slots=True)
class Row:
    """One row of the worker's batch.

    vLLM: v1/worker/gpu_input_batch.py::InputBatch
    """

    req_id: str
    num_computed_tokens: int  # before the step's tokens
    block_ids: tuple[int, ...]


@dataclass(slots=True)
class State:
    """The engine at one moment. Blocks are numbers; 0 is the null block."""

    step: int = 0  # the latest that was planned
    requests: dict[str, RequestState] = field(default_factory=dict)  # ended ones too
    waiting: list[str] = field(default_factory=list)  # the next to be admitted first
    running: list[str] = field(default_factory=list)  # in order of admission
    finished_req_ids: list[str] = field(default_factory=list)  # ended; the worker has not been told yet
    free_blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)  # the next to be handed out first
    ref_cnts: dict[int, int] = field(default_factory=dict)  # of blocks that are held
    block_hashes: dict[int, str] = field(default_factory=dict)  # of blocks that can be hit, in order of their hashing
    block_tables: dict[str, list[int]] = field(default_factory=dict)  # request -> its blocks in order
    num_cached_blocks: dict[str, int] = field(default_factory=dict)  # request -> leading blocks with a hash
    rows: list[Row] = field(default_factory=list)  # the worker's batch
    in_flight: dict[tuple[str, int], str] = field(default_factory=dict)  # (kind, msg) of its send -> message type

    @classmethod
    def new(cls, num_gpu_blocks: int | None) -> "State":
        """The engine before its first request. None: the pool's size is not known, and there are no free blocks."""
        return cls(free_blocks=OrderedDict.fromkeys(range(1, num_gpu_blocks or 0)))

    def copy(self) -> "State":
        """A state that can be changed without changing this one."""
        return State(
            step=self.step,
            requests={i: replace(request) for i, request in self.requests.items()},
            waiting=list(self.waiting),
            running=list(self.running),
            finished_req_ids=list(self.finished_req_ids),
            free_blocks=self.free_blocks.copy(),
            ref_cnts=dict(self.ref_cnts),
            block_hashes=dict(self.block_hashes),
            block_tables={i: list(blocks) for i, blocks in self.block_tables.items()},
            num_cached_blocks=dict(self.num_cached_blocks),
            rows=list(self.rows),
            in_flight=dict(self.in_flight),
        )

    @property
    def free_order(self) -> list[int]:
        """Free blocks, the next to be handed out first."""
        return list(self.free_blocks)

    @property
    def cached_blocks(self) -> dict[str, list[int]]:
        """Hash -> the blocks that have it; a look-up finds the first."""
        found: dict[str, list[int]] = {}
        for block_id, block_hash in self.block_hashes.items():
            found.setdefault(block_hash, []).append(block_id)
        return found

    def owners(self, block_id: int) -> list[str]:
        """The requests whose block table holds a block."""
        return [request_id for request_id, blocks in self.block_tables.items() if block_id in blocks]

    def request(self, request_id: str) -> RequestState:
        """The state of a request; a new one if it was not known yet."""
        return self.requests.setdefault(request_id, RequestState(request_id))

    def apply(self, event: Event) -> None:
        """Let `event` take effect, as it did at its exit."""
        rule = RULES.get(event.kind)
        if rule is not None and event.error is None and event.view_error is None:
            rule(self, event)


# ---------------------------------------------------------------------- the caller's side


def _opened(state: State, event: Any) -> None:
    request = state.request(event.reqs[0])
    request.external_req_id = event.external_req_id
    request.is_open = True


def _detokenized(state: State, event: Any) -> None:
    request = state.request(event.reqs[0])
    if isinstance(event.new_text, str):
        request.output_text = (request.output_text + event.new_text)[: event.num_chars[1]]


def _processed(state: State, event: Any) -> None:
    for request_id in event.finished:
        state.request(request_id).is_open = False


def _given_up(state: State, event: Any) -> None:
    for request_id in event.reqs:
        if request_id in state.requests:
            state.requests[request_id].is_open = False


def _sent(state: State, event: Any) -> None:
    state.in_flight[event.kind, event.msg] = event.message_type


def _received(state: State, event: Any) -> None:
    sender = {"core.receive": "core_client.send", "core_client.receive": "core.send"}[event.kind]
    state.in_flight.pop((sender, event.msg), None)


# ---------------------------------------------------------------------- the scheduler


def _preprocessed(state: State, event: Any) -> None:
    request = state.request(event.reqs[0])
    request.num_prompt_tokens = request.num_tokens = event.num_prompt_tokens


def _queued(state: State, event: Any) -> None:
    request = state.request(event.reqs[0])
    request.status = "WAITING"
    request.num_prompt_tokens, request.num_tokens = event.num_prompt_tokens, event.num_tokens
    request.priority = event.priority
    state.waiting.insert(event.queue_position, request.request_id)


def _scheduled(state: State, event: Any) -> None:
    state.step = event.step
    state.waiting, state.running = list(event.waiting), list(event.running)
    state.finished_req_ids = []
    for request_id, (_, after) in event.num_computed_tokens.items():
        state.request(request_id).num_computed_tokens = after
    for request_id in event.num_scheduled_tokens:
        state.request(request_id).status = "RUNNING"
    for preemption in event.preemptions:
        request = state.request(preemption.req_id)
        request.status = "PREEMPTED"
        request.num_preemptions += 1


def _updated(state: State, event: Any) -> None:
    for update in event.updates:
        request = state.request(update.req_id)
        request.status = update.status
        request.num_tokens = update.num_tokens[1]
        request.num_computed_tokens = update.num_computed_tokens
        if isinstance(update.new_token_ids, list):
            request.output_token_ids += tuple(update.new_token_ids)
        if request.is_finished:
            _leave(state.running, update.req_id)
            state.finished_req_ids.append(update.req_id)


def _leave(queue: list[str], request_id: str) -> None:
    if request_id in queue:
        queue.remove(request_id)


def _ended(state: State, event: Any) -> None:
    for request_id in event.finished:
        state.request(request_id).status = event.status
        _leave(state.waiting, request_id)
        _leave(state.running, request_id)
        state.finished_req_ids.append(request_id)


# ---------------------------------------------------------------------- the KV cache


def _allocated(state: State, event: Any) -> None:
    if not event.refused:
        state.block_tables.setdefault(event.reqs[0], []).extend(event.hit_block_ids + event.new_block_ids)


def _cached(state: State, event: Any) -> None:
    state.num_cached_blocks[event.reqs[0]] = event.num_cached_blocks[1]


def _freed(state: State, event: Any) -> None:
    state.block_tables.pop(event.reqs[0], None)
    state.num_cached_blocks.pop(event.reqs[0], None)


def _taken(state: State, event: Any) -> None:
    for block_id in event.block_ids:
        state.free_blocks.pop(block_id, None)
        state.ref_cnts[block_id] = 1
    _forget(state, event.evicted_block_ids)


def _touched(state: State, event: Any) -> None:
    for block_id, ref_cnt in zip(event.block_ids, event.ref_cnts, strict=True):
        state.free_blocks.pop(block_id, None)
        state.ref_cnts[block_id] = ref_cnt


def _released(state: State, event: Any) -> None:
    for block_id, ref_cnt in zip(event.block_ids, event.ref_cnts, strict=True):
        if ref_cnt > 0:
            state.ref_cnts[block_id] = ref_cnt
        else:
            state.ref_cnts.pop(block_id, None)
            state.free_blocks[block_id] = None


def _hashed(state: State, event: Any) -> None:
    for block_id, block_hash in zip(event.block_ids, event.block_hashes, strict=True):
        state.block_hashes[block_id] = block_hash


def _forgot(state: State, event: Any) -> None:
    _forget(state, event.block_ids)


def _forget(state: State, block_ids: list[int]) -> None:
    for block_id in block_ids:
        state.block_hashes.pop(block_id, None)


def _reset(state: State, event: Any) -> None:
    if event.done:
        state.block_hashes = {}


# ---------------------------------------------------------------------- the worker


def _rows(state: State, event: Any) -> None:
    tables = {row.req_id: row.block_ids for row in state.rows} | event.block_tables
    state.rows = [
        Row(req_id, num_computed, tuple(tables.get(req_id, ())))
        for req_id, num_computed in zip(event.req_ids, event.num_computed_tokens, strict=True)
    ]


RULES: dict[str, Callable[[State, Any], None]] = {
    "output_processor.add_request": _opened,
    "detokenize": _detokenized,
    "process_outputs": _processed,
    "abort_requests": _given_up,
    "core_client.send": _sent,
    "core.receive": _received,
    "core.send": _sent,
    "core_client.receive": _received,
    "preprocess_add_request": _preprocessed,
    "scheduler.add_request": _queued,
    "schedule": _scheduled,
    "update_from_output": _updated,
    "finish_requests": _ended,
    "allocate_slots": _allocated,
    "cache_blocks": _cached,
    "forget_uncomputed_blocks": _forgot,
    "free": _freed,
    "get_new_blocks": _taken,
    "touch": _touched,
    "free_blocks": _released,
    "cache_full_blocks": _hashed,
    "reset_prefix_cache": _reset,
    "update_states": _rows,
}
