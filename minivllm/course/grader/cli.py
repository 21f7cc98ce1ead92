"""The command `lab`: list, start, check, hint, run, questions, submit; and for instructors build, collect, regrade.

Owns: arguments, what is printed, exit status: 0 all points of the code, 1 some missing, 2 the file can't be loaded,
3 the grader's files were changed, 4 usage.
Must not know: how anything is checked.
"""

import argparse
import sys
from pathlib import Path
from types import MethodType
from typing import Any, NoReturn

from minivllm.errors import InputError
from minivllm.printable import printable

USAGE_ERROR = 4


class LabParser(argparse.ArgumentParser):
    """A parser that ends with status 4: 2 is for a student's file that can't be loaded."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: {message}\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `lab`. Importing this module must be cheap."""
    parser.error = MethodType(LabParser.error, parser)  # it was made elsewhere
    commands = parser.add_subparsers(
        title="lab commands", required=True, metavar="WHAT", dest="what", parser_class=LabParser
    )

    commands.add_parser("list", help="the labs, with times and points")
    start = commands.add_parser("start", help="a folder to work in: starter, README, your questions")
    start.add_argument("lab", nargs="?", metavar="NN", help="the number of a lab; left out with --all")
    start.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="default: my-labs/NN, or class/ for a class")
    start.add_argument(
        "--seed", default="practice", metavar="ID", help="your student id; it makes your questions yours"
    )
    start.add_argument("--salt", default="", help="of the course, as the instructor says")
    start.add_argument("--all", action="store_true", help="every lab, in place of NN")
    start.add_argument("--seed-file", type=Path, metavar="FILE", help="for a class: a folder for each id of the file")
    check = _with_lab(commands, "check", "grade what is there, and show what helps most")
    check.add_argument("--task", action="append", metavar="4.2", help="only this task; may be given again")
    check.add_argument("--json", type=Path, metavar="FILE", help="write the result for a program to read")
    check.add_argument(
        "--search", type=float, metavar="SECONDS", help="then look for workloads on which yours and the engine differ"
    )
    hint = _with_lab(commands, "hint", "one hint for a task", folder=False)
    hint.add_argument("task", nargs="?", metavar="TASK", help="4.2; without one, what there is")
    hint.add_argument("level", nargs="?", type=int, help="1 to 3; without it, the next one")
    hint.add_argument("--dir", type=Path, metavar="DIR", help="the folder that you work in")
    run = _with_lab(commands, "run", "generate text with your part in the real engine, and open its trace")
    run.add_argument("--parts", metavar="03,04", help="plug in several finished labs at once")
    run.add_argument("--no-open", action="store_true", help="do not open the page")
    _with_lab(commands, "questions", "print your questions again")
    submit = _with_lab(commands, "submit", "write one file with results, seed and hashes")
    submit.add_argument("--out", type=Path, metavar="FILE", help="default: lab-NN.json in the folder")

    build = commands.add_parser("build", help="measure the wrong solutions anew, and write what tells them apart")
    build.add_argument("labs", nargs="*", metavar="NN", help="without one, all")
    build.add_argument("--check", action="store_true", help="write nothing; status 1 if something is not up to date")
    build.add_argument("--notebook", action="store_true", help="the notebooks too (needs minivllm[notebooks])")
    collect = commands.add_parser("collect", help="a table of the submissions of a folder")
    collect.add_argument("folder", type=Path)
    collect.add_argument("--csv", type=Path, metavar="FILE")
    regrade = commands.add_parser("regrade", help="check the starters of a folder again, and sign the results")
    regrade.add_argument("folder", type=Path)
    regrade.add_argument("--salt", default="", help="of the course: the seeds are made anew from the folders' names")
    regrade.add_argument("--strict", action="store_true", help="no share of a task's points for what is right in it")
    regrade.add_argument("--sign", metavar="KEY", help="sign the results with this key")


