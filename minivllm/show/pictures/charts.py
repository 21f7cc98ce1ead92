"""General pictures: bars, a grid of values, weights along the tokens of a request.

Interface: bars, grid, weights.
Must not know: traces.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from minivllm.errors import InputError
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BODY, INK, LOSS, MARGIN, PAPER, RULE, SMALL, SOFT, WIDTH, owner

ROW = 30  # px
PLAIN = "#8792A2"  # of bars that belong to nobody
MOST_CELLS = 3000


def _number(value: float) -> str:
    """Thousands with a comma; three decimals below 1."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:,.2f}"


def bars(
    values: Mapping[str, float | Sequence[tuple[str, float]]],
    *,
    alt: str,
    unit: str = "",
    owners: Mapping[str, str] | None = None,
    mark: Sequence[str] = (),
    wrong: Sequence[str] = (),
    limit: float | None = None,
    caption: str | None = None,
) -> Picture:
    """Horizontal bars from 0, one a label, its number behind it.

    values: label -> number, or parts [(name, number)] that follow each other in one bar, coloured by their names.
    owners: label -> name of a request, whose colour the bar gets. mark: thick border. wrong: red border. limit: a line.
    model: the values.
    """
    parts = {label: value if isinstance(value, Sequence) else None for label, value in values.items()}
    totals = {k: sum(n for _, n in parts[k]) if parts[k] is not None else values[k] for k in values}
    most = max([*totals.values(), limit or 0, 1e-12])
    left = min(280, max(text_width(label, BODY) for label in values) + 2 * MARGIN)
    ends = {label: _number(total) + (f" {unit}" if unit else "") for label, total in totals.items()}
    scale = (WIDTH - left - MARGIN - 14 - max(text_width(end, BODY) for end in ends.values())) / most
    canvas = Canvas(len(values) * ROW + (22 if limit is not None else 4), alt, caption)
    for place, label in enumerate(values):
        y = canvas.top + place * ROW
        canvas.text(left - 10, y + 11, label, BODY, "right")
        x, width = left, totals[label] * scale
        if parts[label] is None:
            name = (owners or {}).get(label)
            canvas.rect(x, y, width, 22, owner(name).colour if name else PLAIN)
        else:
            for name, number in parts[label]:
                _part(canvas, name, number, x, y, number * scale)
                x += number * scale
        if label in mark or label in wrong:
            canvas.rect(left, y, width, 22, edge=LOSS if label in wrong else INK, thick=3)
        canvas.text(left + width + 8, y + 11, ends[label], BODY, bold=label in mark)
    canvas.layer()
    canvas.line([(left, canvas.top - 3), (left, canvas.top + len(values) * ROW - 4)], SOFT, 1.5)
    if limit is not None:
        x, foot = left + limit * scale, canvas.top + len(values) * ROW
        canvas.line([(x, canvas.top - 3), (x, foot)], INK, 2.5)
        canvas.text(x, foot + 10, f"limit {_number(limit)}", SMALL, "right")
    return canvas.finish({label: dict(parts[label]) if parts[label] is not None else values[label] for label in values})


def _part(canvas: Canvas, name: str, number: float, x: float, y: float, width: float) -> None:
    one = owner(name)
    canvas.rect(x, y, width, 22, one.colour, PAPER)
    for text in (f"{name} {_number(number)}", name):
        if text_width(text) <= width - 4:
            canvas.text(x + width / 2, y + 11, text, SMALL, "center", one.text_colour)
            return


