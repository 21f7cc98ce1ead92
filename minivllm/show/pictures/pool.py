"""Pictures of the KV cache at one moment: the pool, the free queue, one request's block table.

Interface: pool, queue, block_table.
Must not know: how a moment is rebuilt (facts.py, minivllm.trace).
"""

from collections.abc import Sequence

from minivllm.errors import InputError
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.facts import BlockFact, block_facts, computed_in_blocks, moment
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import (
    BODY,
    HATCH,
    INK,
    LOSS,
    MARGIN,
    PAPER,
    RULE,
    SMALL,
    SOFT,
    WIDTH,
    Names,
    Owner,
    Owners,
)
from minivllm.trace.replay import Trace
from minivllm.trace.state import State

COLUMNS = 8
CELL_HEIGHT = 52  # px
GAP = 6  # px
MOST_BLOCKS = 128


def pool(
    source: Trace | State,
    seq: int | None = None,
    *,
    alt: str,
    before: bool = False,
    owners: Names = None,
    caption: str | None = None,
    wrong: Sequence[int] = (),
    num_blocks: int | None = None,
    block_size: int = 16,
) -> Picture:
    """The pool, 8 blocks a row, block 0 top left.

    source: a trace, at event `seq` (None: at its end; before: at the event's entry), or a State, which does not know
    what was written: there the tokens that count as computed are drawn as written. num_blocks, block_size: of a State,
    where the pool is 32 blocks of 16 unless said. wrong: blocks with a red outline. owners: see minivllm.show.pictures.

    model: block id -> {"form", "owners", "written", "named"}; see facts.BlockFact.

    vLLM: v1/core/block_pool.py::BlockPool
    """
    if isinstance(source, Trace):
        num_blocks, block_size = source.header.num_gpu_blocks, source.header.config["block_size"]
    state, written = moment(source, seq, before)
    if isinstance(source, State):
        written = computed_in_blocks(state, block_size)
    num_blocks = num_blocks or 32
    if num_blocks > MOST_BLOCKS:
        raise InputError(f"The pool has {num_blocks} blocks; a picture holds {MOST_BLOCKS}. Use `minivllm view`.")
    who = Owners(source, owners)
    facts = block_facts(state, num_blocks, written)
    rows = -(-num_blocks // COLUMNS)
    canvas = Canvas(rows * (CELL_HEIGHT + GAP) + 8, alt, caption)
    width = (WIDTH - 2 * MARGIN + GAP) / COLUMNS - GAP
    for fact in facts:
        row, column = divmod(fact.block_id, COLUMNS)
        place = MARGIN + column * (width + GAP), canvas.top + row * (CELL_HEIGHT + GAP), width, CELL_HEIGHT
        _draw_block(canvas, fact, [who[i] for i in fact.owners], place, block_size)
    canvas.layer()
    for block_id in wrong:
        row, column = divmod(block_id, COLUMNS)
        x, y = MARGIN + column * (width + GAP), canvas.top + row * (CELL_HEIGHT + GAP)
        canvas.rect(x - 1, y - 1, width + 2, CELL_HEIGHT + 2, edge=LOSS, thick=3)
    return canvas.finish({fact.block_id: _model(fact, who) for fact in facts})


def _model(fact: BlockFact, who: Owners) -> dict:
    owners = [who[i].label for i in fact.owners]
    return {"form": fact.form, "owners": owners, "written": fact.written, "named": fact.named}


def _draw_block(canvas: Canvas, fact: BlockFact, owners: list[Owner], place: tuple, block_size: int) -> None:
    x, y, w, h = place
    if fact.null:
        canvas.rect(x, y, w, h, PAPER, RULE)
        canvas.line([(x, y), (x + w, y + h)], RULE, 1.5)
        canvas.line([(x, y + h), (x + w, y)], RULE, 1.5)
        _tag(canvas, x + w / 2, y + h / 2, "null block")
        return
    canvas.rect(x, y, w, h, PAPER)
    if owners:
        _draw_owned(canvas, fact, owners, place, block_size)
    elif fact.named:
        canvas.hatch(x, y, w, h, HATCH)
    canvas.layer()
    dash = () if fact.owners or fact.named else (3, 3)
    edge = INK if fact.form == "shared" else owners[0].colour if owners else SOFT if fact.named else RULE
    canvas.rect(x, y, w, h, edge=edge, thick=3.5 if fact.form == "shared" else 1.5, dash=dash)
    if not owners:
        _tag(canvas, x + 14, y + 14, str(fact.block_id))


def _draw_owned(canvas: Canvas, fact: BlockFact, owners: list[Owner], place: tuple, block_size: int) -> None:
    """One band for each owner: filled as far as it is written, dotted beyond."""
    x, y, w, h = place
    full = w * fact.written / block_size
    for place_in, one in enumerate(owners):
        band, height = y + h * place_in / len(owners), h / len(owners)
        if full:
            canvas.rect(x, band, full, height, one.colour)
        if full < w:
            canvas.dots(x + full, band + 1, w - full, height - 2, one.colour)
    labels = "+".join(one.label for one in owners)
    _tag(canvas, x + 14, y + 14, str(fact.block_id))
    if len(owners) > 1:
        _tag(canvas, x + w - 18, y + 14, f"×{len(owners)}")
    _tag(canvas, x + w / 2, y + h - 14, f"{labels} {fact.written}/{block_size}")


def _tag(canvas: Canvas, x: float, y: float, text: str) -> None:
    """Text on a white ground, so that it reads on every pattern."""
    width = text_width(text, SMALL) + 6
    canvas.layer()
    canvas.rect(x - width / 2, y - 8, width, 16, PAPER)
    canvas.text(x, y, text, SMALL, "center")


# ---------------------------------------------------------------------- the free queue


def queue(
    source: Trace | State,
    seq: int | None = None,
    *,
    alt: str,
    before: bool = False,
    caption: str | None = None,
    mark: Sequence[int] = (),
) -> Picture:
    """The free queue in order: the block that is handed out next is on the left. Blocks with a name are hatched.

    mark: blocks with a thick border. See pool for the rest. model: the block ids in order.

    vLLM: v1/core/kv_cache_utils.py::FreeKVCacheBlockQueue
    """
    state, _ = moment(source, seq, before)
    order = state.free_order
    per_row, size = 16, 40
    rows = max(1, -(-len(order) // per_row))
    canvas = Canvas(rows * 46 + 34, alt, caption)
    step = (WIDTH - 2 * MARGIN) / per_row
    canvas.text(MARGIN, canvas.top + 8, "handed out next", SMALL, colour=SOFT)
    for place, block_id in enumerate(order):
        x, y = MARGIN + place % per_row * step, canvas.top + 22 + place // per_row * 46
        if block_id in state.block_hashes:
            canvas.hatch(x, y, size, 34, HATCH)
        marked = block_id in mark
        canvas.rect(x, y, size, 34, edge=INK if marked else SOFT, thick=3 if marked else 1.2)
    for place, block_id in enumerate(order):
        _tag(canvas, MARGIN + place % per_row * step + size / 2, canvas.top + 39 + place // per_row * 46, str(block_id))
    if order:
        end = MARGIN + (len(order) - 1) % per_row * step + size
        y = canvas.top + 22 + rows * 46 - 2
        canvas.text(end, y, "handed out last", SMALL, "right" if end > 120 else "left", SOFT)
    else:
        canvas.text(MARGIN, canvas.top + 39, "no block is free", BODY)
    return canvas.finish(order)


# ---------------------------------------------------------------------- one block table


def block_table(
    trace: Trace,
    seq: int,
    request: str,
    *,
    alt: str,
    before: bool = False,
    owners: Names = None,
    positions: Sequence[int] = (),
    caption: str | None = None,
) -> Picture:
    """One request's block table at an event: a row of cells for each block, logical above physical.

    Cells are positions: filled = written, dotted = planned and not yet written, white = room. positions: up to 4, each
    marked and spelled out as `position 48 → row 3, cell 0 → block 4 → slot 64`.

    model: {"blocks", "num_computed_tokens", "slots": position -> slot, "written": offsets written, by row}.

    vLLM: v1/worker/block_table.py::BlockTable
    """
    who = Owners(trace, owners)
    internal = who.find(request)
    state, written = moment(trace, seq, before)
    block_size, table = trace.header.config["block_size"], state.block_tables.get(internal, [])
    computed = state.requests[internal].num_computed_tokens
    for position in positions:
        if position >= len(table) * block_size:
            raise InputError(f"Position {position} lies beyond the {len(table)} blocks of {request} at event {seq}.")
    slots = {p: table[p // block_size] * block_size + p % block_size for p in positions}
    height = len(table) * 34 + 26 + len(positions) * 22 + 8
    canvas = Canvas(height, alt, caption)
    left, right = 150, 96
    cell = (WIDTH - left - right - MARGIN) / block_size
    for offset in range(0, block_size, max(1, block_size // 16)):
        canvas.text(left + (offset + 0.5) * cell, canvas.top + 8, str(offset), SMALL, "center", SOFT)
    for row, block_id in enumerate(table):
        y = canvas.top + 22 + row * 34
        canvas.text(left - 12, y + 14, f"row {row}: block {block_id}", BODY, "right")
        slots_here = f"slots {block_id * block_size}..{(block_id + 1) * block_size - 1}"
        canvas.text(WIDTH - right + 6 - MARGIN, y + 14, slots_here, SMALL, colour=SOFT)
        for offset in range(block_size):
            position = row * block_size + offset
            x = left + offset * cell
            if offset < written.get(block_id, 0):
                canvas.rect(x + 1, y, cell - 2, 28, who[internal].colour)
            elif position < computed:
                canvas.dots(x + 1, y, cell - 2, 28, who[internal].colour)
            canvas.rect(x + 1, y, cell - 2, 28, edge=RULE)
    canvas.layer()
    for place, (position, slot) in enumerate(slots.items()):
        row, offset = divmod(position, block_size)
        x, y = left + offset * cell, canvas.top + 22 + row * 34
        canvas.rect(x, y - 1, cell, 30, edge=INK, thick=3)
        line = canvas.top + 22 + len(table) * 34 + 12 + place * 22
        canvas.text(
            left, line, f"position {position} → row {row}, cell {offset} → block {table[row]} → slot {slot}", BODY
        )
    model = {
        "blocks": list(table),
        "num_computed_tokens": computed,
        "slots": slots,
        "written": [written.get(block_id, 0) for block_id in table],
    }
    return canvas.finish(model)
