"""The life of one request as a text table.

Interface: format_life; steps_of, what each step did to a request.
Must not know: the engine.

Everything up to the first step, and that step, boundary by boundary; the steps after it a line each, runs of plain
decode steps folded; then how it ended.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from minivllm.show.describe import change, describe, plural, quoted, ranges, why_not
from minivllm.trace.events import Event
from minivllm.trace.replay import Trace

FOLD_ABOVE = 14  # step lines; longer lives show their start, their end, and what is out of the ordinary
KEPT_AT_START, KEPT_AT_END = 5, 3
EVENT_WIDTH = 28
# inside a parent that says it all
LEFT_OUT = (
    "get_cached_block",
    "cache_full_blocks",
    "get_new_blocks",
    "touch",
    "free_blocks",
    "worker.execute_model",
    "kernel.program",
)
ENDING = ("abort_requests", "finish_requests", "run_engine")  # shown last, whichever step they fall into
MAX_BORDERS = 8  # lines of a long life that are shown only because a block was added
SLOTS_WIDTH = 11


@dataclass(slots=True)
class StepLine:
    """What one step did to one request."""

    step: int
    at: int  # ns
    took: int  # ns, of the whole step
    num_tokens: int = 0
    computed: tuple[int, int] | None = None
    positions: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    num_blocks: tuple[int, int] | None = None
    num_free_blocks: int | None = None
    token: str = ""
    text: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def grown(self) -> bool:
        """It got a block in this step."""
        return self.num_blocks is not None and self.num_blocks[0] != self.num_blocks[1]

    @property
    def plain(self) -> bool:
        """A decode step in which nothing else happened."""
        return self.num_tokens == 1 and not self.notes


def format_life(trace: Trace, request_id: str, width: int = 100) -> str:
    """The life of a request (external or internal id) in lines of at most `width` characters, 60 at least.

    Times are in ms from the first event of the trace. Raises TraceError for a request that the trace does not have.
    """
    width = max(width, 60)
    texts = [_one_life(trace, internal, width) for internal in trace.internal_ids(request_id)]
    return "\n\n".join(texts)


def _one_life(trace: Trace, request_id: str, width: int) -> str:
    events = trace.path(request_id)
    steps = steps_of(trace, request_id)
    first = next((line.step for line in steps if line.num_tokens), None)
    ending = _ending(trace, events, first)
    start = [event for event in events if event.step is None and event not in ending]
    lines = _title(trace, request_id, events, steps)
    lines += ["", _row("", "event", "at ms", "took", "what it did", width)]
    lines += _section(start, request_id, width)
    waited = [line for line in steps if first is None or line.step < first]
    if waited:
        lines += _step_lines(waited, width)
    if first is not None:
        lines += _section([e for e in events if e.step == first and e not in ending], request_id, width)
        rest = [line for line in steps if line.step > first]
        if rest:
            lines += _step_lines(rest, width)
    lines += _section(ending, request_id, width)
    return "\n".join(line.rstrip() if len(line) <= width else line[: width - 1] + "…" for line in lines)


# ---------------------------------------------------------------------- the parts


def _title(trace: Trace, request_id: str, events: list[Event], steps: list[StepLine]) -> list[str]:
    """Who it is, what it asked, what it got, what it ran on."""
    header = trace.header
    external = trace.external_ids[request_id]
    opened = next((event for event in events if event.kind == "scheduler.add_request"), None)
    rendered = next((event for event in events if event.kind.startswith("render_") and event.error is None), None)
    num_prompt = opened.num_prompt_tokens if opened else rendered.num_prompt_tokens if rendered else 0
    updates = [u for e in events if e.kind == "update_from_output" for u in e.updates if u.req_id == request_id]
    num_output = updates[-1].num_tokens[1] - num_prompt if updates else 0
    num_run = sum(1 for line in steps if line.num_tokens)
    lines = [
        f"Request {external} ({request_id}): {plural(num_prompt, 'prompt token')}, "
        f"{plural(num_output, 'output token')}, {plural(num_run, 'step')}, {_end_of(events, request_id)}"
    ]
    if rendered is not None and rendered.prompt is not None:
        asked = rendered.prompt
        if rendered.kind == "render_chat" and isinstance(rendered.messages, list):
            asked = rendered.messages[-1]["content"]
        lines.append(f"  asked   {quoted(asked, 84)}")
    text = trace.final_state().requests[request_id].output_text
    if text:
        lines.append(f"  got     {quoted(text, 84)}")
    model = os.path.basename(str(header.environment.get("model", "") or "").rstrip("/")) or "a model"
    config = header.config
    places = "two processes" if len(header.processes) > 1 else "one process"
    lines.append(
        f"  ran on  {model}, {config.get('dtype')} on {config.get('device')}, attention "
        f"{config.get('attention_backend')}, {places}, {header.clock} clock"
    )
    if header.num_gpu_blocks:
        lines.append(f"  cache   {header.num_gpu_blocks} blocks of {plural(config.get('block_size'), 'token')}")
    return lines


def _end_of(events: Iterable[Event], request_id: str) -> str:
    for event in events:
        if event.kind == "detokenize" and event.stop_string is not None:
            return f"ended by stop string {quoted(event.stop_string)}"
        if event.kind == "finish_requests" and request_id in event.finished:
            return "aborted"
        for update in getattr(event, "updates", ()):
            if update.req_id == request_id and update.finish_reason:
                return f"ended by {update.finish_reason}"
    return "not finished"


def _section(events: list[Event], request_id: str, width: int) -> list[str]:
    """Events line by line, with a heading wherever process or step changes."""
    lines: list[str] = []
    shown = sorted((event for event in events if event.kind not in LEFT_OUT and event.kind != "step"), key=_way)
    for (proc, thread, step), group in groupby(shown, key=lambda event: (event.proc, event.thread, event.step)):
        where = proc if thread == "main" else f"{proc}, {thread} thread"
        heading = where if step is None else f"{where} · step {step}"
        lines.append(f"── {heading} ".ljust(width, "─"))
        for kind, run in groupby(group, key=lambda event: event.kind):
            same = list(run)
            event = same[0]
            name = f"{kind} ×{len(same)}" if len(same) > 1 else kind
            took = sum(getattr(one, "total_ns", None) or one.duration for one in same)
            what = describe(event, request_id)
            lines.append(_row(event.boundary or "", name, _ms(event.t0), _ms(took), what, width))
    return lines


def _way(event: Event) -> tuple[int, int]:
    """A request's way through one step: core, message, caller. Their times overlap; the way does not."""
    place = {"core.send": 2, "core_client.receive": 3, "abort_requests": 5, "run_engine": 7}.get(event.kind, 1)
    if event.boundary in ("B23", "B24", "B25"):
        place = 4
    elif _is_abort(event):
        place = 5
    elif event.kind == "finish_requests":
        place = 6
    return place, event.seq


