"""Events of the core and its scheduler: B8, B9, B10, B21, and the core's half of B26."""
# ruff: noqa: RUF012  (a msgspec struct copies a mutable default)

from typing import Any

import msgspec

from minivllm.trace.events import Call, Change, Event, TokenIds

HASH_DIGITS = 16  # hexadecimal digits of a block hash that a trace keeps


def short_hash(block_hash: bytes) -> str:
    """The start of a block hash, long enough to tell blocks apart."""
    return block_hash[: HASH_DIGITS // 2].hex()


class PreprocessAddRequest(Event, tag="preprocess_add_request"):
    """The message becomes a Request, its full blocks hashed. Across processes in the core's input thread."""

    num_prompt_tokens: int | None = None
    block_hashes: list[str] = []  # one for each full block of the prompt

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request = call.out
        return {
            "reqs": [request.request_id],
            "num_prompt_tokens": request.num_prompt_tokens,
            "block_hashes": [short_hash(h) for h in request.block_hashes],
        }


class SchedulerAddRequest(Event, tag="scheduler.add_request"):
    """A new request joins the waiting queue."""

    num_prompt_tokens: int | None = None
    num_tokens: int | None = None
    max_tokens: int | None = None
    priority: int | None = None  # smaller goes first
    arrival_time: float | None = None  # the caller's wall clock, seconds
    queue_position: int | None = None  # waiting requests ahead of it
    num_waiting: Change | None = None
    num_running: int | None = None

    @staticmethod
    def before(call: Call) -> int:
        return len(call.owner.waiting)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        request, scheduler = call.arg(0, "request"), call.owner
        return {
            "reqs": [request.request_id],
            "num_prompt_tokens": request.num_prompt_tokens,
            "num_tokens": request.num_tokens,
            "max_tokens": request.max_tokens,
            "priority": request.priority,
            "arrival_time": request.arrival_time,
            "queue_position": list(scheduler.waiting).index(request),
            "num_waiting": (call.before, len(scheduler.waiting)),
            "num_running": len(scheduler.running),
        }


class FinishRequests(Event, tag="finish_requests"):
    """Requests are ended from outside. One that has ended already, or is not known, is ignored."""

    finished: list[str] = []  # those that ended
    status: str | None = None  # of those
    num_waiting: Change | None = None
    num_running: Change | None = None
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> tuple[int, int, int]:
        return _queues(call.owner)

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        return {
            "reqs": list(call.arg(0, "request_ids")),
            "finished": list(call.out),
            "status": call.arg(1, "status").name,
            **_changes(call),
        }


class Step(Event, tag="step"):
    """One step of the core. It has no number in the map: B10 to B21 are its children."""

    executed: bool | None = None  # whether the model ran
    num_outputs: int | None = None  # for the caller

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        outputs, executed = call.out
        if outputs is not None and hasattr(call.owner, "output_queue"):
            call.notes["step of", id(outputs)] = call.step  # until core.send has it, the queue keeps it alive
        return {"executed": executed, "num_outputs": 0 if outputs is None else len(outputs.outputs)}


class NewRequest(msgspec.Struct, omit_defaults=True):
    """A request that the worker sees for the first time.

    vLLM: v1/core/sched/output.py::NewRequestData
    """

    req_id: str
    num_prompt_tokens: int
    num_computed_tokens: int  # found in the prefix cache
    block_ids: list[int]  # all its blocks


class CachedRequest(msgspec.Struct, omit_defaults=True):
    """A request that the worker knows.

    vLLM: v1/core/sched/output.py::CachedRequestData
    """

    req_id: str
    num_computed_tokens: int  # before this step's tokens
    num_output_tokens: int
    new_block_ids: list[int] = []
    resumed: bool = False  # after a preemption: its block ids replace the old ones


class SkippedRequest(msgspec.Struct, omit_defaults=True):
    """A request that got no token, and the numbers behind it."""

    req_id: str
    reason: str  # token_budget, seats, blocks, not_fit_in_budget, preemption, head_of_line, preempted
    token_budget: int  # tokens left when it was its turn
    num_running: int  # when it was its turn
    blocks_needed: int | None = None
    blocks_free: int | None = None
    num_hit_tokens: int | None = None
    blocked_by: str | None = None  # the request that is in its way


class PreemptedRequest(msgspec.Struct, omit_defaults=True):
    """One victim."""

    req_id: str
    for_req_id: str  # who needed blocks; itself, if there was no other
    blocks_needed: int
    blocks_free: int  # before it gave its own back
    blocks_returned: int  # to the free queue; fewer than it held, if it shared some
    num_computed_tokens: int  # that it had
    was_scheduled: bool  # it had tokens in this step already


class Schedule(Event, tag="schedule"):
    """The plan of a step. What is planned counts as computed from here on."""

    num_scheduled_tokens: dict[str, int] = {}  # in scheduling order: running, then admitted
    total_num_scheduled_tokens: int | None = None
    token_budget: Change | None = None  # tokens; left over after
    scheduled_new_reqs: list[NewRequest] = []  # that the worker sees for the first time
    scheduled_cached_reqs: list[CachedRequest] = []  # running ones, then resumed ones
    finished_req_ids: list[str] = []  # ended since the last plan: the worker drops them now
    skipped: list[SkippedRequest] = []  # that got no token, and why
    preemptions: list[PreemptedRequest] = []  # in the order they happened
    num_common_prefix_blocks: int | None = None  # leading blocks that all requests with blocks share
    num_tokens: dict[str, int] = {}  # that exist, of each request with a change below
    num_computed_tokens: dict[str, Change] = {}  # scheduled and preempted requests; admitted ones come from 0
    num_blocks: dict[str, Change] = {}  # held, of the same requests
    num_free_blocks: Change | None = None
    num_waiting: Change | None = None
    num_running: Change | None = None
    waiting: list[str] = []  # after, the next to be admitted first
    running: list[str] = []  # after, in order of admission

    @staticmethod
    def before(call: Call) -> Any:
        held = call.owner.kv_cache_manager.req_to_blocks
        counters = {
            request.request_id: (request.num_computed_tokens, len(held.get(request.request_id, ())))
            for request in call.owner.running
        }
        return *_queues(call.owner), counters

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        plan, scheduler, counters = call.out, call.owner, call.before[3]
        held = scheduler.kv_cache_manager.req_to_blocks
        victims = [p.req_id for p in plan.preemptions]
        changed = {i: scheduler.requests[i] for i in [*plan.num_scheduled_tokens, *victims]}
        finished = sorted(plan.finished_req_ids)
        return {
            "reqs": [*changed, *finished],
            "num_scheduled_tokens": dict(plan.num_scheduled_tokens),
            "total_num_scheduled_tokens": plan.total_num_scheduled_tokens,
            "token_budget": (scheduler.max_num_scheduled_tokens, plan.token_budget_left),
            "scheduled_new_reqs": [
                NewRequest(n.req_id, len(n.prompt_token_ids), n.num_computed_tokens, list(n.block_ids))
                for n in plan.scheduled_new_reqs
            ],
            "scheduled_cached_reqs": _cached_requests(plan.scheduled_cached_reqs),
            "finished_req_ids": finished,
            "skipped": msgspec.convert(scheduler.find_skipped(plan), list[SkippedRequest], from_attributes=True),
            "preemptions": msgspec.convert(plan.preemptions, list[PreemptedRequest], from_attributes=True),
            "num_common_prefix_blocks": plan.num_common_prefix_blocks,
            "num_tokens": {i: request.num_tokens for i, request in changed.items()},
            "num_computed_tokens": {
                i: (counters.get(i, (0, 0))[0], request.num_computed_tokens) for i, request in changed.items()
            },
            "num_blocks": {i: (counters.get(i, (0, 0))[1], len(held.get(i, ()))) for i in changed},
            "waiting": [request.request_id for request in scheduler.waiting],
            "running": [request.request_id for request in scheduler.running],
            **_changes(call),
        }


def _cached_requests(cached: Any) -> list[CachedRequest]:
    return [
        CachedRequest(
            req_id=req_id,
            num_computed_tokens=cached.num_computed_tokens[place],
            num_output_tokens=cached.num_output_tokens[place],
            new_block_ids=list(cached.new_block_ids[place] or ()),
            resumed=req_id in cached.resumed_req_ids,
        )
        for place, req_id in enumerate(cached.req_ids)
    ]


class RequestUpdate(msgspec.Struct, omit_defaults=True):
    """What a step brought to one request.

    vLLM: v1/engine/__init__.py::EngineCoreOutput
    """

    req_id: str
    status: str  # after
    num_tokens: Change
    num_computed_tokens: int
    num_blocks: Change  # held
    new_token_ids: TokenIds = []  # empty while the prompt is not complete
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class UpdateFromOutput(Event, tag="update_from_output"):
    """The sampled tokens are appended; what ends gives its blocks back."""

    secret = ("updates",)
    updates: list[RequestUpdate] = []  # in the order of the plan
    aborted: list[str] = []  # planned, and ended from outside while the step ran: their tokens are dropped
    num_waiting: Change | None = None
    num_running: Change | None = None
    num_free_blocks: Change | None = None

    @staticmethod
    def before(call: Call) -> Any:
        scheduler, held = call.owner, call.owner.kv_cache_manager.req_to_blocks
        planned = {}
        for request_id in call.arg(0, "plan").num_scheduled_tokens:
            request = scheduler.requests.get(request_id)
            if request is not None:
                planned[request_id] = request, request.num_tokens, len(held.get(request_id, ()))
        return *_queues(scheduler), planned

    @staticmethod
    def view(call: Call) -> dict[str, Any]:
        planned, held = call.before[3], call.owner.kv_cache_manager.req_to_blocks
        return {
            "reqs": list(planned),
            "updates": [
                RequestUpdate(
                    req_id=request_id,
                    status=request.status.name,
                    num_tokens=(num_tokens, request.num_tokens),
                    num_computed_tokens=request.num_computed_tokens,
                    num_blocks=(num_blocks, len(held.get(request_id, ()))),
                    new_token_ids=request.all_token_ids[num_tokens:],
                    finish_reason=str(request.get_finished_reason()) if request.is_finished else None,
                    stop_reason=request.stop_reason,
                )
                for request_id, (request, num_tokens, num_blocks) in planned.items()
            ],
            "aborted": [i for i in call.arg(0, "plan").num_scheduled_tokens if i not in planned],
            **_changes(call),
        }


def _queues(scheduler: Any) -> tuple[int, int, int]:
    """(waiting, running, free blocks)."""
    num_free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return len(scheduler.waiting), len(scheduler.running), num_free


def _changes(call: Call) -> dict[str, Change]:
    waiting, running, free = _queues(call.owner)
    return {
        "num_waiting": (call.before[0], waiting),
        "num_running": (call.before[1], running),
        "num_free_blocks": (call.before[2], free),
    }
