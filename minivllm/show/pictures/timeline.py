"""A picture of what happened where and when: lanes for caller, messages, engine core and worker.

Interface: timeline.
Must not know: what an event means beyond its boundary's place.
"""

from dataclasses import dataclass
from typing import Any

from minivllm.errors import InputError
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BAND, BODY, INK, MARGIN, PAPER, RULE, SMALL, SOFT, WIDTH, Names, Owners
from minivllm.trace.events import Event
from minivllm.trace.replay import Trace

LANES = {"caller": 3, "messages": 1, "engine core": 3, "worker": 2}  # name -> rows
ROW = 22  # px
LEFT = 104  # px
NARROWEST = 1.5  # px; a shorter slice becomes a tick, and of several in one place the first is drawn
MOST_SLICES = 700
GREY = "#D5DAE1"
# of one request each; all others belong to the whole batch and are grey
OF_ONE = {"B2", "B3", "B4", "B5", "B6", "B8", "B9", "B11", "B12", "B25"}


@dataclass(frozen=True, slots=True)
class Slice:
    """One event as it is drawn."""

    seq: int
    kind: str
    lane: str
    depth: int
    t0: float  # ms, or stamps of a logical clock
    t1: float


def lane_of(event: Event) -> str:
    """Where an event happened."""
    number = int((event.boundary or "B0")[1:])
    if number in (7, 22):
        return "messages"
    if 13 <= number <= 20:
        return "worker"
    return "engine core" if 8 <= number <= 12 or number in (0, 21) or event.kind == "finish_requests" else "caller"


def slices(trace: Trace, t0: int, t1: int, unit: int) -> list[Slice]:
    """The events that touch a stretch of time, at the depth that they have in their lane. unit: ns a drawn unit."""
    open_until: dict[str, list[int]] = {lane: [] for lane in LANES}
    found = []
    for event in trace:
        lane = lane_of(event)
        ends = open_until[lane]
        while ends and ends[-1] <= event.t0:
            ends.pop()
        depth = 0 if lane == "messages" else len(ends)  # messages overlap, and do not nest
        ends.append(event.t1)
        if event.t1 >= t0 and event.t0 <= t1 and depth < LANES[lane]:
            found.append(Slice(event.seq, event.kind, lane, depth, event.t0 / unit, event.t1 / unit))
    return found


def timeline(
    trace: Trace,
    *,
    alt: str,
    steps: tuple[int, int] | None = None,
    seqs: tuple[int, int] | None = None,
    owners: Names = None,
    labels: dict[str, str] | None = None,
    caption: str | None = None,
) -> Picture:
    """Lanes against time, from the first to the last of `steps`, or of the events `seqs`; by default the whole trace.

    A trace with a wall clock is drawn in ms; one with a logical clock in stamps, which count entries and exits. A slice
    too short to be seen is a tick, and some of those are left out. labels: kind -> shorter text.

    model: {"slices": [Slice], "messages": [(seq of its send, seq of its receive)]}.
    """
    t0, t1 = _stretch(trace, steps, seqs)
    logical = trace.header.clock == "logical"
    unit = 1_000 if logical else 1_000_000
    who = Owners(trace, owners)
    scale = (WIDTH - LEFT - MARGIN) / max((t1 - t0) / unit, 1e-9)
    found = _visible(slices(trace, t0, t1, unit), scale)
    if len(found) > MOST_SLICES:
        raise InputError(f"{len(found)} slices are more than the {MOST_SLICES} that a picture holds: give `steps`.")
    canvas = Canvas(sum(LANES.values()) * ROW + 8 * len(LANES) + 34, alt, caption)
    tops = _lanes(canvas, any(event.boundary in ("B7", "B22") for event in trace))

    def x(at: float) -> float:
        return min(max(LEFT + (at - t0 / unit) * scale, LEFT), WIDTH - MARGIN)

    for one in found:
        _draw_slice(canvas, one, trace[one.seq], who, x(one.t0), x(one.t1), tops[one.lane], labels or {})
    pairs = _messages(trace, {one.seq for one in found})
    canvas.layer()
    for sent, received in pairs:
        down = trace[sent].kind == "core_client.send"
        y = tops["messages"] + (0 if down else ROW)
        start, end = x(trace[sent].t0 / unit), x(trace[received].t1 / unit)
        canvas.arrow(start, y - 8 if down else y + 10, end, y + ROW + 8 if down else y - ROW - 8, INK, 1.2)
    _axis(canvas, (t1 - t0) / unit, scale, "stamps of the logical clock" if logical else "ms")
    return canvas.finish({"slices": found, "messages": pairs})


