"""`minivllm refs check | drift | lock | map`.

Owns: arguments, and what is printed. Status 0 if all is well, 1 if something was found, 2 for a user's mistake.
Must not know: how references are found, checked or followed.
"""

import argparse
import sys
from pathlib import Path

from minivllm.errors import InputError
from minivllm.proof.refs import drift_page, map_page, report
from minivllm.proof.refs.check import check
from minivllm.proof.refs.collect import collect, find_project
from minivllm.proof.refs.drift import STATUSES, drift, resting_on
from minivllm.proof.refs.lock import PINNED, make_lock, read_lock, write_lock
from minivllm.proof.refs.source import Tree, open_tree
from minivllm.proof.refs.wheel import fetch_wheel

WHERE = "a folder that holds vllm/, a wheel, a version that is installed or was fetched, or `installed`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands; each is run by `run`."""
    commands = parser.add_subparsers(dest="refs_command", required=True, metavar="COMMAND")

    checking = commands.add_parser("check", help="are all references right? Against the lock, or against a real vLLM")
    _add_tree(checking)
    checking.add_argument("--json", action="store_true", help="print JSON")

    drifting = commands.add_parser("drift", help="what became of each symbol in another version, and what rests on it")
    _add_tree(drifting)
    drifting.add_argument("--format", choices=("table", "json", "markdown"), default="table", help="default: table")
    drifting.add_argument("--only", metavar="STATUS", help=f"show these only, comma-separated: {', '.join(STATUSES)}")
    drifting.add_argument("--all", action="store_true", help="all locked symbols, also those nothing of ours rests on")
    drifting.add_argument(
        "--page",
        action="store_true",
        help="write docs/drift.md; with --vllm or --fetch (several, comma-separated) compare with these versions anew",
    )

    locking = commands.add_parser("lock", help=f"make the lock again from vLLM {PINNED}")
    _add_tree(locking)
    locking.add_argument("--prune", action="store_true", help="drop the symbols that nothing of ours refers to")

    mapping = commands.add_parser("map", help="write docs/vllm-map.md, the request's path with vLLM's symbols")
    mapping.add_argument("--print", action="store_true", dest="print_only", help="print it instead")


def _add_tree(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vllm", metavar="WHERE", help=WHERE)
    where.add_argument("--fetch", metavar="VERSION", help="fetch the CPU wheel of a version with pip, once")


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; returns the exit status. Raises InputError for a user's mistake."""
    return {"check": run_check, "drift": run_drift, "lock": run_lock, "map": run_map}[arguments.refs_command](arguments)


def _tree(where: str | None, fetch: str | None) -> Tree | None:
    if fetch is not None:
        wheel = fetch_wheel(fetch.removeprefix("v"))
        return open_tree(str(wheel))
    return open_tree(where) if where is not None else None


def run_check(arguments: argparse.Namespace) -> int:
    """Check every reference; status 1 if one is wrong."""
    tree = _tree(arguments.vllm, arguments.fetch)
    checked = check(collect(find_project()), read_lock(), tree)
    if tree is not None and tree.version != PINNED:
        print(
            f"minivllm: this is vLLM {tree.version or 'of an unknown version'}, and the references are those of "
            f"{PINNED}: differences are to be expected, `minivllm refs drift` sorts them.",
            file=sys.stderr,
        )
    print(report.checked_json(checked) if arguments.json else report.checked_text(checked))
    return 1 if checked.findings else 0


def run_drift(arguments: argparse.Namespace) -> int:
    """Compare the pinned version with another; status 0 whatever came out."""
    if arguments.page:
        return _drift_page(arguments)
    tree = _tree(arguments.vllm, arguments.fetch)
    if tree is None:
        raise InputError("Give the version to compare with: --vllm WHERE or --fetch VERSION.")
    only = arguments.only.split(",") if arguments.only else []
    unknown = [status for status in only if status not in STATUSES]
    if unknown:
        raise InputError(f"--only {arguments.only}: {unknown} is not among {', '.join(STATUSES)}.")
    lock = read_lock()
    places = resting_on(collect(find_project()).uses)
    entries = [entry for key, entry in lock.entries.items() if arguments.all or key in places]
    verdicts = drift(lock, tree, entries)
    name = tree.version or tree.label
    show = {"table": report.drift_table, "json": report.drift_json, "markdown": report.drift_markdown}
    print(show[arguments.format](lock.version, name, verdicts, places, *([only] if only else [])))
    return 0


def _drift_page(arguments: argparse.Namespace) -> int:
    project, lock = find_project(), read_lock()
    if arguments.vllm or arguments.fetch:
        wanted = (arguments.vllm or arguments.fetch).split(",")
        trees = [_tree(one, None) if arguments.vllm else _tree(None, one) for one in wanted]
        drift_page.write_data(lock, [tree for tree in trees if tree is not None], project.root)
    page = drift_page.page(drift_page.read_data(project.root), project, lock, collect(project))
    return _write(project.root / drift_page.PAGE, page)


def run_lock(arguments: argparse.Namespace) -> int:
    """Lock what is referred to and what was locked; status 1 if something of it is not in vLLM."""
    tree = _tree(arguments.vllm or (None if arguments.fetch else PINNED), arguments.fetch)
    assert tree is not None
    if tree.version != PINNED:
        raise InputError(f"The lock is of vLLM {PINNED}, and {tree.label} is {tree.version or 'of unknown version'}.")
    targets = {(use.path, use.name) for use in collect(find_project()).uses if use.name}
    if not arguments.prune:
        targets |= set(read_lock().entries)
    lock, missing = make_lock(tree, targets)
    for target in missing:
        print(f"not in vLLM {PINNED}: {target}")
    write_lock(lock)
    print(f"{len(lock.entries)} symbols of {len(lock.files)} files of vLLM {lock.version} are locked")
    return 1 if missing else 0


def run_map(arguments: argparse.Namespace) -> int:
    """Write the map of the request's path."""
    project = find_project()
    page = map_page.page(project, read_lock(), collect(project))
    if arguments.print_only:
        print(page, end="")
        return 0
    return _write(project.root / map_page.PAGE, page)


def _write(path: Path, text: str) -> int:
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} does not exist: pages are written in a clone of the project.")
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")
    return 0
