"""How a result is shown to a person: a table of tasks, one failure in full, the others in a line each.

Owns: the words and the layout. Interface: format_result, format_failure, format_search.
Must not know: how anything was found out, or the form that a program reads (result.py).
"""

from collections.abc import Sequence
from typing import Any

from minivllm.course.grader.judge import CheckResult, Failure, LabResult, TaskResult
from minivllm.course.grader.result import QuestionEntry, ResultFile
from minivllm.course.grader.result import exit_status as exit_status
from minivllm.course.grader.words import count

LABEL_WIDTH = 11
SEED_DIGITS = 4  # enough to see that two reports are of one folder
MARKS = {"pass": "✓", "not_written": "·"}
BESIDES = "every other task was checked with the engine's own code in place of this one"


def format_result(
    result: LabResult,
    questions: Sequence[QuestionEntry],
    trace: str = "",
    next_step: str = "",
    place: str = "",
    file: ResultFile | None = None,
    advice: Sequence[str] = (),
) -> str:
    """The whole report as text.

    trace: where the trace of the shown failure lies, and the command that opens it. place: the student's folder, when
    it is not the one that the commands take by themselves. file: whose seed and lines stand in the title. advice: what
    is said of wrong answers.
    """
    lines = [_title(result, len(questions), file)]
    if result.load_error is not None:
        error = result.load_error
        place = f"starter.py:{error['line']}   {error['text']}" if error["line"] else "starter.py"
        return "\n".join(
            [*lines, f"  ✗ the file can't be loaded: {error['type']}: {error['message']}", f"      {place}"]
        )
    width = max(len(task.title) for task in result.tasks)
    lines += [_task_line(task, width) for task in result.tasks]
    if questions:
        lines += [_question_line(questions, width), *(f"      {line}" for line in advice)]
    lines += [line for check in result.stretch for line in _stretch_lines(check, width)]
    points = result.points + sum(question.points for question in questions)
    most = sum(task.max for task in result.tasks) + sum(question.max for question in questions)
    lines.append(f"  {points}/{most}.  {next_step}".rstrip())
    worst = result.worst()
    if worst is not None:
        lines += ["", *format_failure(*worst, trace=trace, place=place)]
        lines += _other_lines(result, worst[1])
        if result.output:
            lines += ["", "  what the code printed, last lines:", *(f"      {line}" for line in result.output)]
    return "\n".join(lines)


def _title(result: LabResult, num_questions: int, file: ResultFile | None) -> str:
    words = [f"Lab {result.lab.number} {result.lab.title}"]
    if file is not None:
        words.append(f"seed {file.seed[:SEED_DIGITS]}")
        if len(file.files) == 1:
            words.append(f"{file.files[0].name} {count(file.files[0].lines, 'line')}")
    asked = [count(len(result.tasks), "task")] * bool(result.tasks)
    asked += [count(num_questions, "question")] * bool(num_questions)
    return " · ".join([*words, *([", ".join(asked)] if asked else [])])


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
        if outcome.left_out:
            parts.append(f"{result.check.id}: after {outcome.left_out} is right")
        elif outcome.families:
            right = [name for name, ok in outcome.families.items() if ok]
            parts.append(f"{result.check.id}: right {' '.join(right) or 'none'}")
        else:
            parts.append(f"{result.check.id} {outcome.passed}/{outcome.cases}")
    if _is_valid(task):
        parts.append("valid, but vLLM decides otherwise")
    return f"{head}   {' · '.join(parts)}"


def _stretch_lines(result: CheckResult, width: int) -> list[str]:
    """What counts nothing: in one line, and the first case that is not so yet in another."""
    outcome = result.outcome
    mark = "✓" if outcome.passed == outcome.cases else "·"
    lines = [f"  {'    stretch':<{width + 4}}  {mark}         {result.check.id} {outcome.passed}/{outcome.cases}"]
    if outcome.failures:
        first = outcome.failures[0]
        lines[0] += f": {result.check.title}"
        lines.append(f"      {first.case}, {first.where}: {first.got}")
    return lines


def _is_valid(task: TaskResult) -> bool:
    """Whether all rules hold, and only decisions are other ones."""
    rules = [result for result in task.checks if result.check.id == "invariants"]
    failures = task.failures
    return bool(
        failures
        and rules
        and all(result.points == result.check.points for result in rules)
        and all(failure.kind == "decision" for failure in failures)
    )


def _question_line(questions: Sequence[QuestionEntry], width: int) -> str:
    points, most = sum(q.points for q in questions), sum(q.max for q in questions)
    wrong = [f"{q.id} {q.status.replace('_', ' ')}" for q in questions if q.status != "right"]
    mark = "✓" if points == most else "·"
    return f"  {'    questions':<{width + 4}}  {mark} {points:>2}/{most}   {', '.join(wrong)}".rstrip()


def format_failure(task: TaskResult, failure: Failure, trace: str = "", place: str = "") -> list[str]:
    """One failure in full. Every line that has something to say is there; no assertion, no traceback of ours."""
    says = f"            ({failure.says})" if failure.says else ""
    hint = f"minivllm lab hint {task.id.partition('.')[0].zfill(2)} {failure.hint or task.id}"
    rows = [
        ("input", failure.input),
        ("where", _where(failure)),
        ("before", failure.before),
        ("last line" if failure.kind == "hang" else "line", failure.line),
        ("expected", failure.expected + says),
        ("got", failure.got),
        ("looks like", failure.looks_like),
        ("besides", BESIDES if failure.kind == "hang" else ""),
        ("trace", trace),
        ("next", f"{hint} --dir {place}" if place else hint),
    ]
    head = f"  ✗ {task.id} {task.title}, {failure.case}"
    if failure.kind == "hang":
        head += ": stopped"
    return [head, *(f"      {label:<{LABEL_WIDTH}}{text}" for label, text in rows if text)]


def _where(failure: Failure) -> str:
    """Step, event of the trace, and boundary."""
    if failure.event is None or failure.step is None:
        return failure.where
    step = f"step {failure.step}"
    return f"{step}, event {failure.event}{failure.where.removeprefix(step)}"


def format_search(found: Any, path: Any = None) -> str:
    """What `--search` found: a Found, or the number of workloads that it tried. path: where its rung was written."""
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
    tail = f"      Please send {path or 'the last line'} to your instructor: it is a rung that the ladder lacks."
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
