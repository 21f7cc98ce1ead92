"""What must hold in a trace beyond the types of its lines, so that those who read it need not ask again.

Interface: check_events, check_header, one_line_errors.
Must not know: files.

A file may be cut, edited or made up. What is wrong with one event is found here, by its number. What two events say
against each other shows where the two are put together: `one_line_errors` stands around that.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.trace.events import Event
from minivllm.trace.schema import Header

LARGEST = 2**53  # what JavaScript, JSON's other readers and a float can count; in ns it is 104 days
MAX_DEPTH = 100  # events within events; the engine's own are 10
MAX_BLOCKS = 2**20  # of a pool that is replayed block by block
FINISH_REASONS = (None, "stop", "length", "abort", "error")
# fields without which a call that went well can't be replayed; `reqs`: at least one
REQUIRED: dict[str, tuple[str, ...]] = {
    "output_processor.add_request": ("reqs",),
    "detokenize": ("reqs", "num_chars"),
    "core_client.send": ("message_type",),
    "core.receive": ("message_type",),
    "core.send": ("message_type",),
    "core_client.receive": ("message_type",),
    "preprocess_add_request": ("reqs", "num_prompt_tokens"),
    "scheduler.add_request": ("reqs", "num_prompt_tokens", "num_tokens", "priority", "queue_position", "num_waiting"),
    "schedule": ("token_budget", "total_num_scheduled_tokens", "num_free_blocks", "num_waiting", "num_running"),
    "finish_requests": ("status",),
    "get_computed_blocks": ("reqs", "num_hit_tokens", "num_looked_up"),
    "allocate_slots": ("reqs", "refused", "num_blocks", "num_free_blocks"),
    "cache_blocks": ("reqs", "num_cached_blocks"),
    "free": ("reqs", "num_blocks", "num_free_blocks"),
    "get_new_blocks": ("num_free_blocks",),
    "reset_prefix_cache": ("done",),
}


class TraceError(InputError):
    """A file that is no trace, or one that can't be right. The message names the line or the events."""


def check_header(header: Header) -> None:
    """Raise TraceError for numbers that no run has."""
    blocks = header.num_gpu_blocks
    if blocks is not None and not 0 <= blocks <= MAX_BLOCKS:
        raise TraceError(f"The trace's num_gpu_blocks={blocks} can't be replayed: from 0 to {MAX_BLOCKS} can.")
    for process in header.processes:
        if not (abs(process.offset_ns) < LARGEST and 0 <= process.error_bound_ns < LARGEST):
            raise TraceError(f"The header's clock of process {process.name!r} can't be right. The file is damaged.")


def check_events(events: Sequence[Event]) -> None:
    """Raise TraceError, which names the event, if numbers, times, parents or required fields can't be right."""
    depth: dict[int, int] = {}
    latest = -1
    for event in events:
        seq, parent = event.seq, event.parent
        if not latest < seq < LARGEST:
            raise _wrong(event, f"follows event {latest}, and numbers must rise, up to {LARGEST}")
        if parent is not None and parent not in depth:
            raise _wrong(event, f"is inside event {parent}, which is not before it")
        depth[seq] = 0 if parent is None else depth[parent] + 1
        if depth[seq] > MAX_DEPTH:
            raise _wrong(event, f"is inside more than {MAX_DEPTH} others")
        if not 0 <= event.t0 <= event.t1 < LARGEST:
            raise _wrong(event, f"goes from {event.t0} to {event.t1} ns")
        if event.step is not None and not 0 <= event.step < LARGEST:
            raise _wrong(event, f"is of step {event.step}")
        if event.error is None and event.view_error is None:
            _check_fields(event)
        latest = seq


def _check_fields(event: Any) -> None:
    for name in REQUIRED.get(event.kind, ()):
        value = getattr(event, name)
        if value is None or value == []:
            raise _wrong(event, f"lacks {name}")
    if event.kind == "update_from_output":
        for update in event.updates:
            if update.finish_reason not in FINISH_REASONS:
                raise _wrong(event, f"has finish_reason {update.finish_reason!r}; known: stop, length, abort, error")


def _wrong(event: Event, what: str) -> TraceError:
    return TraceError(f"Event {event.seq} ({event.kind}) {what}. The file is damaged.")


def ends_early(events: Iterable[Any]) -> bool:
    """Whether a call has returned that had requests which never ended: the end of the trace is missing."""
    answered: set[str] = set()
    closed: set[str] = set()
    for event in events:
        if event.kind in ("generate", "chat", "run_engine") and event.error is None:
            answered.update(event.reqs)
        elif event.kind == "process_outputs":
            closed.update(event.finished)
        elif event.kind == "abort_requests":
            closed.update(event.reqs)
    return not answered <= closed


@contextmanager
def one_line_errors(path: Path | str) -> Iterator[None]:
    """Around whatever puts the events of a file together. Raises TraceError for what they contradict each other in."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise TraceError(
            f"The events of {path} do not fit together ({type(error).__name__}: {error}). The file is damaged, or "
            "this is a fault of minivllm: record it again to find out."
        ) from error