def _visible(found: list[Slice], scale: float) -> list[Slice]:
    """Without what would lie on top of another tick; messages are always shown."""
    taken: set[tuple[str, int, int]] = set()
    kept = []
    for one in found:
        place = one.lane, one.depth, int(one.t0 * scale / NARROWEST)
        if (one.t1 - one.t0) * scale >= NARROWEST or place not in taken or one.lane == "messages":
            kept.append(one)
        taken.add(place)
    return kept


def _stretch(trace: Trace, steps: tuple[int, int] | None, seqs: tuple[int, int] | None) -> tuple[int, int]:
    if seqs is not None:
        missing = [seq for seq in seqs if seq not in trace]
        if missing:
            raise InputError(f"The trace has no event {missing[0]}. It has {len(trace)}.")
        chosen: list[Any] = [event for event in trace if seqs[0] <= event.seq <= seqs[1]]
    elif steps is not None:
        chosen = [event for event in trace if event.step is not None and steps[0] <= event.step <= steps[1]]
    else:
        chosen = list(trace)
    if not chosen:
        raise InputError(f"The trace has no event in steps {steps}. Its steps: 1 to {max(trace.steps, default=0)}.")
    return min(event.t0 for event in chosen), max(event.t1 for event in chosen)


def _lanes(canvas: Canvas, messages: bool) -> dict[str, float]:
    tops, y = {}, float(canvas.top)
    for place, (lane, rows) in enumerate(LANES.items()):
        tops[lane] = y
        canvas.rect(LEFT, y - 3, WIDTH - LEFT - MARGIN, rows * ROW + 4, BAND if place % 2 == 0 else PAPER)
        canvas.text(LEFT - 10, y + rows * ROW / 2 - 1, lane, BODY, "right", bold=True)
        if lane == "messages" and not messages:
            canvas.text(LEFT + 8, y + ROW / 2 - 1, "none: one process", SMALL, colour=SOFT)
        y += rows * ROW + 8
    canvas.layer()
    return tops


def _draw_slice(
    canvas: Canvas, one: Slice, event: Event, who: Owners, x0: float, x1: float, top: float, labels: dict[str, str]
) -> None:
    alone = len(event.reqs) == 1 and event.boundary in OF_ONE
    fill = who[event.reqs[0]].colour if alone else GREY
    y = top + one.depth * ROW
    canvas.rect(x0, y, max(x1 - x0, NARROWEST), ROW - 3, fill, PAPER if x1 - x0 > 3 else "none", 0.8)
    for text in (labels.get(one.kind, one.kind), one.kind.rpartition(".")[2]):
        if text_width(text) <= x1 - x0 - 5:
            colour = who[event.reqs[0]].text_colour if alone else INK
            canvas.text((x0 + x1) / 2, y + (ROW - 3) / 2, text, SMALL, "center", colour)
            return


def _messages(trace: Trace, shown: set[int]) -> list[tuple[int, int]]:
    """(sent, received) of the messages whose both ends are shown."""
    sent = {(e.kind, e.msg): e.seq for e in trace if e.kind in ("core_client.send", "core.send")}
    pairs = []
    for event in trace:
        sender = {"core.receive": "core_client.send", "core_client.receive": "core.send"}.get(event.kind)
        start = sent.get((sender, event.msg)) if sender else None
        if start in shown and event.seq in shown:
            pairs.append((start, event.seq))
    return pairs


def _axis(canvas: Canvas, length: float, scale: float, unit: str) -> None:
    y = canvas.height - 26
    every = next(s for n in range(-4, 9) for s in (10**n, 2 * 10**n, 5 * 10**n) if s * scale >= 60)
    canvas.line([(LEFT, y), (WIDTH - MARGIN, y)], RULE)
    count = int(length / every)
    for place in range(count + 1):
        x = LEFT + place * every * scale
        canvas.line([(x, y), (x, y + 4)], SOFT)
        if x < WIDTH - MARGIN - 16:
            canvas.text(x, y + 13, f"{place * every:g}", SMALL, "center", SOFT)
    canvas.text(LEFT - 10, y + 13, unit if len(unit) < 5 else "stamps", SMALL, "right", SOFT)
