"""A picture of the pool over time: which request held which block in which step.

Interface: blocks_over_time.
Must not know: how a moment is rebuilt.
"""

from collections.abc import Iterator

from minivllm.errors import InputError
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BODY, HATCH, INK, MARGIN, PAPER, RULE, SMALL, SOFT, WIDTH, Names, Owner, Owners
from minivllm.trace.replay import Trace

LEFT = 76  # px
ROW = 17  # px
MOST_ROWS = 64
Cell = tuple[tuple[str, ...], bool]  # (owners' internal ids, it has a name)


def block_history(trace: Trace) -> dict[int, dict[int, Cell]]:
    """Block -> step -> (owners, named), after each step's plan; only blocks that were ever handed out.

    vLLM: v1/core/block_pool.py::BlockPool
    """
    plans = {event.step: event.seq for event in trace.filter(kind="schedule") if event.error is None}
    history: dict[int, dict[int, Cell]] = {}
    for step, seq in plans.items():
        state = trace.state_at(seq)
        held: dict[int, list[str]] = {}
        for request_id, table in state.block_tables.items():
            for block_id in table:
                held.setdefault(block_id, []).append(request_id)
        for block_id in sorted({*held, *state.block_hashes}):
            owners = tuple(held.get(block_id, ()))
            history.setdefault(block_id, {})[step] = owners, block_id in state.block_hashes
    return dict(sorted(history.items()))


def blocks_over_time(
    trace: Trace,
    *,
    alt: str,
    steps: tuple[int, int] | None = None,
    owners: Names = None,
    caption: str | None = None,
) -> Picture:
    """Blocks × steps, after each step's plan: filled = held (bands where it is shared, with a thick border), hatched =
    free with a name, nothing = free. Blocks that were never handed out are left out.

    steps: first and last. model: block id -> step -> {"owners", "named"}.

    vLLM: v1/core/block_pool.py::BlockPool
    """
    who = Owners(trace, owners)
    history = block_history(trace)
    if len(history) > MOST_ROWS:
        raise InputError(f"{len(history)} blocks were in use; a picture holds {MOST_ROWS}. Use `minivllm view`.")
    first, last = steps or (1, max(trace.steps, default=1))
    shown = last - first + 1
    width = min(44, (WIDTH - LEFT - MARGIN) / shown)
    canvas = Canvas(len(history) * ROW + 30, alt, caption)
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 500, 10**6) if n * width >= 26)
    canvas.text(LEFT - 10, canvas.top + 8, "step", SMALL, "right", SOFT)
    for step in range(first, last + 1):
        if step == first or (step % every == 0 and (step - first) * width >= 26):
            canvas.text(LEFT + (step - first + 0.5) * width, canvas.top + 8, str(step), SMALL, "center", SOFT)
    labels: list[tuple[list[Owner], tuple[float, float, float, float]]] = []
    for place, (block_id, cells) in enumerate(history.items()):
        y = canvas.top + 20 + place * ROW
        canvas.text(LEFT - 10, y + 7, f"block {block_id}" if place == 0 else str(block_id), BODY, "right")
        canvas.line([(LEFT, y + ROW - 1.5), (LEFT + shown * width, y + ROW - 1.5)], RULE, 0.7)
        for start, end, (held_by, named) in _runs(cells, first, last):
            run = LEFT + (start - first) * width, y, (end - start + 1) * width, ROW - 3
            _draw_run(canvas, [who[i].colour for i in held_by], named, run)
            labels.append(([who[i] for i in held_by], run))
    canvas.layer()
    for held_by, run in labels:
        _label_run(canvas, held_by, run)
    model = {
        block_id: {
            step: {"owners": [who[i].label for i in held_by], "named": named}
            for step, (held_by, named) in cells.items()
            if first <= step <= last
        }
        for block_id, cells in history.items()
    }
    return canvas.finish(model)


def _runs(cells: dict[int, Cell], first: int, last: int) -> Iterator[tuple[int, int, Cell]]:
    """(first step, last step, what) of stretches in which nothing changed."""
    start: int | None = None
    for step in range(first, last + 2):
        now = cells.get(step) if step <= last else None
        if start is not None and (now is None or _looks(now) != _looks(cells[start])):
            yield start, step - 1, cells[start]
            start = None
        if start is None and now is not None:
            start = step


def _looks(cell: Cell) -> Cell:
    """That a held block has a name is not drawn."""
    held_by, named = cell
    return held_by, named and not held_by


def _draw_run(canvas: Canvas, colours: list[str], named: bool, place: tuple[float, float, float, float]) -> None:
    x, y, w, h = place
    for band, colour in enumerate(colours):
        canvas.rect(x, y + h * band / len(colours), w, h / len(colours), colour)
    if len(colours) > 1:
        canvas.rect(x + 1, y + 1, w - 2, h - 2, edge=INK, thick=2)
    elif not colours and named:
        canvas.hatch(x, y + 1, w, h - 2, HATCH)


def _label_run(canvas: Canvas, held_by: list[Owner], place: tuple[float, float, float, float]) -> None:
    """Who holds it, where there is room: on the colour, or on white over bands."""
    x, y, w, h = place
    text = "+".join(one.label for one in held_by)
    width = text_width(text, SMALL, True)
    if not held_by or width + 6 > w:
        return
    alone = len(held_by) == 1
    if not alone:
        canvas.rect(x + 3, y + 2, width + 3, h - 4, PAPER)
    canvas.text(x + 4, y + h / 2, text, SMALL, colour=held_by[0].text_colour if alone else INK, bold=True)
