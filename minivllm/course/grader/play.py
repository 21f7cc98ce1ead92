"""Small workloads to play with in a lab's notebook: one line in, a table of steps out.

Owns: nothing. Interface: run, rows, at, parts_of_file.
Must not know: what is graded.

    from minivllm.course.grader import play
    steps = play.run("B1 N4 S2 T3 M3 cache whole: a>1, aa>1")     # the notation of traces/labs/ladder.txt
    steps = play.run(LINE, "my-labs/04/starter.py")               # with the parts of a student's file
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from minivllm.course.grader import observe
from minivllm.course.grader.catalog import all_labs
from minivllm.course.grader.child import StudentFile
from minivllm.course.grader.ladder import parse_rung
from minivllm.course.grader.words import tell_list

MAX_STEPS = 200
Steps = list[dict[str, Any]]


def run(line: str, starter: str | Path | None = None) -> Steps:
    """The steps of a workload: what was planned, and the state after planning and after the update.

    starter: a student's file, whose lab is found in its docstring; None: the engine's own parts.
    """
    workload = parse_rung(f"L00 {line}")
    parts = {} if starter is None else parts_of_file(Path(starter))
    return observe.run_workload(parts, {"workload": workload, "max_steps": MAX_STEPS, "state": True}, [])


def parts_of_file(path: Path) -> dict[str, Any]:
    """All the parts of a student's file, whose lab is found in its docstring."""
    text = path.read_text(encoding="utf-8")
    lab = next(lab for lab in all_labs() if text.startswith(f'"""Lab {lab.number} '))
    whole = replace(lab.tasks[-1], symbols=tuple(place.partition("::")[2] for place in lab.symbols))
    return StudentFile(replace(lab, tasks=(whole,)), path).parts(whole.id)


def rows(steps: Steps) -> list[dict[str, Any]]:
    """A row for each step, for `minivllm.course.notebook.table`."""
    return [
        {
            "step": entry["step"]["step"],
            "tokens": ", ".join(f"{req_id} {n}" for req_id, n in entry["step"]["num_scheduled_tokens"]) or "none",
            "block tables": ", ".join(f"{r} {tell_list(table)}" for r, table in entry["planned"]["tables"].items()),
            "ref counts": tell_list(entry["planned"]["ref_cnts"]),
            "free after planning": tell_list(entry["planned"]["free"]),
            "free after the update": tell_list(entry["updated"]["free"]),
        }
        for entry in steps
    ]


def at(steps: Steps, step: int, when: str = "planned") -> dict[str, Any]:
    """The state of one step: `planned` (after schedule) or `updated` (after update_from_output)."""
    return steps[step][when]
