"""Facts for notebook 02: what crosses between the processes, and who waits for whom.

Interface: nap, Nap; hand_over, threads, add_bytes, replies, reply_fields, around_step, inside, plans.
Must not know: how anything is shown. Times of a wall clock are compared, never told.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from minivllm.engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from minivllm.engine.serial import MsgpackEncoder
from minivllm.sampling_params import RequestOutputKind, SamplingParams
from minivllm.trace import Trace
from minivllm.trace.events import Event

WORK = {
    ("caller", "main"): "your code: renders, registers, sends, and reads what has come",
    ("caller", "output"): "`EngineCoreOutputQueueThread`: decodes messages and puts them into a queue",
    ("core", "main"): "the busy loop: takes in requests, runs one step after the other",
    ("core", "input"): "decodes messages, and prepares what they bring for the main thread",
    ("core", "output"): "encodes what a step brought, and sends it",
}
SMALL, MIDDLE = 128, 256  # below the first an id is one byte in msgpack, from the second on three


class Nap(NamedTuple):
    """The caller slept; then it read all its messages. Times are nanoseconds."""

    calls: int  # of get_output
    reading: int  # from the first call's begin until the last one's result was read
    computing: int  # what the core computed, in all steps
    one_step: int  # the median of a decode step
    waiting: list[int]  # messages that lay in the queue when each call began

    @property
    def ratio(self) -> float:
        """How many times the computing took as long as the reading."""
        return self.computing / self.reading


def nap(trace: Trace) -> Nap:
    """What a trace says about a caller that slept."""
    calls = trace.filter(kind="get_output")
    steps = [event for event in trace.filter(kind="step") if event.executed]
    arrived = sorted(event.t1 for event in trace.filter(kind="core_client.receive"))
    return Nap(
        calls=len(calls),
        reading=trace.filter(kind="process_outputs")[-1].t1 - calls[0].t0,
        computing=sum(step.t1 - step.t0 for step in steps),
        one_step=int(median(step.t1 - step.t0 for step in steps[1:])),
        waiting=[sum(t <= call.t0 for t in arrived) - place for place, call in enumerate(calls)],
    )


def hand_over(trace: Trace) -> list[dict[str, Any]]:
    """From the send of the first message to the first plan: who does what."""
    kinds = ("core_client.send", "core.receive", "preprocess_add_request", "scheduler.add_request", "schedule")
    events = [trace.filter(kind=kind)[0] for kind in kinds]
    return [
        {"event": e.seq, "stop": e.boundary, "what": f"`{e.kind}`", "thread": f"{e.proc}, {e.thread}"} for e in events
    ]


def threads(trace: Trace) -> list[tuple[str, str, str]]:
    """Process, thread and work, of all threads that the trace has events of."""
    found = dict.fromkeys((event.proc, event.thread) for event in trace)
    return [(*place, WORK[place]) for place in WORK if place in found]


def hashing_thread(trace: Trace) -> str:
    """The thread that makes a Request, hashes included, of the first message."""
    event = trace.filter(kind="preprocess_add_request")[0]
    return f"the {event.proc}'s {event.thread} thread"


# ---------------------------------------------------------------------- the wire


def add_request(trace: Trace) -> EngineCoreRequest:
    """The first request as it was sent, made again of what its events say."""
    rendered, made, named = (
        trace.filter(kind=kind)[0] for kind in ("render_chat", "process_inputs", "assign_request_id")
    )
    asked = {name: made.sampling_params[name] for name in ("temperature", "max_tokens")}
    params = SamplingParams(**asked)
    params.output_kind = RequestOutputKind(made.sampling_params["output_kind"])
    params.set_stop_tokens(made.eos_token_id, made.all_stop_token_ids)
    return EngineCoreRequest(
        request_id=named.request_id,
        prompt_token_ids=rendered.prompt_token_ids,
        sampling_params=params,
        arrival_time=rendered.arrival_time,
        external_req_id=named.external_req_id,
    )


def add_bytes(trace: Trace) -> list[tuple[str, int, str]]:
    """What is in the ADD message: field, bytes, and what that is."""
    request = add_request(trace)
    fields = [
        ("`prompt_token_ids`", request.prompt_token_ids, f"{len(request.prompt_token_ids)} ids"),
        ("`sampling_params`", request.sampling_params, "every field, by name"),
        ("`request_id`", request.request_id, request.request_id),
        ("`arrival_time`", request.arrival_time, "wall clock, seconds"),
        ("others", [request.cache_salt, request.priority, request.external_req_id], "salt, priority, external id"),
    ]
    rows = [(name, len(msgspec.msgpack.encode(value)), what) for name, value, what in fields]
    message = len(MsgpackEncoder().encode(request)[0])
    name, _, what = rows[-1]
    rows[-1] = (name, message - sum(size for _, size, _ in rows[:-1]), f"{what}, and the list around them")
    return [("type, in a frame of its own", 1, "`0x00`: ADD"), *rows]


def replies(trace: Trace) -> list[tuple[int, int, list[int]]]:
    """Step, bytes and token ids of each message of the core."""
    ids = {
        event.step: event.updates[0].new_token_ids for event in trace.filter(kind="update_from_output") if event.updates
    }
    return [(event.step, event.num_bytes, ids[event.step]) for event in trace.filter(kind="core.send")]


def reply_fields(trace: Trace, step: int) -> str:
    """A message of the core as the list that it is on the wire; the time stamp is left out."""
    _, _, ids = next(reply for reply in replies(trace) if reply[0] == step)
    output = EngineCoreOutputs([EngineCoreOutput(trace.request_ids[0], ids)], timestamp=1.0)
    plain = msgspec.msgpack.decode(MsgpackEncoder().encode(output)[0])
    return str(plain).replace("1.0", "time stamp")


def id_bytes(token_id: int) -> int:
    """Bytes of one token id in msgpack."""
    return len(msgspec.msgpack.encode(token_id))


def odd_ones(trace: Trace) -> tuple[list[int], list[int]]:
    """Of the replies after the first: the usual size and the rarer one; then the ids of those that have the rarer."""
    later = replies(trace)[1:]
    sizes = sorted({size for _, size, _ in later}, key=lambda size: -sum(one == size for _, one, _ in later))
    return sizes, [token_id for _, size, ids in later if size == sizes[-1] for token_id in ids]


# ---------------------------------------------------------------------- who waits for whom


def around_step(trace: Trace, step: int) -> list[Event]:
    """Three events around a step's end, in the order of their beginnings: its message leaves, its message arrives, the
    next step is planned."""
    sent, received = (trace.filter(kind=kind, step=step)[0] for kind in ("core.send", "core_client.receive"))
    return sorted([sent, received, trace.filter(kind="schedule", step=step + 1)[0]], key=lambda event: event.t0)


def inside(trace: Trace, kind: str) -> list[str]:
    """The first event of this kind, and those that it happened in, the outermost first."""
    event, chain = trace.filter(kind=kind)[0], []
    while event is not None:
        chain.append(event.kind)
        event = trace.parent(event)
    return chain[::-1]


def plans(trace: Trace, steps: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """The tokens of each request in the first steps."""
    letters = dict(zip(trace.request_ids, names, strict=True))
    rows = []
    for plan in trace.filter(kind="schedule")[:steps]:
        given = {letters[request]: count for request, count in plan.num_scheduled_tokens.items()}
        rows.append({"step": plan.step, **{name: given.get(name, 0) for name in names}})
    return rows
