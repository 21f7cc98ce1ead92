"""Canvas: a sheet of fixed size on which pictures are drawn, in CSS pixels from the top left.

Owns: the matplotlib figure, and everything that makes its SVG small and the same on every machine.
Interface: Canvas with rect, dots, hatch, line, circle, arrow, cross, text, finish; text_width.
Must not know: what is drawn.

Shapes of one style become one path, so that a picture of a thousand cells stays small. Text stays text: a reader's
program can find and read it. Its font is DejaVu Sans, which comes with matplotlib; Verdana has the same widths.
"""

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

from minivllm.errors import InputError
from minivllm.show.pictures.picture import Picture, check_alt, finish_svg
from minivllm.show.pictures.style import INK, MARGIN, PAPER, SMALL, TITLE, WIDTH

FONTS = ["DejaVu Sans"]
POINTS = 0.75  # pt in a px
SETTINGS = {"svg.hashsalt": "minivllm", "svg.fonttype": "none", "font.family": FONTS, "path.simplify": False}
BASELINE = 0.36  # of the text's size: from the middle of a digit down to its foot
HATCH_GAP = 7  # px between two lines
DOT_GAP = 6  # px


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError('Pictures need matplotlib: pip install "matplotlib>=3.10".') from None
    return matplotlib


@cache
def text_width(text: str, size: float = SMALL, bold: bool = False) -> float:
    """px that a text takes in DejaVu Sans, about 5 % more to be safe."""
    _matplotlib()
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size * POINTS)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / POINTS * 1.05


class Canvas:
    """A white sheet, WIDTH px wide. y goes down. Later layers lie above earlier ones: `layer` starts one.

    alt: see Picture. caption: one sentence above the drawing; content begins at `top`.
    """

    def __init__(self, height: int, alt: str, caption: str | None = None, width: int = WIDTH) -> None:
        self.alt = check_alt(alt)
        self.width = width
        self.top = 40 if caption else MARGIN
        self.height = height + self.top
        self._shapes: list[dict[tuple, list]] = [{}]
        self._texts: list[tuple] = []
        if caption:
            self.text(MARGIN, 20, caption, TITLE, bold=text_width(caption, TITLE, True) < width - 2 * MARGIN)

    # ------------------------------------------------------------------ shapes

    def layer(self) -> None:
        """What follows lies above what was drawn before."""
        self._shapes.append({})

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str = "none",
        edge: str = "none",
        thick: float = 1,
        dash: tuple[float, ...] = (),
    ) -> None:
        corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
        self._add(("fill", fill, edge, thick, dash, "butt"), corners)

    def polygon(self, corners: Sequence[tuple[float, float]], fill: str, edge: str = "none") -> None:
        self._add(("fill", fill, edge, 1, (), "butt"), list(corners))

    def line(
        self, points: Sequence[tuple[float, float]], colour: str = INK, thick: float = 1, dash: tuple[float, ...] = ()
    ) -> None:
        self._add(("line", "none", colour, thick, dash, "butt"), list(points))

    def dots(self, x: float, y: float, w: float, h: float, colour: str) -> None:
        """Fill with dots: lines of points, which cost the file little."""
        rows = max(1, int(h // DOT_GAP))
        for row in range(rows):
            at = y + h / 2 + (row - (rows - 1) / 2) * DOT_GAP
            self._add(("line", "none", colour, 2.4, (0, DOT_GAP), "round"), [(x + 4, at), (x + w - 2, at)])

    def hatch(self, x: float, y: float, w: float, h: float, colour: str, thick: float = 1.2) -> None:
        """Fill with lines from the bottom left to the top right."""
        start = x - h - (x + y + h) % HATCH_GAP  # the lines of neighbours meet
        while start < x + w + h:
            x0, x1 = max(x, start), min(x + w, start + h)
            if x1 > x0:
                self.line([(x0, start + y + h - x0), (x1, start + y + h - x1)], colour, thick)
            start += HATCH_GAP

    def cross(self, x: float, y: float, r: float, colour: str = INK, thick: float = 2) -> None:
        """A ✕ around (x, y)."""
        self.line([(x - r, y - r), (x + r, y + r)], colour, thick)
        self.line([(x - r, y + r), (x + r, y - r)], colour, thick)

    def circle(
        self, x: float, y: float, r: float, fill: str = "none", edge: str = "none", thick: float = 1, dash: tuple = ()
    ) -> None:
        self._add(("circle", fill, edge, thick, dash, "butt"), (x, y, r))

    def arrow(
        self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, thick: float = 1.5, dash: tuple = ()
    ) -> None:
        """A straight line with a head at (x1, y1)."""
        length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-6)
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        bx, by = x1 - 8 * ux, y1 - 8 * uy
        self.line([(x0, y0), (bx, by)], colour, thick, dash)
        self.polygon([(x1, y1), (bx - 4 * uy, by + 4 * ux), (bx + 4 * uy, by - 4 * ux)], colour)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = SMALL,
        align: str = "left",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """y is the middle of the line. align: left, center, right."""
        self._texts.append((x, y, text, size, align, colour, bold))

    def _add(self, style: tuple, shape: Any) -> None:
        self._shapes[-1].setdefault(style, []).append(shape)

    # ------------------------------------------------------------------ the end

    def finish(self, model: Any) -> Picture:
        """The picture. model: see Picture."""
        matplotlib = _matplotlib()
        with matplotlib.rc_context(SETTINGS):
            figure = self._figure()
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        return Picture(finish_svg(file.getvalue(), self.alt, self.width, self.height), self.alt, model, figure)

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(self.width / 96, self.height / 96), facecolor=PAPER)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.set_axis_off()
        for order, layer in enumerate(self._shapes):
            for style, shapes in layer.items():
                axes.add_patch(_patch(style, shapes, order + 1))
        for x, y, text, size, align, colour, bold in self._texts:
            axes.text(
                x,
                y + BASELINE * size,
                text,
                fontsize=size * POINTS,
                ha=align,
                va="baseline",
                color=colour,
                weight="bold" if bold else "normal",
                parse_math=False,
                zorder=len(self._shapes) + 1,
            )
        return figure


def _patch(style: tuple, shapes: list, order: int) -> Any:
    """All shapes of one style as one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    kind, fill, edge, thick, dash, cap = style
    if kind == "circle":
        path = Path.make_compound_path(*[Path.circle((x, y), r) for x, y, r in shapes])
    else:
        points, codes = [], []
        for corners in shapes:
            points += corners
            codes += [Path.MOVETO] + [Path.LINETO] * (len(corners) - 1)
            if kind == "fill":
                points.append(corners[0])
                codes.append(Path.CLOSEPOLY)
        path = Path(points, codes)
    return PathPatch(
        path,
        facecolor=fill,
        edgecolor=edge,
        linewidth=thick * POINTS,
        linestyle=(0, [max(part / thick, 0.01) for part in dash]) if dash else "-",
        capstyle=cap,
        joinstyle="miter",
        zorder=order,
        clip_on=False,
    )
