"""What is drawn in a picture, read back out of its SVG: rectangles, lines and texts, in the order of their drawing.

Lengths are px of the picture; its SVG counts in pt.
"""

import re
import xml.etree.ElementTree as ET
from typing import NamedTuple

SVG = "{http://www.w3.org/2000/svg}"
PT = 0.75  # pt a px


class Box(NamedTuple):
    """The box around one closed shape, or one line."""

    x0: float
    y0: float
    x1: float
    y1: float
    fill: str
    stroke: str
    is_dotted: bool
    is_closed: bool

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def covers(self, x: float, y: float) -> bool:
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1


class Text(NamedTuple):
    text: str
    x: float
    y: float  # of its base line


class Drawing:
    """The shapes and texts of one SVG."""

    def __init__(self, svg: str) -> None:
        root = ET.fromstring(svg)
        self.boxes = [box for path in root.iter(f"{SVG}path") for box in _boxes(path)][1:]  # the first is the sheet
        self.texts = [
            Text("".join(one.itertext()), float(one.attrib["x"]) / PT, float(one.attrib["y"]) / PT)
            for one in root.iter(f"{SVG}text")
        ]

    def filled(self, *colours: str) -> list[Box]:
        """Shapes with one of these fills."""
        wanted = [colour.lower() for colour in colours]
        return [box for box in self.boxes if box.is_closed and box.fill in wanted]

    def stroked(self, colour: str, closed: bool | None = None) -> list[Box]:
        """Outlines and lines of a colour."""
        found = [box for box in self.boxes if box.stroke == colour.lower()]
        return found if closed is None else [box for box in found if box.is_closed == closed]

    def text(self, wanted: str) -> Text:
        """The only text that says this."""
        (found,) = [text for text in self.texts if text.text == wanted]
        return found


def _boxes(path: ET.Element) -> list[Box]:
    style = dict(part.strip().split(": ", 1) for part in path.attrib["style"].split(";") if part.strip())
    found = []
    for piece in re.findall(r"M[^M]*", path.attrib["d"]):
        numbers = [float(number) / PT for number in re.findall(r"-?[\d.]+", piece)]
        xs, ys = numbers[::2], numbers[1::2]
        marks = style.get("fill", "#000000"), style.get("stroke", "none"), "stroke-dasharray" in style
        found.append(Box(min(xs), min(ys), max(xs), max(ys), *marks, piece.rstrip().endswith("z")))
    return found
