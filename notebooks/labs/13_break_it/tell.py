"""The words of lab 13: a case as a student gets it, and the first difference between two steps.

Owns: the layout of A.md, the names of a step's values. Interface: tell_case, tell_difference.
Must not know: answers, points.
"""

from typing import Any

from minivllm.course.grader.words import shorten, tell_list, tell_workload
from minivllm.lessons.lab13 import cases
from minivllm.lessons.lab13.cases import BONUS_LETTER, Case

# of a step: its values in the order in which they come about, and what they are called
IN_ORDER = ("tokens", "preempted", "planned", "rows", "batch", "outputs", "texts", "updated")
OF_REQUESTS = ("outputs", "texts")
WORDS = {
    "tokens": "tokens of each request in this step",
    "rows": "rows of the batch",
    "planned": "after schedule",
    "updated": "after update_from_output",
    "batch": "of the flat batch",
    "outputs": "output tokens",
    "texts": "text",
    "tables": "block table",
    "requests": "computed tokens, all tokens and status",
    "running": "running requests",
    "waiting": "waiting requests",
    "by_block": "hash of block",
    "by_map": "hash in the map",
    "free": "free queue",
    "num_free": "num_free_blocks",
    "ref_cnts": "ref_cnt of blocks 0, 1, …",
}


def tell_case(case: Case, sound: cases.Run, broken: cases.Run, place: str) -> str:
    """The text of A.md: the complaint, what came out, the workload. place: the folder of the traces."""
    title = "The bonus case" if case.letter == BONUS_LETTER else f"Case {case.letter}"
    lines = [f"# {title}", "", f"> {case.what.complaint}", ""]
    if broken["hang"]:
        lines += ["The engine went on for ever with nothing to show for it; the trace ends where it was stopped.", ""]
    elif broken["error"]:
        lines += [f"The engine died: `{broken['error']}`", ""]
    kind = "texts" if case.workload.get("texts") else "outputs"
    lines += ["| request | what came out | what another engine says |", "|---|---|---|"]
    mine = broken["steps"][-1][kind] if broken["steps"] else {}
    for req_id, right in sound["steps"][-1][kind].items():
        lines.append(f"| {req_id} | {_told(mine.get(req_id, []))} | {_told(right)} |")
    settings, *requests = tell_workload(cases.without_outputs(case.workload), whole=True).split("; ")
    lines += ["", "## The workload", "", f"- {settings}", *(f"- {request}" for request in requests)]
    if case.workload.get("sampling"):
        lines.append(f"- sampling: {', '.join(f'{k} {v}' for k, v in case.workload['sampling'].items())}")
    trace = f"{place}/{case.letter}.jsonl"
    lines += [
        "",
        "## The trace",
        "",
        f"- `minivllm view {trace}` opens it as a page.",
        f"- `minivllm why {trace} r0 --step 3` explains a step.",
        "",
        "The steps of the trace count from 1. A request that arrives in step n comes in after n rounds of the engine's",
        "loop; a round in which nobody is there is no step.",
        "",
    ]
    return "\n".join(lines)


def _told(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    if value and all(isinstance(one, list) for one in value):
        return ", ".join(" ".join(map(str, one)) for one in value)
    return tell_list(value)


def tell_difference(expected: dict[str, Any], got: dict[str, Any]) -> tuple[str, str]:
    """The first value of a step that differs, in the order in which they come about: expected and got, in words."""
    path, wanted, found = _first_field({name: expected[name] for name in IN_ORDER}, got)
    label = WORDS.get(path[0], path[0])
    if len(path) > 1:
        inner = f"{WORDS.get(path[1], path[1])}{f' of {path[2]}' if len(path) > 2 else ''}"
        label = f"{label} of {path[1]}" if path[0] in OF_REQUESTS else f"{inner} {label}"
    if isinstance(wanted, list) and isinstance(found, list):
        wanted, found = shorten(wanted, found)
    return tuple(f"{label}: {_told(value)}" for value in (wanted, found))


def _first_field(expected: dict[str, Any], got: dict[str, Any]) -> tuple[list[str], Any, Any]:
    """The path to the first value that differs, and both values."""
    for name, value in expected.items():
        other = got.get(name)
        if value == other:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            if set(value) != set(other):
                return [name], sorted(value), sorted(other)
            path, wanted, found = _first_field(value, other)
            return [name, *path], wanted, found
        return [name], value, other
    return ["keys"], sorted(expected), sorted(got)
