"""Two traces side by side in at most eight lines.

Interface: diff_view.
Must not know: how they are compared (minivllm.show.diff).
"""

from minivllm.course.notebook.html import text_of
from minivllm.course.notebook.tables import table
from minivllm.show.diff import Diff, diff
from minivllm.show.diff_events import Difference
from minivllm.trace.replay import Trace

COLUMNS = ("where", "what")


def diff_view(a: Trace, b: Trace, lines: int = 8, names: tuple[str, str] = ("a", "b")) -> None:
    """The first difference, the first different decision, then what changed in figures and outputs.

    names: what to call the two, as heads of the columns. The settings that differ stand above the table.
    """
    found = diff(a, b)
    rows = _rows(found)
    more = len(rows) - lines
    settings = "; ".join(f"`{one.what}` {text_of(one.a) or '–'} → {text_of(one.b) or '–'}" for one in found.settings)
    caption = f"Changed: {settings}." if settings else "The same engine settings."
    caption += " No difference in what the engine did." if found.same else ""
    caption += f" {more} more lines are left out." if more > 0 else ""
    table(rows[:lines], (*COLUMNS, *names), caption=caption, mark={0} if rows else ())


def _rows(found: Diff) -> list[tuple[str, str, str, str]]:
    rows = []
    if found.first is not None:
        rows.append(_row(found.first, "first difference"))
        decision = found.first_decision
        if decision is not None and decision is not found.first:
            rows.append(_row(decision, "first different decision"))
    for kinds, side in ((found.only_a, 0), (found.only_b, 1)):
        for kind, count in kinds.items():
            rows.append(("whole run", f"`{kind}` events", *(count if place == side else 0 for place in (0, 1))))
    rows += [("whole run", one.what, one.a, one.b) for one in found.figures if not one.same]
    for request, compared in found.outputs.items():
        rows += [(f"answer of request {request}", one.what, one.a, one.b) for one in compared if not one.same]
    return [tuple(_shown(value) for value in row) for row in rows]


def _row(one: Difference, title: str) -> tuple[str, str, str, str]:
    step = "between steps" if one.step is None else f"step {one.step}"
    where = f"{title}: {step}, {' '.join(filter(None, (one.boundary, one.kind)))}"
    return where, f"`{one.field}`" if one.field else "the event", one.a, one.b


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, float) else text_of(value)
    return text if len(text) <= 60 else text[:59] + "…"
