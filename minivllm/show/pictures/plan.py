"""Pictures of the scheduler's plans: who got how many tokens in which step, and how full the budget was.

Interface: schedule, budget.
Must not know: the scheduler's rules; a plan is a `schedule` event.
"""

from collections.abc import Sequence
from typing import Any

from minivllm.errors import InputError
from minivllm.show.lives import Lives
from minivllm.show.pictures.canvas import Canvas, text_width
from minivllm.show.pictures.picture import Picture
from minivllm.show.pictures.style import BODY, HATCH, INK, LOSS, MARGIN, PAPER, RULE, SMALL, SOFT, WIDTH, Names, Owners
from minivllm.trace.replay import Trace

ROW = 34  # px
LEFT = 76  # px, for names
WIDEST_STEP = 44  # px
MOST_BARS = 16


def step_rows(trace: Trace) -> dict[str, dict[int, dict[str, Any]]]:
    """Internal id -> step -> {"what", "tokens", "hit", "preempted", "last"} from its arrival to its end in the core.

    what: prefill, decode, recompute, or queue, preempted, paused where it got no token. hit: tokens found in the cache.

    vLLM: v1/core/sched/output.py::SchedulerOutput
    """
    lives = Lives(trace)
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    for internal in trace.request_ids:
        roles = lives.roles(internal)
        row = rows[internal] = {
            role.step: {"what": role.phase, "tokens": role.num_new_tokens, "hit": 0, "preempted": False, "last": False}
            for role in roles
        }
        for step in lives.plans():
            if step.number not in row:
                continue
            plan, cell = step.schedule, row[step.number]
            cell["preempted"] = any(p.req_id == internal for p in plan.preemptions)
            admitted = [n for n in plan.scheduled_new_reqs if n.req_id == internal]
            admitted += [c for c in plan.scheduled_cached_reqs if c.req_id == internal and c.resumed]
            cell["hit"] = admitted[0].num_computed_tokens if admitted else 0
        ended = lives.lives[internal].ended
        if row and ended is not None:
            row[max(row)]["last"] = True
    return rows


def schedule(
    trace: Trace,
    *,
    alt: str,
    steps: tuple[int, int] | None = None,
    owners: Names = None,
    caption: str | None = None,
) -> Picture:
    """Requests × steps: a bar with a number = that many prompt tokens, a small square = 1 token (decode), hatched = the
    prompt's start came from the cache, dotted line = waiting, ✕ = preempted, a thick end = finished.

    steps: first and last. model: label -> step -> {"what", "tokens", "hit", "preempted", "last"}; see step_rows.

    vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
    """
    who = Owners(trace, owners)
    first, last = steps or (1, max((s for s in trace.steps), default=1))
    rows = {
        internal: {step: cell for step, cell in cells.items() if first <= step <= last}
        for internal, cells in step_rows(trace).items()
    }
    shown = last - first + 1
    width = min(WIDEST_STEP, (WIDTH - LEFT - MARGIN) / shown)
    canvas = Canvas(len(rows) * ROW + 36, alt, caption)
    _steps_axis(canvas, first, last, width)
    for place, (internal, cells) in enumerate(rows.items()):
        y = canvas.top + 24 + place * ROW
        canvas.text(LEFT - 12, y + ROW / 2 - 3, who[internal].label, BODY, "right", bold=True)
        canvas.line([(LEFT, y + ROW - 3), (LEFT + shown * width, y + ROW - 3)], RULE)
        for step, cell in cells.items():
            _draw_cell(canvas, cell, who[internal], LEFT + (step - first) * width, y, width)
    return canvas.finish({who[internal].label: cells for internal, cells in rows.items()})


def _steps_axis(canvas: Canvas, first: int, last: int, width: float) -> None:
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 500, 10**6) if n * width >= 22)
    canvas.text(LEFT - 12, canvas.top + 10, "step", SMALL, "right", SOFT)
    for step in range(first, last + 1):
        if step == first or (step % every == 0 and (step - first) * width >= 22):
            canvas.text(LEFT + (step - first + 0.5) * width, canvas.top + 10, str(step), SMALL, "center", SOFT)