def _row(boundary: str, name: str, at: str, took: str, what: str, width: int) -> str:
    return f"{boundary:<3} {name:<{EVENT_WIDTH}} {at:>9} {took:>8}  {what}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.2f}"


def _ending(trace: Trace, events: list[Event], first: int | None) -> list[Event]:
    """How it ended: the last step from its update on, unless that is shown anyway; an abort; the caller's last word."""
    last = max((event.step for event in events if event.kind == "detokenize" and event.step), default=first)
    ending = []
    for event in events:
        of_last_step = event.step == last != first and event.boundary in ("B21", "B22", "B23", "B24", "B25")
        freed_at_end = event.kind == "free" and trace.parent(event).kind == "update_from_output" and event.step != first
        if of_last_step or freed_at_end or event.kind in ENDING or _is_abort(event):
            ending.append(event)
    return ending


def _is_abort(event: Event) -> bool:
    return getattr(event, "message_type", None) == "ABORT"


# ---------------------------------------------------------------------- steps


def steps_of(trace: Trace, request_id: str) -> list[StepLine]:
    """One line for each step in which a request (internal id) was planned, preempted, or had to wait."""
    lines = []
    for schedule in trace.filter(kind="schedule"):
        inside = trace.filter(step=schedule.step)
        whole = next((event for event in inside if event.kind == "step"), schedule)
        line = StepLine(schedule.step, schedule.t0, whole.duration)
        _plan(line, schedule, request_id)
        if not line.num_tokens and not line.notes:
            continue
        if line.num_tokens:
            _batch(line, inside, request_id)
        lines.append(line)
    return lines


