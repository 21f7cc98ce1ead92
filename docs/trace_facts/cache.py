"""Blocks, slots, batches and the prefix cache."""

from minivllm.trace import Trace
from trace_facts.lookup import first, internal_id, plans_with, quantity, run, schedule_of, updates_of


@quantity
def free_after(trace: Trace, step: str) -> int:
    return schedule_of(trace, step).num_free_blocks[1]


@quantity
def free_queue(trace: Trace) -> str:
    """The free queue at the end; the next block to be handed out first."""
    return run(trace.final_state().free_order)


def _batch_slots(trace: Trace, request: str) -> dict[int, int]:
    """Position -> slot, of a request; where it was computed twice, the last."""
    found: dict[int, int] = {}
    me, rows = internal_id(trace, request), []
    for event in trace.filter(kind=("update_states", "prepare_inputs")):
        if event.kind == "update_states":
            rows = event.req_ids
        elif me in rows:
            part = slice(*event.query_start_loc[rows.index(me) : rows.index(me) + 2])
            found |= dict(zip(event.positions[part], event.slot_mapping[part], strict=True))
    return found


def _last_blocks(trace: Trace, request: str) -> list[int]:
    """The block table of a request when it last let go of its blocks."""
    return [e for e in trace.filter(request=internal_id(trace, request), kind="free") if e.block_ids][-1].block_ids


@quantity
def table(trace: Trace, request: str) -> str:
    return run(_last_blocks(trace, request))


@quantity
def num_table(trace: Trace, request: str) -> int:
    return len(_last_blocks(trace, request))


@quantity
def new_blocks(trace: Trace, request: str, step: str) -> str:
    """Blocks that a request got in a step."""
    events = trace.filter(request=internal_id(trace, request), step=int(step), kind="allocate_slots")
    return run([block for event in events for block in event.new_block_ids])


@quantity
def grown(trace: Trace, request: str) -> list[int]:
    """The steps in which a request got blocks."""
    events = trace.filter(request=internal_id(trace, request), kind="allocate_slots")
    return [event.step for event in events if event.new_block_ids]


@quantity
def named(trace: Trace, request: str) -> list[int]:
    """The steps in which blocks of a request got their hash."""
    return [event.step for event in trace.filter(request=internal_id(trace, request), kind="cache_full_blocks")]


@quantity
def slot(trace: Trace, request: str, position: str) -> int:
    return _batch_slots(trace, request)[int(position)]


@quantity
def slots(trace: Trace, step: str) -> str:
    """First and last slot of a step's batch."""
    event = first(trace.filter(step=int(step), kind="prepare_inputs"), f"batch in step {step}")
    return f"{event.slot_mapping[0]} to {event.slot_mapping[-1]}"


@quantity
def batch(trace: Trace, step: str, name: str) -> str:
    """One of the batch's arrays."""
    event = first(trace.filter(step=int(step), kind="prepare_inputs"), f"batch in step {step}")
    return run(getattr(event, name))


@quantity
def rows(trace: Trace, step: str) -> int:
    return len(first(trace.filter(step=int(step), kind="update_states"), f"batch in step {step}").req_ids)


@quantity
def moved(trace: Trace) -> int:
    """Rows that were moved to close a hole."""
    return sum(len(event.moved) for event in trace.filter(kind="update_states"))


@quantity
def hit(trace: Trace, request: str) -> int:
    """Cached tokens that a request found when it was first admitted."""
    me = internal_id(trace, request)
    new = (n for plan in trace.filter(kind="schedule") for n in plan.scheduled_new_reqs)
    return first((n for n in new if n.req_id == me), f"admission of {request}").num_computed_tokens


@quantity
def hits(trace: Trace) -> list[int]:
    return [n.num_computed_tokens for plan in trace.filter(kind="schedule") for n in plan.scheduled_new_reqs]


@quantity
def hit_blocks(trace: Trace, request: str) -> str:
    """Blocks of others that a request took when it was first admitted."""
    events = trace.filter(request=internal_id(trace, request), kind="allocate_slots")
    return run(first(events, "allocation").hit_block_ids)


@quantity
def looked_up(trace: Trace, request: str) -> int:
    """Blocks that may be hit."""
    return first(trace.filter(request=internal_id(trace, request), kind="get_computed_blocks"), "look-up").num_looked_up


@quantity
def twice(trace: Trace) -> str:
    """Blocks with the same hash at the end, the first that there are."""
    return run(first((b for b in trace.final_state().cached_blocks.values() if len(b) > 1), "hash of two blocks"))


@quantity
def shared(trace: Trace, step: str) -> str:
    """Blocks that more than one request holds when a step is planned."""
    return run([b for b, count in trace.state_at(schedule_of(trace, step).seq).ref_cnts.items() if count > 1])


@quantity
def evicted(trace: Trace) -> int:
    """Blocks that lost a hash when they were handed out."""
    return sum(len(event.evicted_block_ids) for event in trace.filter(kind="get_new_blocks"))


@quantity
def fills(trace: Trace, request: str, number: str) -> str:
    """The last place of the n-th block of a request, from 1, and the step that computes it."""
    return _place(trace, request, int(number) * trace.header.config["block_size"] - 1)


@quantity
def opens(trace: Trace, request: str, number: str) -> str:
    """The first place of the n-th block of a request, and the step that computes it."""
    return _place(trace, request, (int(number) - 1) * trace.header.config["block_size"])


def _place(trace: Trace, request: str, position: int) -> str:
    me = internal_id(trace, request)
    step = next(p.step for p in plans_with(trace, request) if p.num_computed_tokens[me][1] > position)
    return f"position {position}, slot {_batch_slots(trace, request)[position]}, in step {step}"


@quantity
def unused(trace: Trace, request: str) -> int:
    """Places in its blocks that a request never filled."""
    places = len(_last_blocks(trace, request)) * trace.header.config["block_size"]
    return places - updates_of(trace, request)[-1].num_computed_tokens


@quantity
def slots_written(traces: list[Trace]) -> int:
    """Slots written to in all traces, over all steps."""
    return sum(len(event.slot_mapping) for trace in traces for event in trace.filter(kind="prepare_inputs"))


@quantity
def slots_in_block_0(traces: list[Trace]) -> int:
    return sum(
        slot < trace.header.config["block_size"]
        for trace in traces
        for event in trace.filter(kind="prepare_inputs")
        for slot in event.slot_mapping
    )


@quantity
def padded_slots(traces: list[Trace]) -> int:
    return sum(event.slot_mapping.count(-1) for trace in traces for event in trace.filter(kind="prepare_inputs"))


@quantity
def with_kv(trace: Trace, request: str) -> int:
    """Tokens of a request that went through the model."""
    return updates_of(trace, request)[-1].num_computed_tokens


@quantity
def with_tokens(trace: Trace, request: str) -> int:
    return updates_of(trace, request)[-1].num_tokens[1]
