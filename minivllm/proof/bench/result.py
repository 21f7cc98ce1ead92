"""A benchmark's result: rounds as they were measured, medians, ratios; as JSON and as a table.

Owns: the layout of a result. Interface: make_result, table.
Must not know: what was measured.
"""

import statistics
from typing import Any

from minivllm import __version__
from minivllm.proof.bench.machine import machine_facts

Figures = dict[str, float]
STEP = "step: "  # begins the names of figures that say what a step is made of


def make_result(
    bench: str, command: str, settings: dict[str, Any], rounds: list[dict[str, Figures]], own: str, others: list[str]
) -> dict[str, Any]:
    """The record that is written: everything measured, and what it comes to.

    own: the side that `others` are compared with. A ratio above 1 means that `own` is better: more tokens a second,
    or less time or memory.
    """
    sides = list(rounds[0])
    medians = {side: _medians([one[side] for one in rounds]) for side in sides}
    ratios = {
        side: {
            name: round(better_by(name, medians[own][name], value), 3)
            for name, value in figures.items()
            if name in medians[own] and value and medians[own][name]
        }
        for side, figures in medians.items()
        if side in others
    }
    return {
        "bench": bench,
        "command": command,
        "minivllm": __version__,
        "machine": machine_facts(),
        "settings": settings,
        "own": own,
        "medians": medians,
        "ratios": ratios,
        "rounds": rounds,
    }


def better_by(name: str, mine: float, other: float) -> float:
    """How many times better `mine` is. A rate (`…_per_s`) is better when larger, all else when smaller."""
    return mine / other if name.endswith("_per_s") else other / mine


def _medians(rounds: list[Figures]) -> Figures:
    return {name: round(statistics.median(one[name] for one in rounds), 4) for name in rounds[0]}


def table(result: dict[str, Any]) -> str:
    """The medians, a line a figure and a column a side; behind a peer's figure, how many times better ours is."""
    medians, ratios = result["medians"], result["ratios"]
    names = list(dict.fromkeys(name for figures in medians.values() for name in figures))
    lines = [["", *medians]]
    for name in names:
        cells = [name]
        for side, figures in medians.items():
            ratio = ratios.get(side, {}).get(name)
            value = f"{figures[name]:,.4g}" if abs(figures.get(name, 1e9)) < 1e4 else f"{figures.get(name, 0):,.0f}"
            cells.append("" if name not in figures else value + (f"  ({ratio:.2f}x)" if ratio else ""))
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(rows)