def _plan(line: StepLine, schedule: Event, request_id: str) -> None:
    line.num_tokens = schedule.num_scheduled_tokens.get(request_id, 0)
    line.computed = schedule.num_computed_tokens.get(request_id)
    line.num_blocks = schedule.num_blocks.get(request_id)
    line.num_free_blocks = schedule.num_free_blocks[1] if schedule.num_free_blocks else None
    for new in schedule.scheduled_new_reqs:
        if new.req_id == request_id and new.num_computed_tokens:
            line.notes.append(f"hit {new.num_computed_tokens}")
    for cached in schedule.scheduled_cached_reqs:
        if cached.req_id == request_id and cached.resumed:
            line.notes.append(f"resumed, hit {cached.num_computed_tokens}")
    for preemption in schedule.preemptions:
        if preemption.req_id == request_id:
            line.notes.append(f"preempted, {plural(preemption.num_computed_tokens, 'token')} lost")
    reason = why_not(schedule, request_id)
    if reason and not line.notes:
        line.notes.append(f"waits: {reason}")


def _batch(line: StepLine, inside: list[Event], request_id: str) -> None:
    row = None
    for event in inside:
        if event.kind == "update_states" and request_id in event.req_ids:
            row = event.req_ids.index(request_id)
        elif event.kind == "prepare_inputs" and row is not None and len(event.query_start_loc) > row + 1:
            part = slice(*event.query_start_loc[row : row + 2])
            line.positions, line.slots = event.positions[part], event.slot_mapping[part]
        elif event.kind == "sample_tokens" and request_id in event.req_ids:
            sampled = event.sampled_token_ids[event.req_ids.index(request_id)]
            line.token = "·" if isinstance(sampled, int) else " ".join(map(str, sampled)) or "-"
        elif event.kind == "update_from_output" and request_id in event.aborted:
            line.notes.append("in vain: ended meanwhile")
        elif event.kind == "detokenize" and request_id in event.reqs and event.new_text is not None:
            line.text = quoted(event.new_text, 18) if event.new_text else ""


def _step_lines(lines: list[StepLine], width: int) -> list[str]:
    span = f"step {lines[0].step}" if len(lines) == 1 else f"steps {lines[0].step} to {lines[-1].step}"
    out = [f"── {span} ".ljust(width, "─")]
    out.append(
        f"{'step':>5} {'at ms':>9} {'took':>8} {'tokens':>6} {'computed':>9} {'positions':>9} {'slots':>11} "
        f"{'blocks':>6} {'free':>5} {'token':>6}  text"
    )
    for run in _folded(lines):
        if isinstance(run, StepLine):
            out.append(_step_line(run))
        else:
            what = "waits" if not run[0].num_tokens else "decode, one token each"
            out.append(f"{'…':>5} {plural(len(run), 'more step')}, {run[0].step} to {run[-1].step}: {what}")
    return out


def _step_line(line: StepLine) -> str:
    notes = ", ".join(line.notes)
    if not line.num_tokens:
        return f"{line.step:>5} {_ms(line.at):>9} {_ms(line.took):>8}  {notes}"
    return (
        f"{line.step:>5} {_ms(line.at):>9} {_ms(line.took):>8} {line.num_tokens:>6} {_tight(line.computed):>9} "
        f"{ranges(line.positions):>9} {_fit(line.slots):>{SLOTS_WIDTH}} {_tight(line.num_blocks):>6} "
        f"{line.num_free_blocks:>5} {line.token:>6}  {' '.join(filter(None, (notes, line.text)))}"
    )


def _tight(pair: tuple[int, int] | None) -> str:
    return change(pair).replace(" ", "")


def _fit(slots: list[int]) -> str:
    """The runs of slots, cut to the column's width."""
    text = ranges(slots)
    return text if len(text) <= SLOTS_WIDTH else f"{text.split()[0]} …"


def _folded(lines: list[StepLine]) -> list[StepLine | list[StepLine]]:
    """The lines, or in a long life the ordinary ones in its middle as runs."""
    if len(lines) <= FOLD_ABOVE:
        return list(lines)
    show_borders = sum(line.grown and line.plain for line in lines) <= MAX_BORDERS
    out: list[StepLine | list[StepLine]] = []
    before: StepLine | None = None
    for place, line in enumerate(lines):
        waits_on = before is not None and not line.num_tokens and not before.num_tokens and line.notes == before.notes
        inner = KEPT_AT_START <= place < len(lines) - KEPT_AT_END
        before = line
        ordinary = line.plain and not (line.grown and show_borders)
        if not (inner and (ordinary or waits_on)):
            out.append(line)
        elif out and isinstance(out[-1], list) and bool(out[-1][0].num_tokens) == bool(line.num_tokens):
            out[-1].append(line)
        else:
            out.append([line])
    return [run[0] if isinstance(run, list) and len(run) == 1 else run for run in out]
