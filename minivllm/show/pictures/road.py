"""The map: the stops B1 to B27 that a request passes, in two processes.

Interface: road.
Must not know: a trace; the road is always the same.
"""

from collections.abc import Iterable

from minivllm.errors import InputError
from minivllm.show.pictures.canvas import Canvas
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BAND, INK, MARGIN, PAPER, RULE, SMALL, SOFT

STOPS = range(1, 28)
CALLER, CORE, WORKER = 34, 104, 146  # px from the top: the middle of each row of stops
BORDER = 69
LEFT, PITCH, RADIUS = 124, 24.8, 10.5


def _row(stop: int) -> float:
    """Where a stop lies; B7 and B22 lie on the border itself."""
    if stop in (7, 22):
        return BORDER
    if stop < 7 or stop > 22:
        return CALLER
    return WORKER if 13 <= stop <= 20 else CORE


def _numbers(lit: Iterable[int | str]) -> set[int]:
    """Stops as numbers: 10, "B10" and "B10..B12" are understood."""
    found: set[int] = set()
    for part in lit:
        first, _, last = str(part).replace("B", "").partition("..")
        try:
            found |= set(range(int(first), int(last or first) + 1))
        except ValueError:
            raise InputError(f"{part!r} is no stop. Write 10, 'B10' or 'B10..B12'.") from None
    if not found <= set(STOPS):
        raise InputError(f"The stops are B1 to B27, not {sorted(found - set(STOPS))}.")
    return found


def road(lit: Iterable[int | str] = (), *, alt: str, caption: str | None = None) -> Picture:
    """The way of a request: the caller above, the engine core below, time to the right.

    lit: the stops that are filled, as 10, "B10" or "B10..B12". model: {"lit": [...]}.
    """
    shown = _numbers(lit)
    canvas = Canvas(176, alt, caption)
    top = canvas.top
    canvas.rect(MARGIN, top, canvas.width - 2 * MARGIN, BORDER - 2, PAPER, RULE)
    canvas.rect(MARGIN, top + BORDER + 2, canvas.width - 2 * MARGIN, 100, BAND, RULE)
    canvas.text(MARGIN + 8, top + CALLER, "caller", SMALL, bold=True)
    canvas.text(MARGIN + 8, top + CORE, "engine core", SMALL, bold=True)
    canvas.text(MARGIN + 8, top + WORKER, "worker", SMALL, bold=True)
    places = {stop: (LEFT + (stop - 1) * PITCH, top + _row(stop)) for stop in STOPS}
    canvas.line([places[stop] for stop in STOPS], SOFT, 2)
    back, forth = places[21], places[10]
    low = top + CORE - 22
    canvas.line([(back[0], back[1]), (back[0], low), (forth[0], low)], SOFT, 1.5, (4, 3))
    canvas.arrow(forth[0], low, forth[0], forth[1] - RADIUS, SOFT)
    canvas.text((back[0] + forth[0]) / 2, low - 1, " every step ", SMALL, "center", SOFT)
    middle = (back[0] + forth[0]) / 2
    canvas.layer()
    canvas.rect(middle - 36, low - 8, 72, 16, BAND)
    for stop, (x, y) in places.items():
        canvas.circle(x, y, RADIUS, INK if stop in shown else PAPER, INK if stop in shown else SOFT, 1.5)
        canvas.text(x, y, str(stop), SMALL, "center", PAPER if stop in shown else INK, bold=stop in shown)
    return canvas.finish({"lit": sorted(shown)})
