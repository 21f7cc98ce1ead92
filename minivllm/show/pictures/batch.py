"""A picture of one step's flat batch: the tokens of all requests side by side.

Interface: flat_batch.
Must not know: how the worker makes it; the batch is a `prepare_inputs` event.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from minivllm.errors import InputError
from minivllm.show.describe import ranges
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BODY, INK, MARGIN, PAPER, SMALL, SOFT, WIDTH, Names, Owner, Owners
from minivllm.trace.replay import Trace

MOST_TOKENS = 256
WIDEST = 46  # px
NUMBERED = 24  # px; from here on a cell holds its slot


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One request's part of a flat batch.

    vLLM: v1/worker/gpu_input_batch.py::InputBatch
    """

    owner: Owner
    start: int  # its first place in the batch
    end: int  # one beyond its last
    seq_len: int
    positions: list[int]
    slots: list[int]
    logits_index: int
    discarded: bool  # its draw is thrown away: the prompt is not complete

    def line(self) -> str:
        """The row in words."""
        draw = ", its draw thrown away" if self.discarded else ""
        return (
            f"{self.owner.label}: positions {ranges(self.positions)} → slots {ranges(self.slots)}; "
            f"seq_len {self.seq_len}; logits at index {self.logits_index}{draw}"
        )


def batch_rows(trace: Trace, step: int, owners: Owners) -> list[BatchRow]:
    """The rows of a step's batch. Raises InputError for a step that ran no model.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    prepared = next(iter(trace.filter(kind="prepare_inputs", step=step)), None)
    states = next(iter(trace.filter(kind="update_states", step=step)), None)
    if prepared is None or states is None or prepared.num_tokens == 0:
        raise InputError(f"Step {step} of the trace has no batch: no model ran in it. Take another one.")
    sampled = next(iter(trace.filter(kind="sample_tokens", step=step)), None)
    discarded = sampled.discarded if sampled is not None else []
    borders = prepared.query_start_loc
    return [
        BatchRow(
            owners[request_id],
            borders[row],
            borders[row + 1],
            prepared.seq_lens[row],
            prepared.positions[borders[row] : borders[row + 1]],
            prepared.slot_mapping[borders[row] : borders[row + 1]],
            prepared.logits_indices[row],
            request_id in discarded,
        )
        for row, request_id in enumerate(states.req_ids)
    ]


def flat_batch(
    trace: Trace,
    step: int,
    *,
    alt: str,
    owners: Names = None,
    pieces: Mapping[int, str] | None = None,
    caption: str | None = None,
) -> Picture:
    """One cell a token, in the order of the batch; a gap where the next slot lies in another block; numbers above the
    cells are query_start_loc, a flag below marks the rows that give logits. Under it, one line for each request.

    pieces: token id -> text, drawn in cells that are wide enough. model: the arrays under vLLM's names.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    who = Owners(trace, owners)
    rows = batch_rows(trace, step, who)
    total, block_size = rows[-1].end, trace.header.config["block_size"]
    if total > MOST_TOKENS:
        raise InputError(f"Step {step} has {total} tokens; a picture holds {MOST_TOKENS}. Use `minivllm view`.")
    width = min(WIDEST, (WIDTH - 2 * MARGIN - 20) / total)
    numbered = width >= NUMBERED
    lines = (3 if pieces else 2) if numbered else 0
    cell = lines * 16 + 4 if numbered else 30
    canvas = Canvas(cell + 66 + len(rows) * 22, alt, caption)
    y = canvas.top + 22
    ids = next(iter(trace.filter(kind="prepare_inputs", step=step))).input_ids
    for row in rows:
        for place in range(row.start, row.end):
            inside = place - row.start
            x, slot = MARGIN + place * width, row.slots[inside]
            new_block = inside > 0 and slot // block_size != row.slots[inside - 1] // block_size
            gap = min(4, width / 3) if new_block else 0.6
            canvas.rect(x + gap, y, width - gap, cell, row.owner.colour)
            if numbered:
                texts = _piece(ids, place, pieces), str(row.positions[inside]), str(slot)
                _number_cell(canvas, texts[3 - lines :], x + (width + gap) / 2, y, width, row.owner.text_colour)
    _borders(canvas, rows, width, y, cell)
    _legend(canvas, rows, lines, y + cell + 20)
    for place, row in enumerate(rows):
        line = y + cell + 40 + place * 22
        canvas.rect(MARGIN, line - 6, 12, 12, row.owner.colour)
        canvas.text(MARGIN + 20, line, row.line(), BODY)
    model = {
        "query_start_loc": [rows[0].start, *[row.end for row in rows]],
        "seq_lens": [row.seq_len for row in rows],
        "positions": [p for row in rows for p in row.positions],
        "slot_mapping": [s for row in rows for s in row.slots],
        "logits_indices": [row.logits_index for row in rows],
        "owners": [row.owner.label for row in rows],
        "discarded": [row.owner.label for row in rows if row.discarded],
    }
    return canvas.finish(model)


def _piece(ids: list[int] | int, place: int, pieces: Mapping[int, str] | None) -> str:
    if pieces is None or not isinstance(ids, list):
        return ""
    return pieces.get(ids[place], "").replace(" ", "␣").replace("\n", "⏎")


def _number_cell(canvas: Canvas, texts: tuple[str, ...], x: float, y: float, width: float, colour: str) -> None:
    for line, text in enumerate(texts):
        if text and text_width(text) <= width:
            canvas.text(x, y + 10 + line * 16, text, SMALL, "center", colour)


def _borders(canvas: Canvas, rows: list[BatchRow], width: float, y: float, cell: float) -> None:
    """query_start_loc above, logits below; a number that has no room beside the one before it moves right."""
    canvas.layer()
    free_from, name = 0.0, "query_start_loc"
    for border in [rows[0].start, *[row.end for row in rows]]:
        x = MARGIN + border * width
        canvas.line([(x, y - 5), (x, y + cell + 3)], INK, 2.5)
        half = text_width(str(border), SMALL, True) / 2
        if name and x - half - free_from > text_width(name) + 16 and border:
            canvas.text(free_from + 6, y - 13, name, SMALL, colour=SOFT)
            name = ""
        at = max(x, free_from + half, half)
        canvas.text(at, y - 13, str(border), SMALL, "center", bold=True)
        free_from = at + half + 3
    if name and free_from < WIDTH - 130:
        canvas.text(free_from + 6, y - 13, name, SMALL, colour=SOFT)
    for row in rows:
        x = MARGIN + (row.logits_index + 0.5) * width
        flag = [(x, y + cell + 3), (x - 5, y + cell + 12), (x + 5, y + cell + 12)]
        canvas.polygon(flag, PAPER if row.discarded else INK, INK)


def _legend(canvas: Canvas, rows: list[BatchRow], lines: int, y: float) -> None:
    cells = {0: "", 2: "in a cell: position, slot · ", 3: "in a cell: token, position, slot · "}[lines]
    text = cells + "▲ gives logits" + (" · △ its draw is thrown away" if any(row.discarded for row in rows) else "")
    canvas.text(MARGIN, y + 2, text, SMALL, colour=SOFT)
