"""The command `lab`: list, start, check, hint, run, questions, submit; and for instructors build, collect, regrade.

Owns: arguments, what is printed, exit status: 0 all points of the code, 1 some missing, 2 the file can't be loaded,
3 the grader's files were changed, 4 usage.
Must not know: how anything is checked.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

USAGE_ERROR = 4
GRADER_CHANGED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `lab`. Importing this module must be cheap.

    vLLM: none, vLLM has no labs
    """
    commands = parser.add_subparsers(title="lab commands", required=True, metavar="WHAT", dest="what")

    commands.add_parser("list", help="the labs, with times and points")
    start = _with_lab(commands, "start", "a folder to work in: starter, README, your questions")
    start.add_argument(
        "--seed", default="practice", metavar="ID", help="your student id; it makes your questions yours"
    )
    start.add_argument("--salt", default="", help="of the course, as the instructor says")
    check = _with_lab(commands, "check", "grade what is there, and show what helps most")
    check.add_argument("--task", action="append", metavar="4.2", help="only this task; may be given again")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the result for a program to read")
    check.add_argument(
        "--search", type=float, metavar="SECONDS", help="then look for workloads on which yours and the engine differ"
    )
    hint = _with_lab(commands, "hint", "one hint for a task", folder=False)
    hint.add_argument("task", help="4.2")
    hint.add_argument("level", nargs="?", type=int, help="1 to 3; without it, the next one")
    hint.add_argument("--dir", type=Path, metavar="DIR", help="the folder that you work in")
    run = _with_lab(commands, "run", "generate text with your part in the real engine, and open its trace")
    run.add_argument("--parts", metavar="03,04", help="plug in several finished labs at once")
    run.add_argument("--no-open", action="store_true", help="do not open the page")
    _with_lab(commands, "questions", "print your questions again")
    submit = _with_lab(commands, "submit", "write one file with results, seed and hashes")
    submit.add_argument("--out", type=Path, metavar="FILE", help="default: lab-NN.json in the folder")

    build = commands.add_parser("build", help="cut the starters from the engine; measure the wrong solutions")
    build.add_argument("labs", nargs="*", metavar="NN", help="without one, all")
    build.add_argument("--check", action="store_true", help="write nothing; status 1 if something is not up to date")
    build.add_argument("--notebook", action="store_true", help="the notebooks too (needs minivllm[notebooks])")
    collect = commands.add_parser("collect", help="a table of the submissions of a folder")
    collect.add_argument("folder", type=Path)
    collect.add_argument("--csv", type=Path, metavar="FILE")
    regrade = commands.add_parser("regrade", help="check the starters of a folder again, and sign the results")
    regrade.add_argument("folder", type=Path)
    regrade.add_argument("--salt", default="", help="of the course: the seeds are made anew from ids.txt")
    regrade.add_argument("--sign", metavar="KEY", help="sign the results with this key")


