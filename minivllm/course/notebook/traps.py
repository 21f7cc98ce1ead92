"""Traps: those of docs/traps.md that a notebook is about.

Interface: traps.
Must not know: what they mean.
"""

from collections.abc import Mapping, Sequence

from minivllm.course.notebook.data import read_data
from minivllm.course.notebook.tables import table
from minivllm.errors import InputError


def traps(numbers: Sequence[int] | Mapping[int, str]) -> None:
    """A table of traps: number, sentence, and, if `numbers` maps to it, where the reader has met it here."""
    known = read_data()["traps"]
    unknown = [number for number in numbers if str(number) not in known]
    if unknown:
        raise InputError(f"docs/traps.md has no trap {unknown[0]}. It has 1 to {len(known)}.")
    rows = [(f"[trap\N{NO-BREAK SPACE}{number}](../docs/traps.md)", known[str(number)]) for number in numbers]
    if isinstance(numbers, Mapping):
        met = [(*row, numbers[number]) for row, number in zip(rows, numbers, strict=True)]
        table(met, ("", "a rule that is easily missed", "here"))
    else:
        table(rows, ("", "a rule that is easily missed"))
