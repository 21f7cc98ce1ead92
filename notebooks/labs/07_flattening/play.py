"""Flat batches to play with in the notebook of lab 07: one line in, a table of steps out.

Owns: nothing. Interface: run, rows.
Must not know: what is graded.
"""

from pathlib import Path
from typing import Any

from minivllm.course.grader.ladder import parse_rung
from minivllm.course.grader.play import parts_of_file
from minivllm.course.grader.words import tell_list
from minivllm.lessons.lab07 import observe as observe_batch

Steps = list[dict[str, Any]]
ARRAYS = ("positions", "query_start_loc", "seq_lens", "slot_mapping")


def run(line: str, starter: str | Path | None = None) -> Steps:
    """The steps of a workload, each with its rows, their blocks, and the arrays of the flat batch.

    line: in the notation of traces/labs/ladder.txt. starter: a student's file; None: the engine's own parts.
    """
    workload = parse_rung(f"L00 {line}")
    parts = {} if starter is None else parts_of_file(Path(starter))
    size = workload["config"]["block_size"]
    return [step | _flat(parts, step, size) for step in observe_batch.rows(parts, {"workload": workload}, [])]


def _flat(parts: dict[str, Any], step: dict[str, Any], block_size: int) -> dict[str, list[int]]:
    batch = [
        {"computed": computed, "scheduled": len(tokens), "tokens": [0] * computed + tokens, "blocks": blocks}
        for computed, tokens, blocks in zip(step["computed"], step["tokens"], step["blocks"], strict=True)
    ]
    return observe_batch.padded(parts, {"rows": batch, "block_size": block_size, "pad_to": None}, [])


def rows(steps: Steps) -> list[dict[str, Any]]:
    """A row for each step, for `minivllm.course.notebook.table`."""
    return [
        {
            "step": number,
            "rows": tell_list(step["rows"]),
            "blocks of the rows": ", ".join(tell_list(blocks) for blocks in step["blocks"]),
            **{name: tell_list(step[name]) for name in ARRAYS},
        }
        for number, step in enumerate(steps)
    ]