def _with_lab(commands: Any, name: str, about: str, folder: bool = True) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about)
    parser.add_argument("lab", metavar="NN", help="the number of a lab")
    if folder:
        parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="default: my-labs/NN")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run one lab command; returns the exit status. A mistake in the call is one line and status 4."""
    try:
        return globals()[f"_{arguments.what}"](arguments)
    except InputError as error:
        print(f"minivllm lab: {printable(error)}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "minivllm":
            raise
        print(
            f"minivllm lab: {printable(error)}. Install what the engine needs: pip install 'minivllm[engine]'",
            file=sys.stderr,
        )
    except OSError as error:  # a file that was named can't be read or written
        print(
            f"minivllm lab: {printable(error.strerror)}: {printable(error.filename)}. Name a place that can be used.",
            file=sys.stderr,
        )
    return USAGE_ERROR


def _folder(arguments: argparse.Namespace) -> tuple[Any, Path]:
    from minivllm.course.grader.catalog import get_lab
    from minivllm.course.grader.folder import default_folder

    lab = get_lab(arguments.lab)
    return lab, arguments.dir or default_folder(lab)


# ---------------------------------------------------------------------- for students


def _list(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.catalog import every_lab

    for lab in every_lab():
        points = sum(task.points for task in lab.tasks)
        asked = " + questions" if lab.form == "parts" else ""
        print(f"{lab.number}  {lab.title:<40} {lab.minutes:>3} min  {points} points{asked}   needs {lab.needs}")
    print("Begin with: minivllm lab start NN")
    return 0


def _start(arguments: argparse.Namespace) -> int:
    if arguments.all and arguments.lab is not None:
        if arguments.dir is not None:
            raise InputError("--all takes no number of a lab, only a folder.")
        arguments.lab, arguments.dir = None, Path(arguments.lab)
    if arguments.lab is None and not arguments.all:
        raise InputError("Which lab? `minivllm lab list` shows them; --all takes every one.")
    if arguments.all or arguments.seed_file is not None:
        return _start_many(arguments)
    from minivllm.course.grader.folder import start

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


def _start_many(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.catalog import every_lab, get_lab
    from minivllm.course.grader.collect import CLASS, read_ids, start_class
    from minivllm.course.grader.folder import start

    labs = every_lab() if arguments.all else [get_lab(arguments.lab)]
    if arguments.seed_file is not None:
        for line in start_class(labs, arguments.dir or CLASS, read_ids(arguments.seed_file), arguments.salt):
            print(line, flush=True)
        return 0
    folder = arguments.dir or Path("my-labs")
    begun = [lab for lab in labs if (folder / lab.number / lab.begun_with).exists()]
    for lab in labs:
        if lab not in begun:
            print(start(lab, folder / lab.number, arguments.seed, arguments.salt), flush=True)
    if begun:
        print(f"There already, and kept: {', '.join(lab.number for lab in begun)}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.report import format_result
    from minivllm.course.grader.result import to_json
    from minivllm.course.grader.work import check

    lab, folder = _folder(arguments)
    for task in arguments.task or ():
        if lab.form == "parts":
            lab.task(task)
    checked = check(lab, folder, arguments.task)
    place = "" if arguments.dir is None else str(folder.parent if folder.suffix == ".py" else folder)
    next_step = _next_step(lab, checked, place)
    print(
        format_result(checked.result, checked.questions, checked.trace, next_step, place, checked.file, checked.advice)
    )
    print("".join(f"  {line}\n" for line in checked.notices), end="")
    if not checked.intact:
        print("  The grader's own files were changed while it ran: this result is void.")
    if arguments.json is not None:
        arguments.json.write_text(to_json(checked.file), encoding="utf-8")
    if arguments.search and checked.intact:
        if checked.file.exit == 0:
            return _search(lab, folder, arguments.search)
        print("  search: for code that passes all of this. First what is shown above.")
    return checked.file.exit


def _search(lab: Any, place: Path, seconds: float) -> int:
    from minivllm.course.grader.folder import starter_in
    from minivllm.course.grader.judge import Subject
    from minivllm.course.grader.report import format_search
    from minivllm.course.grader.search import save_rung, search

    with Subject(lab, starter_in(lab, place)) as subject:
        found = search(lab, subject, seconds)
    path = None if isinstance(found, int) else save_rung(lab, found)
    print(format_search(found, path))
    return 0 if path is None else 1


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
    if any(question.status != "right" for question in checked.questions):
        return f"Next: minivllm lab run {given}, and the questions in questions.md"
    return f"Next: minivllm lab run {given}, then minivllm lab submit {given}"


def _hint(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.folder import take_hint, tell_hints

    lab, folder = _folder(arguments)
    if arguments.task is None:
        print(tell_hints(lab, folder))
    else:
        print(take_hint(lab, folder, arguments.task, arguments.level))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.plug import run_lab

    lab, folder = _folder(arguments)
    if lab.form == "cases":
        raise InputError(f"Lab {lab.number} has no part to plug in: `lab check {lab.number}` runs its mended methods.")
    return run_lab(lab, folder, others=arguments.parts, open_page=not arguments.no_open)


def _questions(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader import seeds
    from minivllm.course.grader.folder import read_note

    lab, folder = _folder(arguments)
    if lab.form == "cases":
        raise InputError(f"Lab {lab.number} has no questions; its cases are in {folder / 'cases'}.")
    seed = int(read_note(lab, folder).seed, 16)
    print(seeds.format_questions(lab, seeds.ask(lab, seed)))
    return 0


def _submit(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.result import to_json
    from minivllm.course.grader.work import check

    lab, folder = _folder(arguments)
    checked = check(lab, folder)
    target = arguments.out or (folder if folder.is_dir() else folder.parent) / f"lab-{lab.number}.json"
    target.write_text(to_json(checked.file), encoding="utf-8")
    print(f"{checked.file.total}/{checked.file.max} points: {target}")
    print("".join(f"  {line}\n" for line in checked.notices), end="")
    return checked.file.exit


# ---------------------------------------------------------------------- for instructors


def _build(arguments: argparse.Namespace) -> int:
    import os

    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: wrong kernels are measured as Python
    from minivllm.course.grader.build import build, build_notebook, build_schema, refused_questions, stale, stale_schema
    from minivllm.course.grader.catalog import every_lab, get_lab
    from minivllm.course.places import ROOT

    labs = [get_lab(number, begun=True) for number in arguments.labs] or every_lab()
    if arguments.check:
        found = [*stale_schema(ROOT), *(line for lab in labs for line in stale(lab))]
        print("\n".join(found) or f"{len(labs)} lab{'s are' if len(labs) != 1 else ' is'} up to date")
        return 1 if found else 0
    print(build_schema(ROOT))
    refused = []
    for lab in labs:
        lines = build(lab) if lab.form == "parts" else []
        if arguments.notebook:
            lines.append(build_notebook(lab))
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
        refused += refused_questions(lab) if lab.form == "parts" else []
    print("".join(f"{line}\n" for line in refused), end="")
    return 1 if refused else 0


def _collect(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.collect import collect

    print(collect(arguments.folder, arguments.csv))
    return 0


def _regrade(arguments: argparse.Namespace) -> int:
    from minivllm.course.grader.collect import regrade

    all_graded = True
    for line, graded in regrade(arguments.folder, arguments.salt, arguments.sign, arguments.strict):
        print(line, flush=True)
        all_graded &= graded
    return 0 if all_graded else 1