def _draw_cell(canvas: Canvas, cell: dict[str, Any], owner: Any, x: float, y: float, width: float) -> None:
    height, middle = ROW - 8, y + (ROW - 8) / 2
    if not cell["tokens"]:
        canvas.line([(x, middle), (x + width, middle)], SOFT if cell["what"] != "paused" else RULE, 2, (2, 4))
    elif cell["what"] == "decode":
        size = min(12, width - 1.5)
        canvas.rect(x + (width - size) / 2, middle - size / 2, size, size, owner.colour)
    else:
        _draw_prompt(canvas, cell, owner, x, y, width, height)
    if cell["preempted"]:
        canvas.rect(x + 1, y, width - 2, height, edge=LOSS, thick=2)
        canvas.cross(x + width / 2, middle, min(6, width / 2 - 1), LOSS, 2.5)
    if cell["last"]:
        canvas.line([(x + width - 1.5, y + 1), (x + width - 1.5, y + height - 1)], INK, 3)


def _draw_prompt(canvas: Canvas, cell: dict, owner: Any, x: float, y: float, width: float, height: float) -> None:
    """A bar; its upper part is hatched where the cache gave the start of the prompt."""
    down = height - 16 if cell["hit"] else 0
    if down:
        canvas.hatch(x + 1, y, width - 2, down, HATCH)
        canvas.rect(x + 1.5, y + 0.5, width - 3, down, edge=owner.colour)
    canvas.rect(x + 1, y + down, width - 2, height - down, owner.colour)
    text = str(cell["tokens"])
    if text_width(text) <= width - 1:
        canvas.text(x + width / 2, y + (down + height) / 2, text, SMALL, "center", owner.text_colour)


# ---------------------------------------------------------------------- the budget


def budget(
    trace: Trace,
    steps: int | Sequence[int] = (1,),
    *,
    alt: str,
    owners: Names = None,
    caption: str | None = None,
) -> Picture:
    """One bar a step, from 0 to the token budget, in the order in which the tokens were given out.

    steps: one, or up to 16. model: step -> {"budget", "left", "tokens": label -> tokens}.

    vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
    """
    wanted = [steps] if isinstance(steps, int) else list(steps)
    plans = {event.step: event for event in trace.filter(kind="schedule") if event.error is None}
    missing = [step for step in wanted if step not in plans]
    if missing or not 1 <= len(wanted) <= MOST_BARS:
        raise InputError(
            f"budget draws 1 to {MOST_BARS} of the steps {min(plans, default=0)} to {max(plans, default=0)}, "
            f"not {wanted}."
        )
    who = Owners(trace, owners)
    scale = (WIDTH - LEFT - 2 * MARGIN) / max(plans[step].token_budget[0] for step in wanted)
    canvas = Canvas(len(wanted) * ROW + 34, alt, caption)
    model = {}
    for place, step in enumerate(wanted):
        plan, y = plans[step], canvas.top + 2 + place * ROW
        limit, left = plan.token_budget
        canvas.text(LEFT - 12, y + 13, f"step {step}", BODY, "right")
        canvas.rect(LEFT, y, limit * scale, ROW - 8, PAPER, RULE)
        x = LEFT
        for internal, tokens in plan.num_scheduled_tokens.items():
            _draw_part(canvas, who[internal], tokens, x, y, tokens * scale)
            x += tokens * scale
        if left and text_width(f"{left} left") <= left * scale - 8:
            canvas.text(x + left * scale / 2, y + 13, f"{left} left", SMALL, "center", SOFT)
        tokens = {who[i].label: n for i, n in plan.num_scheduled_tokens.items()}
        model[step] = {"budget": limit, "left": left, "tokens": tokens}
    limit = plans[wanted[-1]].token_budget[0]
    edge, foot = LEFT + limit * scale, canvas.top + len(wanted) * ROW
    canvas.layer()
    canvas.line([(edge, canvas.top - 2), (edge, foot)], INK, 2.5)
    canvas.text(edge, foot + 12, f"budget {limit} tokens", SMALL, "right")
    canvas.text(LEFT, foot + 12, "0", SMALL, "center", SOFT)
    return canvas.finish(model)


def _draw_part(canvas: Canvas, owner: Any, tokens: int, x: float, y: float, width: float) -> None:
    canvas.rect(x, y, width, ROW - 8, owner.colour, PAPER)
    for text in (f"{owner.label} {tokens}", owner.label):
        if text_width(text, BODY) <= width - 3:
            canvas.text(x + width / 2, y + 13, text, BODY, "center", owner.text_colour)
            return
