"""`minivllm why`, `minivllm diff` and `minivllm export`: questions to trace files.

Owns: the arguments, what is printed, the exit status.
Interface: add_why_arguments, run_why; add_diff_arguments, run_diff; add_export_arguments, run_export.
Must not know: how an answer is found.
"""

import argparse
import sys
from pathlib import Path

from minivllm.errors import InputError
from minivllm.files import write_file
from minivllm.printable import printable
from minivllm.show.diff import diff, format_diff
from minivllm.show.explain import explain_all, format_explanation
from minivllm.show.export import FORMATS, default_path, export
from minivllm.trace.check import one_line_errors
from minivllm.trace.replay import Trace

STDOUT = "-"


def load(path: Path) -> Trace:
    """The trace in a file; a line on stderr says if its end is missing. Raises InputError for what is no trace."""
    trace = Trace.load(path)
    if trace.truncated:
        print(f"minivllm: {printable(path)} was cut off: what follows is about the part that is there", file=sys.stderr)
    return trace


# ---------------------------------------------------------------------- why


def add_why_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minivllm why`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, .jsonl or .jsonl.gz")
    parser.add_argument(
        "request", metavar="REQUEST", help="its id, as the caller knows it (0, 1, …) or the internal one"
    )
    parser.add_argument("--step", type=int, metavar="N", help="why this step did what it did (default: its whole life)")


def run_why(arguments: argparse.Namespace) -> int:
    """Say why a request got what it got; status 0. Raises InputError for a trace, request or step that isn't there."""
    trace = load(arguments.trace)
    with one_line_errors(arguments.trace):
        texts = [format_explanation(one) for one in explain_all(trace, arguments.request, arguments.step)]
    print("\n\n".join(texts))
    return 0


# ---------------------------------------------------------------------- diff


def add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minivllm diff`."""
    parser.add_argument("a", type=Path, metavar="A", help="a trace, .jsonl or .jsonl.gz")
    parser.add_argument("b", type=Path, metavar="B", help="another one of the same requests")


def run_diff(arguments: argparse.Namespace) -> int:
    """Say where two traces part; status 0 if they don't, 1 if they do. Raises InputError for what is no trace."""
    a, b = load(arguments.a), load(arguments.b)
    with one_line_errors(arguments.a if arguments.a == arguments.b else f"{arguments.a} and {arguments.b}"):
        found = diff(a, b)
        text = format_diff(found, _names(arguments.a, arguments.b))
    print(text)
    return 0 if found.same else 1


def _names(a: Path, b: Path) -> tuple[str, str]:
    return (a.name, b.name) if a.name != b.name else (str(a), str(b))


# ---------------------------------------------------------------------- export


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `minivllm export`."""
    formats = "; ".join(f"{name}: {form.about}" for name, form in FORMATS.items())
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace, .jsonl or .jsonl.gz")
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help=formats)
    parser.add_argument("--out", metavar="FILE", help="where to write it, - for stdout (default: beside the trace)")


def run_export(arguments: argparse.Namespace) -> int:
    """Write a trace in another tool's format; status 0. Raises InputError if it can't be read or written."""
    trace = load(arguments.trace)
    with one_line_errors(arguments.trace):
        data = export(trace, arguments.to)
    if arguments.out == STDOUT:
        sys.stdout.buffer.write(data)
        return 0
    out = Path(arguments.out) if arguments.out else default_path(arguments.trace, arguments.to)
    try:
        write_file(out, data)
    except OSError as error:
        raise InputError(f"The export can't be written to {out}: {error.strerror}. Give another --out.") from None
    print(f"{out}: {FORMATS[arguments.to].about}")
    return 0