def _with_lab(commands: Any, name: str, about: str, folder: bool = True) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about)
    parser.add_argument("lab", metavar="NN", help="the number of a lab")
    if folder:
        parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="default: my-labs/NN")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run one lab command; returns the exit status. A mistake in the call is one line and status 4.

    vLLM: none, vLLM has no labs
    """
    import sys

    try:
        return globals()[f"_{arguments.what}"](arguments)
    except InputError as error:
        print(f"minivllm lab: {error}", file=sys.stderr)
        return USAGE_ERROR


def _folder(arguments: argparse.Namespace) -> tuple[Any, Path]:
    from minivllm.labs.catalog import get_lab
    from minivllm.labs.work import default_folder

    lab = get_lab(arguments.lab)
    return lab, arguments.dir or default_folder(lab)


# ---------------------------------------------------------------------- for students


def _list(arguments: argparse.Namespace) -> int:
    from minivllm.labs.catalog import every_lab

    for lab in every_lab():
        points = sum(task.points for task in lab.tasks)
        asked = " + questions" if lab.form == "parts" else ""
        print(f"{lab.number}  {lab.title:<40} {lab.minutes:>3} min  {points} points{asked}   needs {lab.needs}")
    print("Begin with: minivllm lab start NN")
    return 0


def _start(arguments: argparse.Namespace) -> int:
    from minivllm.labs.work import start

    lab, folder = _folder(arguments)
    start(lab, folder, arguments.seed, arguments.salt)
    print(f"Lab {lab.number}, {lab.title}: {lab.goal}")
    print(f"  read      {folder / 'README.md'}")
    if lab.form == "cases":
        print(f"  cases     {folder / 'cases'}: for each a complaint A.md and a trace A.jsonl")
        print("  answer    into A.toml, and mend the method in A.py")
    else:
        print(f"  edit      {folder / 'starter.py'}")
        print(f"  answer    {folder / 'questions.md'}, into answers.toml")
    print(f"  then      minivllm lab check {lab.number}{'' if arguments.dir is None else f' {folder}'}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from minivllm.labs.report import as_json, exit_status, format_result
    from minivllm.labs.work import check

    lab, folder = _folder(arguments)
    for task in arguments.task or ():
        if lab.form == "parts":
            lab.task(task)
    checked = check(lab, folder, arguments.task)
    place = "" if arguments.dir is None else str(folder.parent if folder.suffix == ".py" else folder)
    print(format_result(checked.result, checked.questions, checked.trace, _next_step(lab, checked, place), place))
    if not checked.intact:
        print("  The grader's own files were changed while it ran: this result is void.")
    if arguments.json is not None:
        text = json.dumps(as_json(checked.result, checked.questions, **checked.facts), indent=1, sort_keys=True)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.search and checked.intact and exit_status(checked.result) == 0:
        return _search(lab, folder, arguments.search)
    return exit_status(checked.result) if checked.intact else GRADER_CHANGED


def _search(lab: Any, place: Path, seconds: float) -> int:
    from minivllm.labs.judge import Subject
    from minivllm.labs.report import format_search
    from minivllm.labs.search import search
    from minivllm.labs.work import starter_in

    with Subject(lab, starter_in(lab, place)) as subject:
        found = search(lab, subject, seconds)
    print(format_search(found))
    return 0 if isinstance(found, int) else 1


def _next_step(lab: Any, checked: Any, place: str) -> str:
    if lab.form == "cases":
        left = [task.id.partition(".")[2] for task in checked.result.tasks if task.points < task.max]
        return f"Next: cases/{left[0]}.md" if left else ""
    if any(task.status == "not_written" for task in checked.result.tasks):
        first = next(task for task in checked.result.tasks if task.status == "not_written")
        return f"Next: write {first.id}"
    if checked.result.worst() is not None or checked.result.load_error is not None:
        return ""
    if len(checked.result.tasks) < len(lab.tasks):
        return "Next: the other tasks"
    given = f"{lab.number} {place}".rstrip()
    if any(question["status"] != "right" for question in checked.questions):
        return f"Next: minivllm lab run {given}, and the questions in questions.md"
    return f"Next: minivllm lab run {given}, then minivllm lab submit {given}"


def _hint(arguments: argparse.Namespace) -> int:
    from minivllm.labs.work import take_hint

    lab, folder = _folder(arguments)
    print(take_hint(lab, folder, arguments.task, arguments.level))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from minivllm.labs.plug import run_lab

    lab, folder = _folder(arguments)
    if lab.form == "cases":
        raise InputError(f"Lab {lab.number} has no part to plug in: `lab check {lab.number}` runs its mended methods.")
    return run_lab(lab, folder, others=arguments.parts, open_page=not arguments.no_open)


def _questions(arguments: argparse.Namespace) -> int:
    from minivllm.labs import seeds
    from minivllm.labs.work import read_note

    lab, folder = _folder(arguments)
    if lab.form == "cases":
        raise InputError(f"Lab {lab.number} has no questions; its cases are in {folder / 'cases'}.")
    seed = int(read_note(lab, folder)["seed"], 16)
    print(seeds.format_questions(lab, seeds.ask(lab, seed)))
    return 0


def _submit(arguments: argparse.Namespace) -> int:
    from minivllm.labs.report import as_json, exit_status
    from minivllm.labs.work import check

    lab, folder = _folder(arguments)
    checked = check(lab, folder)
    result = as_json(checked.result, checked.questions, **checked.facts)
    target = arguments.out or (folder if folder.is_dir() else folder.parent) / f"lab-{lab.number}.json"
    target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{result['total']}/{result['max']} points: {target}")
    return exit_status(checked.result) if checked.intact else GRADER_CHANGED


# ---------------------------------------------------------------------- for instructors


def _build(arguments: argparse.Namespace) -> int:
    import os

    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: wrong kernels are measured as Python
    from minivllm.labs.build import build, build_notebook, stale
    from minivllm.labs.catalog import every_lab, get_lab

    labs = [get_lab(number, begun=True) for number in arguments.labs] or every_lab()
    if not arguments.check:
        for lab in labs:
            for line in [
                *(build(lab) if lab.form == "parts" else []),
                *([build_notebook(lab)] if arguments.notebook else []),
            ]:
                print(line, flush=True)
        return 0
    found = [line for lab in labs for line in stale(lab)]
    print("\n".join(found) or f"{len(labs)} labs are up to date")
    return 1 if found else 0


def _collect(arguments: argparse.Namespace) -> int:
    from minivllm.labs.collect import collect

    print(collect(arguments.folder, arguments.csv))
    return 0


def _regrade(arguments: argparse.Namespace) -> int:
    from minivllm.labs.collect import regrade

    for line in regrade(arguments.folder, arguments.salt, arguments.sign):
        print(line, flush=True)
    return 0
