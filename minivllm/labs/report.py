"""How a result is shown: a table of tasks, one failure in full, the others in a line each; and as JSON.

Owns: the words and the layout. Interface: format_result, as_json, format_failure.
Must not know: how anything was found out.
"""

import platform
from typing import Any

from minivllm import __version__
from minivllm.labs.judge import Failure, LabResult, TaskResult

SCHEMA = 1
LABEL_WIDTH = 11
MARKS = {"pass": "✓", "not_written": "·"}


def format_result(
    result: LabResult, questions: list[dict[str, Any]], trace: str = "", next_step: str = "", place: str = ""
) -> str:
    """The whole report as text.

    trace: where the trace of the shown failure lies, and the command that opens it. place: the student's folder, when
    it is not the one that the commands take by themselves.

    vLLM: none, vLLM has no labs
    """
    lab = result.lab
    lines = [
        f"Lab {lab.number} {lab.title} · {_count(len(result.tasks), 'task')}, {_count(len(questions), 'question')}"
    ]
    if result.load_error is not None:
        error = result.load_error
        place = f"starter.py:{error['line']}   {error['text']}" if error["line"] else "starter.py"
        return "\n".join(
            [*lines, f"  ✗ the file can't be loaded: {error['type']}: {error['message']}", f"      {place}"]
        )
    width = max(len(task.title) for task in result.tasks)
    lines += [_task_line(task, width) for task in result.tasks]
    if questions:
        lines.append(_question_line(questions, width))
    points = result.points + sum(question["points"] for question in questions)
    most = sum(task.max for task in result.tasks) + sum(question["max"] for question in questions)
    lines.append(f"  {points}/{most}.  {next_step}".rstrip())
    worst = result.worst()
    if worst is not None:
        lines += ["", *format_failure(*worst, trace=trace, place=place)]
        lines += _other_lines(result, worst[1])
        if result.output:
            lines += ["", "  what the code printed, last lines:", *(f"      {line}" for line in result.output[-10:])]
    return "\n".join(lines)


def _task_line(task: TaskResult, width: int) -> str:
    mark = MARKS.get(task.status, "✗")
    head = f"  {task.id} {task.title:<{width}}  {mark} {task.points:>2}/{task.max}"
    if task.refused:
        return f"{head}   {task.refused}"
    if task.status == "not_written":
        return f"{head}   not written"
    parts = []
    for result in task.checks:
        outcome = result.outcome
        if outcome.families:
            right = [name for name, ok in outcome.families.items() if ok]
            parts.append(f"{result.check.id}: right {' '.join(right) or 'none'}")
        else:
            parts.append(f"{result.check.id} {outcome.passed}/{outcome.cases}")
    return f"{head}   {' · '.join(parts)}"


def _question_line(questions: list[dict[str, Any]], width: int) -> str:
    points, most = sum(q["points"] for q in questions), sum(q["max"] for q in questions)
    wrong = [f"{q['id']} {q['status'].replace('_', ' ')}" for q in questions if q["status"] != "right"]
    mark = "✓" if points == most else "·"
    return f"  {'    questions':<{width + 4}}  {mark} {points:>2}/{most}   {', '.join(wrong)}".rstrip()


def format_failure(task: TaskResult, failure: Failure, trace: str = "", place: str = "") -> list[str]:
    """One failure in full. Every line that has something to say is there; no assertion, no traceback of ours.

    vLLM: none, vLLM has no labs
    """
    says = f"            ({failure.says})" if failure.says else ""
    hint = f"minivllm lab hint {task.id.partition('.')[0].zfill(2)} {failure.hint or task.id}"
    rows = [
        ("input", failure.input),
        ("where", failure.where),
        ("before", failure.before),
        ("line", failure.line),
        ("expected", failure.expected + says),
        ("got", failure.got),
        ("looks like", failure.looks_like),
        ("trace", trace),
        ("next", f"{hint} --dir {place}" if place else hint),
    ]
    head = f"  ✗ {task.id} {task.title}, {failure.case}"
    if failure.kind == "hang":
        head += ": stopped"
    return [head, *(f"      {label:<{LABEL_WIDTH}}{text}" for label, text in rows if text)]


def format_search(found: Any) -> str:
    """What `--search` found: a Found, or the number of workloads that it tried.

    vLLM: none, vLLM has no labs
    """
    if isinstance(found, int):
        return f"  search: {found} random workloads, and no difference from the engine"
    failure = found.failure
    rows = [
        ("input", failure.input),
        ("where", failure.where),
        ("before", failure.before),
        ("line", failure.line),
        ("expected", failure.expected.removesuffix(" (recorded from vLLM 0.22.0)")),
        ("got", failure.got),
        ("as a rung", found.line),
    ]
    head = f"  search: after {found.tried} random workloads one on which yours and the engine differ, made small:"
    tail = "      Please send the last line to your instructor: it is a rung that the ladder lacks."
    return "\n".join([head, *(f"      {label:<{LABEL_WIDTH}}{text}" for label, text in rows if text), tail])


def _other_lines(result: LabResult, shown: Failure) -> list[str]:
    lines = []
    for task in result.tasks:
        for check in task.checks:
            failures = [failure for failure in check.outcome.failures if failure is not shown]
            if failures:
                first = min(failures, key=lambda failure: failure.size)
                more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
                rule = f" breaks {first.rule}" if first.rule else ""
                lines.append(f"  ✗ {task.id} {first.case}{rule}{more}")
    return ["", "  also:", *lines] if lines else []


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# ---------------------------------------------------------------------- JSON


def as_json(result: LabResult, questions: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    """The result as plain values, for `check --json` and `submit`. facts: student, seed, files, grader, hints, …

    vLLM: none, vLLM has no labs
    """
    total = result.points + sum(question["points"] for question in questions)
    return {
        "schema": SCHEMA,
        "lab": result.lab.number,
        "revision": result.lab.revision,
        "minivllm": __version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "seconds": round(result.seconds, 1),
        "total": total,
        "max": result.max + sum(question["max"] for question in questions),
        "exit": exit_status(result),
        "load_error": result.load_error,
        "tasks": [_task_json(task) for task in result.tasks],
        "questions": questions,
        **facts,
    }


def exit_status(result: LabResult) -> int:
    """0: all points of the code. 1: some are missing. 2: the file can't be loaded.

    vLLM: none, vLLM has no labs
    """
    if result.load_error is not None:
        return 2
    return 0 if result.points == sum(task.max for task in result.tasks) else 1


def _task_json(task: TaskResult) -> dict[str, Any]:
    return {
        "id": task.id,
        "points": task.points,
        "max": task.max,
        "status": task.status,
        "refused": task.refused,
        "checks": [
            {
                "id": result.check.id,
                "points": result.points,
                "max": result.check.points,
                "status": "pass" if result.points == result.check.points else "fail",
                "cases": result.outcome.cases,
                "passed": result.outcome.passed,
                "families": result.outcome.families,
                "first": _failure_json(result.outcome.failures),
            }
            for result in task.checks
        ],
    }


def _failure_json(failures: list[Failure]) -> dict[str, Any] | None:
    if not failures:
        return None
    first = min(failures, key=lambda failure: failure.size)
    keys = ("case", "kind", "input", "where", "rule", "before", "expected", "got", "line", "looks_like")
    return {key: getattr(first, key) for key in keys}
