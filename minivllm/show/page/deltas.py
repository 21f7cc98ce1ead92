"""The engine's state for the page: what every effect changed in it, so that the page only has to put changes together.

Owns: the form of a change; who held a block last, which the page alone shows.
Interface: state_data, plain, change.
Must not know: how an event changes the state: that is minivllm.trace.state's.

A change, by what it changes:
    a record (its fields are known)     {field: change, …}
    a map (keys come and go, in order)  [[keys that go], key, change, key, change, …]; new keys come last
    a list                              [place, how many go, item, …], or {place: change, …}
    a text                              [place, how many characters go, text]
    anything else, or what is new       the new value
"""

from typing import Any

from minivllm.trace.replay import Trace
from minivllm.trace.state import RequestState, Row, State


class Record(dict):
    """Fields by name; any other dict is a map."""


def plain(state: State) -> Record:
    """What the page shows of a state."""
    return Record(
        step=state.step,
        waiting=list(state.waiting),
        running=list(state.running),
        free=dict.fromkeys(state.free_blocks, 0),
        refs=dict(state.ref_cnts),
        hashes=dict(state.block_hashes),
        tables={request_id: list(blocks) for request_id, blocks in state.block_tables.items()},
        cached=dict(state.num_cached_blocks),
        rows=[_row(row) for row in state.rows],
        requests={request_id: _request(request) for request_id, request in state.requests.items()},
    )


def _row(row: Row) -> Record:
    return Record(req_id=row.req_id, num_computed_tokens=row.num_computed_tokens, block_ids=list(row.block_ids))


def _request(request: RequestState) -> Record:
    return Record(
        status=request.status,
        num_prompt_tokens=request.num_prompt_tokens,
        num_tokens=request.num_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_preemptions=request.num_preemptions,
        priority=request.priority,
        output=list(request.output_token_ids),
        text=request.output_text,
        open=request.is_open,
    )


def state_data(trace: Trace) -> dict[str, Any]:
    """`changes`: the first makes the state before all effects out of an empty one, the others are one effect each; None
    where an effect changed nothing of this. `moments`: of each event, how many effects it has behind it at its entry
    and at its exit."""
    last: dict[int, list[Any]] = {}  # block -> [request, place in its table] that held it last
    old = Record(plain(State()), last={})
    new = Record(plain(State.new(trace.header.num_gpu_blocks)), last={})
    changes = [change(old, new)]
    for _, state in trace.states():
        old, new = new, plain(state)
        if old["tables"] != new["tables"]:
            for request_id, blocks in (old["tables"] | new["tables"]).items():
                if old["tables"].get(request_id) != new["tables"].get(request_id):
                    last = last | {block_id: [request_id, place] for place, block_id in enumerate(blocks)}
        new["last"] = last
        changes.append(change(old, new))
    return {
        "changes": changes,
        "moments": [[trace.effects_until(event.seq, before) for event in trace] for before in (True, False)],
    }


def change(old: Any, new: Any) -> Any:
    """What makes `new` out of `old`; None if they are equal. Values are never None."""
    if isinstance(new, Record) and isinstance(old, Record):
        changed = {name: change(old[name], value) for name, value in new.items()}
        return {name: one for name, one in changed.items() if one is not None} or None
    if isinstance(new, dict) and isinstance(old, dict):
        return _map_change(old, new)
    if old == new:
        return None
    if isinstance(new, list) and isinstance(old, list):
        if len(old) == len(new) and all(isinstance(item, Record) for item in new):
            return {place: change(a, b) for place, (a, b) in enumerate(zip(old, new, strict=True)) if a != b}
        return _splice(old, new)
    if isinstance(new, str) and isinstance(old, str) and new[: len(old)] == old:
        return [len(old), 0, new[len(old) :]]
    return new


def _map_change(old: dict[Any, Any], new: dict[Any, Any]) -> list[Any] | None:
    gone = [key for key in old if key not in new]
    if list(new)[: len(old) - len(gone)] != [key for key in old if key in new]:
        gone = list(old)  # another order: all anew
    stays = old.keys() - gone
    found: list[Any] = [gone]
    for key, value in new.items():
        if key not in stays:
            found += [key, value]
        elif old[key] != value:
            found += [key, change(old[key], value)]
    return found if gone or len(found) > 1 else None


def _splice(old: list[Any], new: list[Any]) -> list[Any]:
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = 0  # equal items at the end
    while end < min(len(old), len(new)) - same and old[-1 - end] == new[-1 - end]:
        end += 1
    return [same, len(old) - same - end, *new[same : len(new) - end]]
