"""The command `view`: a trace becomes a page.

Owns: arguments, and what is printed.
Interface: add_arguments, run.
Must not know: how the page is made.
"""

import argparse
import webbrowser
from pathlib import Path

from minivllm.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `view`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file: .jsonl or .jsonl.gz")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: beside the trace, .html)")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="of the model, for the texts of tokens (the default's is found)",
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and say where it is. Raises InputError for what is no trace; then there is no page."""
    from minivllm.show.commands import load
    from minivllm.show.page.render import render
    from minivllm.trace.check import one_line_errors

    if arguments.tokenizer is not None and not arguments.tokenizer.is_dir():
        raise InputError(f"There is no folder {arguments.tokenizer}. Give --tokenizer the folder of the trace's model.")
    trace = load(arguments.trace)
    name = arguments.trace.name.removesuffix(".gz").removesuffix(".jsonl")
    out = arguments.out or arguments.trace.parent / f"{name}.html"
    with one_line_errors(arguments.trace):
        path = render(trace, out, name, arguments.tokenizer)
    print(f"{path}  {path.stat().st_size / 1000:,.0f} kB, {len(trace):,} events", flush=True)
    if arguments.open and not webbrowser.open(path.resolve().as_uri()):
        print("No browser was found; open the file by hand.", flush=True)
    return 0
