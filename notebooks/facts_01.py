"""Facts for notebook 01: what the caller does with a prompt before the engine core hears of it, and its loop.

Interface: segments, completed, who_knows, calls, endings, refusal.
Must not know: how anything is shown.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from minivllm.errors import InputError
from minivllm.sampling_params import RequestOutputKind, SamplingParams
from minivllm.trace import Trace

START, END = "<|im_start|>", "<|im_end|>"


class Segment(NamedTuple):
    """A run of prompt tokens that has one author."""

    name: str
    first: int
    last: int
    yours: bool

    @property
    def size(self) -> int:
        return self.last - self.first + 1


def segments(texts: Sequence[str]) -> list[Segment]:
    """A chat prompt of one message, cut where the template's marks are: texts are its token pieces.

    The system part ends with the newline behind its end mark.
    """
    opened = [place for place, text in enumerate(texts) if text == START]
    closed = [place for place, text in enumerate(texts) if text == END]
    _, user, assistant = opened
    return [
        Segment("the template's system message", 0, user - 1, False),
        Segment("the header of your turn", user, user + 2, False),
        Segment("what you typed", user + 3, closed[1] - 1, True),
        Segment("the end of your turn", closed[1], assistant - 1, False),
        Segment("the header of the answer", assistant, len(texts) - 1, False),
    ]


def completed(trace: Trace) -> list[tuple[str, str, Any, Any]]:
    """Stop, what, before and after: what becomes of id and parameters between B3 and B4."""
    asked = trace.filter(kind="chat")[0].sampling_params[0]
    added, made = trace.filter(kind="llm_engine.add_request")[0], trace.filter(kind="process_inputs")[0]
    kind = RequestOutputKind(asked["output_kind"]).name
    return [
        ("B3", "`output_kind`, on your own object", RequestOutputKind(SamplingParams().output_kind).name, kind),
        ("B4", "end token, on the copy", None, str(made.eos_token_id)),
        ("B4", "`max_tokens`, on the copy", asked["max_tokens"], made.max_tokens),
        ("B4", "id", f"`{added.external_req_id}`", f"`{added.request_id}`"),
    ]


def who_knows(trace: Trace, request: str) -> list[dict[str, Any]]:
    """The events of one request up to the core's queue, with who knows the request at each one's exit."""
    rows = []
    in_caller = ("process_inputs", "assign_request_id", "output_processor.add_request", "core_client.add_request")
    kinds = (*in_caller, "core_client.send", "preprocess_add_request", "scheduler.add_request")
    for event in trace.filter(kind=kinds, request=request):
        state = trace.state_at(event.seq)
        known = next((one for one in state.requests.values() if one.request_id in event.reqs), None)
        rows.append(
            {
                "event": event.seq,
                "stop": event.boundary,
                "what": f"`{event.kind}`",
                "where": f"{event.proc}, {event.thread}",
                "in the caller's table": known is not None and known.is_open,
                "in the core's queue": bool(state.waiting),
            }
        )
    return rows


def calls(trace: Trace) -> tuple[int, int]:
    """How often the caller called `step()`, and how often that brought something."""
    events = trace.filter(kind="get_output")
    return len(events), sum(1 for event in events if event.num_outputs)


def loop(trace: Trace) -> list[dict[str, Any]]:
    """Each pass of the caller's loop: what `step()` brought, and how many requests are still open."""
    rows = []
    for number, event in enumerate(trace.filter(kind="get_output"), start=1):
        state = trace.state_at(event.seq)
        done = trace.next(event.seq, kind="process_outputs")
        is_open = done.num_open[1] if event.num_outputs and done else sum(r.is_open for r in state.requests.values())
        rows.append({"call": number, "results": event.num_outputs, "open requests after it": is_open})
    return rows


def endings(trace: Trace) -> list[tuple[str, int]]:
    """External id and the step in which the request ended, in the order in which they ended."""
    found = []
    for event in trace.filter(kind="update_from_output"):
        found += [(trace.external_ids[u.req_id], event.step) for u in event.updates if u.finish_reason]
    return found


def untold(trace: Trace) -> list[str]:
    """Requests that have ended and of which the worker has not heard, when the caller's table becomes empty."""
    last = trace.filter(kind="process_outputs")[-1]
    return trace.state_at(last.seq).finished_req_ids


def refusal(**params: Any) -> str:
    """What SamplingParams says to these values. Raises ValueError if they are taken."""
    try:
        SamplingParams(**params)
    except InputError as error:
        return str(error)
    raise ValueError(f"{params} are taken")
