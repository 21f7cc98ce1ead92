"""Small tables: rows, one labelled array, the pieces of a text.

Owns: how wide they get, and what is shown of what is longer.
Interface: table, array, pieces.
Must not know: where the values come from.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minivllm.course.notebook.html import CELL, GREY, colour_of, inline, show, text_of
from minivllm.errors import InputError

MAX_CELLS, ENDS = 20, 3
PER_LINE = 16  # pieces: as many as a block has tokens
SCROLL = '<div style="overflow-x:auto">'
LINE = '<table style="border-collapse:collapse;margin:4px 0">'
TABLE = SCROLL + LINE
END = "</table></div>"
GAP = '<td style="border:0;padding:0 6px"></td>'


def table(
    rows: Iterable[Sequence[Any] | Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    mark: Iterable[int] = (),
) -> None:
    """Rows as tuples, or as dicts whose keys are the columns. mark: rows, from 0, to be set in bold with a sign."""
    rows = list(rows)
    if rows and isinstance(rows[0], Mapping):
        columns = list(rows[0]) if columns is None else columns
        rows = [[row.get(column) for column in columns] for row in rows]
    marked = set(mark)
    head = "".join(f'<th style="{CELL}">{inline(column)}</th>' for column in columns or ())
    body = "".join(_row(row, place in marked) for place, row in enumerate(rows))
    html = f"{_caption(caption)}{TABLE}{f'<thead><tr>{head}</tr></thead>' * bool(head)}<tbody>{body}</tbody>{END}"
    lines = [" | ".join(map(text_of, row)) for row in [*([columns] if columns else []), *rows]]
    show(html, "\n".join([*([caption] if caption else []), *lines]))


def _row(row: Sequence[Any], marked: bool) -> str:
    cells = [inline(text_of(value)) for value in row]
    if marked:
        cells = [f"<b>{'► ' * (place == 0)}{cell}</b>" for place, cell in enumerate(cells)]
    return "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _caption(caption: str | None) -> str:
    return f'<p style="margin:4px 0 0">{inline(caption)}</p>' if caption else ""


def array(
    name: str,
    values: Sequence[Any],
    *,
    dtype: str | None = None,
    ruler: str | Sequence[Any] | None = None,
    owners: Sequence[str] | str | None = None,
    borders: Iterable[int] = (),
    gaps: Iterable[int] = (),
) -> None:
    """An array as a row of cells under its indices.

    dtype: shown beside name and length. ruler: what the cells stand for, in words, or one label a cell. owners: whose
    each cell is, or all of them. borders: indices before which a gap is left. gaps: indices shown as `?`.
    Of more than 20 cells the first and last three are shown.
    """
    values, hidden, wide = list(values), set(gaps), set(borders)
    labels = list(ruler) if ruler is not None and not isinstance(ruler, str) else list(range(len(values)))
    whose = [owners] * len(values) if isinstance(owners, str) else list(owners or [""] * len(values))
    for what, found in (("ruler", labels), ("owners", whose)):
        if len(found) != len(values):
            raise InputError(f"array {name}: {what} has {len(found)} entries for {len(values)} values.")
    places: list[int | None] = list(range(len(values)))
    if len(values) > MAX_CELLS:
        places = [*places[:ENDS], None, *places[-ENDS:]]
    lines = [
        _cells(places, wide, labels, GREY),
        _cells(places, wide, ["?" if i in hidden else text_of(v) for i, v in enumerate(values)], "", whose),
    ]
    if len(set(whose)) > 1:
        lines.append(_cells(places, wide, whose, GREY))
    heads = [ruler if isinstance(ruler, str) else "index", f"<b>{inline(name)}</b>", "whose"]
    size = f" {dtype or ''}[{len(values)}]"
    heads[1] += f'<span style="{GREY}">{size}</span>'
    body = "".join(f'<tr><th style="{CELL}">{head}</th>{line}</tr>' for head, line in zip(heads, lines, strict=False))
    shown = [("…" if place is None else "?" if place in hidden else text_of(values[place])) for place in places]
    show(f"{TABLE}{body}{END}", f"{name}{size}: {' '.join(shown)}")


def _cells(
    places: list[int | None], wide: set[int], texts: Sequence[Any], style: str, whose: Sequence[str] = ()
) -> str:
    cells = []
    for place in places:
        if place in wide and place != 0:
            cells.append(GAP)
        text = "…" if place is None else inline(str(texts[place]))
        owner = whose[place] if whose and place is not None else ""
        edge = f";border-bottom:4px solid {colour_of(owner)}" if owner else ""
        cells.append(f'<td style="{CELL};text-align:center{edge};{style}">{text}</td>')
    return "".join(cells)


def pieces(
    texts: Sequence[str],
    owner: str | Sequence[str] = "A",
    hidden: Iterable[int] = (),
    first: int = 0,
    caption: str | None = None,
) -> None:
    """Token pieces with their indices below, sixteen to a line: a line is a block when `first` is 0.

    Each line is a table of its own: with columns as wide as the widest piece of all lines it would not fit a page.

    texts: see `tokens`. owner: a letter for all, or a label for each (its changes are shown as gaps). hidden: indices
    that are shown as `?`. first: the index of the first. A blank is drawn as ␣, a newline as ⏎.
    """
    hidden = set(hidden)
    whose = [owner] * len(texts) if isinstance(owner, str) else list(owner)
    if len(whose) != len(texts):
        raise InputError(f"pieces: {len(whose)} owners for {len(texts)} pieces.")
    lines = []
    for start in range(0, len(texts), PER_LINE):
        line = range(start, min(start + PER_LINE, len(texts)))
        words = "".join(_piece("?" if i in hidden else drawn(texts[i]), whose[i]) for i in line)
        numbers = "".join(
            f'<td style="{CELL};border:0;text-align:center;font-size:85%;{GREY}">{first + i}</td>' for i in line
        )
        lines.append(f"{LINE}<tr>{words}</tr><tr>{numbers}</tr></table>")
    plain = " ".join("?" if i in hidden else drawn(text) for i, text in enumerate(texts))
    show(f"{_caption(caption)}{SCROLL}{''.join(lines)}</div>", plain)


def drawn(text: str) -> str:
    """A piece with its blanks and newlines to be seen."""
    return text.replace(" ", "␣").replace("\n", "⏎")


def _piece(text: str, owner: str) -> str:
    style = f"{CELL};text-align:center;font-family:monospace;border-bottom:4px solid {colour_of(owner)}"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<td style="{style}">{escaped}</td>'
