"""What a picture draws is what its model says: shapes are read back out of the SVG, with their places, fills and order.

Where a step or a block lies on the sheet is read off the picture's own labels.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from svg_shapes import Box, Drawing

from minivllm.show import pictures
from minivllm.show.pictures.style import HATCH, INK, LOSS, PAPER, RULE, SOFT, Owners
from minivllm.trace import Trace

ROOT = Path(__file__).parents[3]
ALT = "Three requests over 25 steps of the core. C's first word comes in step 2, together with B's."


@cache
def trace(name: str) -> Trace:
    return Trace.load(ROOT / f"traces/{name}.jsonl.gz")


def colours_of(ran: Trace, owners: Sequence[str] | None) -> dict[str, str]:
    """Label -> fill."""
    who = Owners(ran, owners)
    return {who[internal].label: who[internal].colour.lower() for internal in ran.request_ids}


class Columns:
    """Where steps lie, by the numbers of the axis: the top-most row of texts."""

    def __init__(self, drawing: Drawing) -> None:
        y = drawing.text("step").y
        labels = {int(text.text): text.x for text in drawing.texts if abs(text.y - y) < 1 and text.text.isdigit()}
        (self.step, self.x), (other, x) = min(labels.items()), max(labels.items())
        self.width = (x - self.x) / (other - self.step)
        assert self.width > 0 and all(abs(self.middle(s) - at) < 0.5 for s, at in labels.items())

    def middle(self, step: int) -> float:
        return self.x + (step - self.step) * self.width


# ---------------------------------------------------------------------- blocks × steps


@pytest.mark.parametrize(
    ("name", "owners"), [("evict", ("A", "C", "D", "A′")), ("twins", None), ("together", "ABC"), ("pool-8", "ABC")]
)
def test_blocks_over_time(name: str, owners: Sequence[str] | None) -> None:
    ran = trace(name)
    picture = pictures.blocks_over_time(ran, owners=owners, alt=ALT)
    drawing, colours = Drawing(picture.svg), colours_of(ran, owners)
    columns = Columns(drawing)
    lines = sorted(box.y0 for box in drawing.stroked(RULE, closed=False))  # under each block's row
    assert len(lines) == len(picture.model)
    height = lines[1] - lines[0] if len(lines) > 1 else 17
    bands = drawing.filled(*colours.values())
    hatches = drawing.stroked(HATCH, closed=False)
    borders = drawing.stroked(INK, closed=True)
    for (block_id, cells), line in zip(picture.model.items(), lines, strict=True):
        row = next(
            t.text for t in drawing.texts if line - height < t.y < line and re.fullmatch(r"(block )?\d+", t.text)
        )
        assert row.removeprefix("block ") == str(block_id)
        for step in range(1, max(ran.steps) + 1):
            cell = cells.get(step, {"owners": [], "named": False})
            at = columns.middle(step)
            here = [box for box in bands if box.x0 < at < box.x1 and line - height < box.middle[1] < line]
            assert [box.fill for box in sorted(here, key=lambda box: box.y0)] == [colours[o] for o in cell["owners"]]
            assert len({round(box.height, 2) for box in here}) <= 1  # each owner has the same share
            marked = any(box.x0 < at < box.x1 and line - height < box.middle[1] < line for box in borders)
            assert marked == (len(cell["owners"]) > 1)
            left, right = at - columns.width / 2 + 0.2, at + columns.width / 2 - 0.2
            near = any(box.x0 < right and box.x1 > left and line - height < box.middle[1] < line for box in hatches)
            assert near == (cell["named"] and not cell["owners"]), (block_id, step)


# ---------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("name", "owners"), [("pool-8", "ABC"), ("together", "ABC"), ("evict", ("A", "C", "D", "A′")), ("late", "AC")]
)
def test_schedule(name: str, owners: Sequence[str]) -> None:
    ran = trace(name)
    picture = pictures.schedule(ran, owners=owners, alt=ALT)
    drawing, colours = Drawing(picture.svg), colours_of(ran, owners)
    columns = Columns(drawing)
    lines = sorted(box.y0 for box in drawing.stroked(RULE, closed=False) if not box.is_dotted)
    height = 34.0
    for (label, cells), line in zip(picture.model.items(), lines, strict=True):
        middle = drawing.text(label).y if sum(t.text == label for t in drawing.texts) == 1 else line - 19
        assert line - height < middle < line
        for step in range(1, max(ran.steps) + 1):
            cell, at = cells.get(step), columns.middle(step)

            def inside(box: Box, at: float = at, line: float = line) -> bool:
                x, y = box.middle
                return abs(x - at) < columns.width / 2 and line - height < y < line and box.width <= columns.width + 0.1

            bars = [box for box in drawing.filled(*colours.values()) if inside(box)]
            dots = [box for colour in (SOFT, RULE) for box in drawing.stroked(colour) if box.is_dotted and inside(box)]
            crosses = [box for box in drawing.stroked(LOSS, closed=False) if inside(box)]
            ends = [box for box in drawing.stroked(INK, closed=False) if inside(box)]
            hatched = any(inside(box) for box in drawing.stroked(HATCH, closed=False))
            if cell is None:
                assert not (bars or dots or crosses or ends or hatched), (label, step)
                continue
            assert [box.fill for box in bars] == [colours[label]] * bool(cell["tokens"])
            assert bool(dots) == (not cell["tokens"])
            assert bool(crosses) == cell["preempted"] and bool(ends) == cell["last"]
            assert all(box.middle[0] > at for box in ends)  # the step's end, not its beginning
            if bars:
                is_square = abs(bars[0].width - bars[0].height) < 0.1
                assert is_square == (cell["what"] == "decode")
                assert hatched == bool(cell["hit"])
                numbers = [t.text for t in drawing.texts if abs(t.x - at) < 1 and line - height < t.y < line]
                assert numbers in ([], [str(cell["tokens"])])


@pytest.mark.parametrize("step", [1, 2, 16])
def test_budget(step: int) -> None:
    ran = trace("together")
    picture = pictures.budget(ran, step, owners="ABC", alt=ALT)
    bar, drawing, colours = picture.model[step], Drawing(picture.svg), colours_of(ran, "ABC")
    parts = sorted(drawing.filled(*colours.values()), key=lambda box: box.x0)
    (whole,) = [box for box in drawing.filled(PAPER) if box.stroke == RULE.lower()]
    (limit,) = drawing.stroked(INK, closed=False)
    assert limit.x0 == limit.x1 == pytest.approx(whole.x1)
    assert [box.fill for box in parts] == [colours[label] for label in bar["tokens"]]
    scale = whole.width / bar["budget"]
    assert [box.width for box in parts] == pytest.approx([n * scale for n in bar["tokens"].values()], abs=0.1)
    assert parts[0].x0 == pytest.approx(whole.x0) and all(a.x1 == pytest.approx(b.x0) for a, b in pairwise(parts))


# ---------------------------------------------------------------------- the pool


@pytest.mark.parametrize(
    ("name", "owners"), [("together", "ABC"), ("twins", None), ("evict", ("A", "C", "D", "A′")), ("pool-8", "ABC")]
)
def test_pool(name: str, owners: Sequence[str] | None) -> None:
    ran = trace(name)
    size = ran.header.config["block_size"]
    for plan in ran.filter(kind=("schedule", "update_from_output"))[::9]:
        picture = pictures.pool(ran, plan.seq, owners=owners, alt=ALT)
        drawing, colours = Drawing(picture.svg), colours_of(ran, owners)
        cells = [box for box in drawing.filled(PAPER) if box.height > 40]
        cells = sorted(dict.fromkeys(box[:4] for box in cells), key=lambda box: (box[1], box[0]))
        assert len(cells) == len(picture.model)
        for (block_id, block), (x0, y0, x1, y1) in zip(picture.model.items(), cells, strict=True):

            def inside(box: Box, cell: tuple[float, ...] = (x0, y0, x1, y1)) -> bool:
                x, y = box.middle
                return cell[0] <= x <= cell[2] and cell[1] <= y <= cell[3]

            texts = [t.text for t in drawing.texts if x0 < t.x < x1 and y0 < t.y < y1]
            assert ("null block" if block["form"] == "null" else str(block_id)) in texts
            bands = sorted(filter(inside, drawing.filled(*colours.values())), key=lambda box: box.y0)
            own = block["owners"] if block["written"] else []
            assert [box.fill for box in bands] == [colours[label] for label in own]
            assert [box.width for box in bands] == pytest.approx(
                [(x1 - x0) * block["written"] / size] * len(own), abs=0.1
            )
            hatched = any(map(inside, drawing.stroked(HATCH, closed=False)))
            assert hatched == (block["named"] and not block["owners"] and block["form"] != "null")
            thick = any(map(inside, drawing.stroked(INK, closed=True)))
            assert thick == (block["form"] == "shared")


def test_queue() -> None:
    for name in ("one", "evict"):
        ran = trace(name)
        picture = pictures.queue(ran, alt=ALT, mark=[2])
        drawing, named = Drawing(picture.svg), ran.final_state().block_hashes
        boxes = [
            box
            for box in drawing.boxes
            if box.is_closed and box.fill == "none" and box.stroke in (SOFT.lower(), INK.lower())
        ]
        boxes.sort(key=lambda box: (round(box.y0), box.x0))
        shown = []
        for box in boxes:
            (number,) = [t.text for t in drawing.texts if box.covers(t.x, t.y)]
            shown.append(int(number))
            assert (box.stroke == INK.lower()) == (number == "2")
            assert any(box.covers(*line.middle) for line in drawing.stroked(HATCH)) == (int(number) in named)
        assert shown == picture.model


def test_a_block_table() -> None:
    ran = trace("one")
    plan = ran.filter(kind="schedule", step=9)[0]
    picture = pictures.block_table(ran, plan.seq, "A", owners="A", positions=[40, 48], alt=ALT)
    drawing, size = Drawing(picture.svg), ran.header.config["block_size"]
    cells = drawing.stroked(RULE, closed=True)
    rows = sorted({round(box.y0, 1) for box in cells})
    for row, (block_id, written) in enumerate(zip(picture.model["blocks"], picture.model["written"], strict=True)):
        text = drawing.text(f"row {row}: block {block_id}")
        assert rows[row] < text.y < rows[row] + 28
        own = sorted((box for box in cells if round(box.y0, 1) == rows[row]), key=lambda box: box.x0)
        filled = [any(b.covers(*box.middle) for b in drawing.filled(*colours_of(ran, "A").values())) for box in own]
        assert filled == [offset < written for offset in range(size)]
    for position, mark in zip((40, 48), sorted(drawing.stroked(INK, closed=True), key=lambda b: b.y0), strict=True):
        (cell,) = [box for box in cells if mark.covers(*box.middle)]
        columns = sorted({round(box.x0, 1) for box in cells})
        assert (rows.index(round(cell.y0, 1)), columns.index(round(cell.x0, 1))) == divmod(position, size)


# ---------------------------------------------------------------------- bars


def test_bars() -> None:
    values = {"pool 10": 25, "pool 8": 32}
    drawing = Drawing(pictures.bars(values, unit="steps", mark=["pool 8"], limit=40, alt=ALT).svg)
    (limit,) = drawing.stroked(INK, closed=False)
    (zero,) = drawing.stroked(SOFT, closed=False)
    scale = (limit.x0 - zero.x0) / 40
    for label, value in values.items():
        y = drawing.text(label).y
        bars = [box for box in drawing.boxes if box.is_closed and box.y0 < y < box.y1]
        assert {round(box.x0, 1) for box in bars} == {round(zero.x0, 1)}
        assert [box.width for box in bars] == pytest.approx([value * scale] * len(bars), abs=0.1)
        assert any(box.stroke == INK.lower() for box in bars) == (label == "pool 8")


def test_bars_in_parts() -> None:
    drawing = Drawing(pictures.bars({"step 1": [("A", 30), ("B", 10)]}, limit=40, alt=ALT).svg)
    (limit,) = drawing.stroked(INK, closed=False)
    first, second = sorted((box for box in drawing.boxes if box.is_closed and box.height > 20), key=lambda b: b.x0)
    assert first.x1 == pytest.approx(second.x0) and second.x1 == pytest.approx(limit.x0)
    assert first.width == pytest.approx(3 * second.width, abs=0.1)


# ---------------------------------------------------------------------- the flat batch


@pytest.mark.parametrize(("name", "step"), [("together", 1), ("late", 5)])
def test_flat_batch(name: str, step: int) -> None:
    ran = trace(name)
    picture = pictures.flat_batch(ran, step, alt=ALT)
    model, drawing, colours = picture.model, Drawing(picture.svg), colours_of(ran, None)
    tops = [box.y0 for box in drawing.filled(*colours.values())]
    cells = [box for box in drawing.filled(*colours.values()) if abs(box.y0 - min(tops)) < 0.5]
    cells.sort(key=lambda box: box.x1)
    borders = model["query_start_loc"]
    wanted = [
        colours[label] for row, label in enumerate(model["owners"]) for _ in range(borders[row], borders[row + 1])
    ]
    assert [box.fill for box in cells] == wanted
    assert all(a.x1 <= b.x0 + 0.1 for a, b in pairwise(cells))
    lines = sorted({round(box.x0, 1) for box in drawing.stroked(INK, closed=False)})
    assert lines == pytest.approx(
        [min(b.x0 for b in cells) - 0.6, *[cells[end - 1].x1 for end in borders[1:]]], abs=0.2
    )
    flags = sorted(drawing.stroked(INK, closed=True), key=lambda box: box.x0)
    for flag, index, label in zip(flags, model["logits_indices"], model["owners"], strict=True):
        assert cells[index].x0 - 1 < flag.middle[0] < cells[index].x1 + 1
        assert flag.fill == (PAPER if label in model["discarded"] else INK).lower()