def grid(
    values: Sequence[Sequence[Any]],
    *,
    alt: str,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    row_title: str = "",
    column_title: str = "",
    owners: Sequence[Sequence[str | None]] | None = None,
    mark: Sequence[tuple[int, int]] = (),
    wrong: Sequence[tuple[int, int]] = (),
    shade: bool = True,
    caption: str | None = None,
) -> Picture:
    """A table as cells: values in them where there is room, shaded in grey by size, or coloured by owner.

    values: rows of numbers, texts, or None (white). owners: the name of each cell's request. mark, wrong: (row, column)
    of cells with a thick, or a red, border. model: the values.
    """
    wide = max(map(len, values))
    if len(values) * wide > MOST_CELLS:
        raise InputError(f"{len(values)} × {wide} cells are more than the {MOST_CELLS} that a picture holds.")
    left = MARGIN + (max(map(text_width, rows)) + 10 if rows else 0) + (20 if row_title else 0)
    width = min(60, (WIDTH - left - MARGIN) / wide)
    height = 30.0
    if width < 24:  # no room for values: squares
        width = height = max(6, min(width, 420 / len(values)))
    head = (18 if columns else 0) + (18 if column_title or row_title else 0)
    canvas = Canvas(int(len(values) * height + head + 8), alt, caption)
    top = canvas.top + head
    numbers = [v for row in values for v in row if isinstance(v, int | float)]
    most = max(numbers, default=0) or 1
    if column_title:
        canvas.text(left, canvas.top + 6, column_title, SMALL, colour=SOFT)
    for place, text in enumerate(columns):
        if place % max(1, -(-26 // int(width or 1))) == 0:
            canvas.text(left + (place + 0.5) * width, top - 10, text, SMALL, "center", SOFT)
    for r, row in enumerate(values):
        y = top + r * height
        if rows and (height >= 13 or r % -(-14 // int(height)) == 0):
            canvas.text(left - 8, y + height / 2, rows[r], SMALL, "right")
        looks = [_look(value, owners and owners[r][c], most if shade else None) for c, value in enumerate(row)]
        _fill_row(canvas, looks, left, y, width, height)
        for c, value in enumerate(row):
            _value(canvas, value, looks[c][1], (left + c * width, y, width, height))
    if row_title:
        canvas.text(left - 8, canvas.top + 6, row_title, SMALL, "right", SOFT)
    canvas.layer()
    right, foot = left + wide * width, top + len(values) * height
    for c in range(wide + 1):
        canvas.line([(left + c * width, top), (left + c * width, foot)], RULE, 0.7)
    for r in range(len(values) + 1):
        canvas.line([(left, top + r * height), (right, top + r * height)], RULE, 0.7)
    for cells, colour in ((mark, INK), (wrong, LOSS)):
        for r, c in cells:
            canvas.rect(left + c * width, top + r * height, width, height, edge=colour, thick=2.5)
    return canvas.finish([list(row) for row in values])


def _look(value: Any, name: str | None, most: float | None) -> tuple[str, str]:
    """Colours of a cell and of its text."""
    if name:
        return owner(name).colour, owner(name).text_colour
    if most is None or not isinstance(value, int | float):
        return PAPER, INK
    level = round(8 * max(0.0, min(1.0, value / most)))  # few shades: one path each
    grey = 255 - level * 22
    return f"#{grey:02x}{grey:02x}{grey:02x}", PAPER if level > 5 else INK


def _fill_row(canvas: Canvas, looks: list[tuple[str, str]], x: float, y: float, width: float, height: float) -> None:
    """Neighbours of one colour are one rectangle."""
    for (fill, _), run in groupby(enumerate(looks), key=lambda pair: pair[1]):
        places = [place for place, _ in run]
        if fill != PAPER:
            canvas.rect(x + places[0] * width, y, len(places) * width, height, fill)


def _value(canvas: Canvas, value: Any, colour: str, place: tuple[float, float, float, float]) -> None:
    x, y, w, h = place
    text = "" if value is None else value if isinstance(value, str) else _number(value)
    if text and h >= 14 and text_width(text) <= w - 2:
        canvas.text(x + w / 2, y + h / 2, text, SMALL, "center", colour)


def weights(
    values: Sequence[float],
    labels: Sequence[str],
    *,
    alt: str,
    owners: Sequence[str] | str = "A",
    named: int = 5,
    block_size: int | None = None,
    caption: str | None = None,
) -> Picture:
    """One upright bar a key, from 0 to the largest weight; the `named` largest carry label and value.

    values: weights in the order of the positions. labels: the keys' texts. owners: one name, or one for each key.
    block_size: draws a line where a block ends. model: [(label, weight)].
    """
    if len(values) != len(labels):
        raise InputError(f"{len(values)} weights and {len(labels)} labels: give one label for each weight.")
    names = [owners] * len(values) if isinstance(owners, str) else list(owners)
    canvas = Canvas(244, alt, caption)
    width, most = (WIDTH - 2 * MARGIN) / len(values), max(values)
    foot, room = canvas.top + 216, 150
    for place, value in enumerate(values):
        x, height = MARGIN + place * width, room * value / most
        canvas.rect(x + min(1, width / 6), foot - height, width - min(2, width / 3), height, owner(names[place]).colour)
        if block_size and place and place % block_size == 0:
            canvas.line([(x, foot - room), (x, foot + 6)], RULE, 1, (3, 3))
        if place % (block_size or 1) == 0 and (block_size or width >= 20):
            canvas.text(x + width / 2, foot + 14, str(place), SMALL, "center", SOFT)
    _name_largest(canvas, values, labels, named, width, foot, room)
    canvas.line([(MARGIN, foot), (WIDTH - MARGIN, foot)], SOFT, 1.5)
    return canvas.finish(list(zip(labels, values, strict=True)))


def _name_largest(
    canvas: Canvas, values: Sequence[float], labels: Sequence[str], named: int, width: float, foot: float, room: float
) -> None:
    """Labels in three lines on top, each with a thin line down to its bar."""
    ends = [0.0, 0.0, 0.0]
    grounds: list[tuple[float, float, float, float]] = []
    for place in sorted(sorted(range(len(values)), key=lambda i: -values[i])[:named]):
        x, tip = MARGIN + (place + 0.5) * width, foot - room * values[place] / max(values)
        text = f"{labels[place].replace(' ', '␣')} {values[place]:.3f}"
        wide = text_width(text, SMALL, True)
        left = min(x - 4, WIDTH - MARGIN - wide)
        line = next((n for n, end in enumerate(ends) if left > end + 6), ends.index(min(ends)))
        ends[line] = left + wide
        y = canvas.top + 8 + line * 17
        if tip - y > 12:
            canvas.line([(x, y + 8), (x, tip - 2)], SOFT, 0.8)
        canvas.text(left, y, text, SMALL, bold=True)
        grounds.append((left - 2, y - 8, wide, 16))
    canvas.layer()
    for ground in grounds:  # a line of another label may pass
        canvas.rect(*ground, PAPER)
