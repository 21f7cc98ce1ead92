"""The command line: one table of commands, each loaded when it is called.

Owns: the table, what an error looks like, exit status. A mistake of the user's is one line on stderr and status 2, an
engine that died is status 1; neither shows a traceback.
Must not know: how anything is done, or which arguments a command has.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from minivllm import __version__
from minivllm.errors import EngineDeadError, InputError, ModelError
from minivllm.paths import check_current_folder
from minivllm.printable import PrintableStream, one_line, printable

# name -> help, module, suffix of its functions: `add{suffix}_arguments(parser)` and `run{suffix}(arguments) -> status`
Table = dict[str, tuple[str, str, str]]
BENCH: Table = {
    "throughput": ("64 requests together, one alone: tokens a second", "proof.bench.commands", "_throughput"),
    "latency": ("first token and step time, by batch and by context", "proof.bench.commands", "_latency"),
    "scheduler": ("what a step costs without the model", "proof.bench.commands", "_scheduler"),
    "tracing": ("what a trace costs, at each detail", "proof.bench.commands", "_tracing"),
    "startup": ("from nothing to the first token", "proof.bench.commands", "_startup"),
    "kernels": ("this machine's limits, and how near the kernels come", "proof.bench.commands", "_kernels"),
    "memory": ("peak, growth over many requests, size of the pool", "proof.bench.commands", "_memory"),
    "page": ("write docs/performance.md from the results in traces/bench/", "proof.bench.commands", "_page"),
    "gpu": ("a random model of 1B-like shapes, end to end on a CUDA GPU", "proof.bench.gpu", ""),
}
COMMANDS: Table = {
    "trace": ("answer one prompt and write the trace of its life", "course.commands", "_trace"),
    "generate": ("answer one prompt", "course.commands", "_generate"),
    "model": ("where the default model lies and what it is", "course.commands", "_model"),
    "doctor": ("what works on this machine, and what to do about the rest", "proof.doctor", ""),
    "record": ("run a named scenario on a logical clock and write its trace", "course.scenarios.command", ""),
    "why": ("why a request got what it got in a step; where its time went", "show.commands", "_why"),
    "diff": ("where two traces of one workload part", "show.commands", "_diff"),
    "export": ("a trace for Perfetto, as CSV, or as OpenTelemetry spans", "show.commands", "_export"),
    "view": ("a trace as one page to look at in a browser", "show.page.commands", ""),
    "lockstep": ("compare the engine with recordings of the real vLLM", "proof.lockstep.command", ""),
    "lab": ("build parts of the engine, graded by what the real vLLM decided", "course.grader.cli", ""),
    "refs": ("check the references to vLLM's source; what moved in another version", "proof.refs.cli", ""),
    "kernels": ("compile the Triton kernels for a GPU; show what a launch touched", "proof.kernels_cli", ""),
    "bench": ("measure the engine", "", ""),  # a table of its own
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    vLLM: entrypoints/cli/main.py::main (role)
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a stdout that isn't UTF-8 can't have every character
    with redirect_stdout(PrintableStream(sys.stdout)):
        with redirect_stderr(PrintableStream(sys.stderr)):  # not longer: progress bars need their control characters
            arguments = parse(sys.argv[1:] if argv is None else argv)
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        check_current_folder()
        status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except (InputError, ModelError) as error:
        print(f"minivllm: {printable(error)}", file=sys.stderr)
        return 2
    except EngineDeadError as error:
        print(f"minivllm: {printable(error)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # whoever read our output has had enough, as `| head` does; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a closed folder, a name that is no folder
        remedy = "Name a place that can be used, or make room there."
        if error.errno in (errno.EMFILE, errno.ENFILE):
            remedy = "Allow more open files (ulimit -n)."
        print(f"minivllm: {one_line(error)}. {remedy}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "minivllm":
            raise
        print(
            f"minivllm: this needs the package {error.name!r}. Install what the engine needs: "
            "pip install 'minivllm[engine]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("\nminivllm: interrupted", file=sys.stderr)
        return 130


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, with `run` to call. Only the module of the command that is named is loaded."""
    parser = argparse.ArgumentParser(
        prog="minivllm", description="The life of one request of vLLM 0.22.0, in a small engine that can be traced."
    )
    parser.add_argument("--version", action="version", version=f"minivllm {__version__} (mirrors vLLM 0.22.0)")
    words = [word for word in argv if not word.startswith("-")]
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    bench = _add_commands(commands, COMMANDS, words[:1])["bench"]
    if words[:1] == ["bench"]:
        _add_commands(bench.add_subparsers(required=True, metavar="WHAT"), BENCH, words[1:2])
    if not argv:
        parser.print_help(sys.stderr)
        parser.exit(2)
    return parser.parse_args(argv)


def _add_commands(commands: Any, table: Table, wanted: Sequence[str]) -> dict[str, argparse.ArgumentParser]:
    parsers = {name: commands.add_parser(name, help=about) for name, (about, _, _) in table.items()}
    for name in wanted:
        _, module, suffix = table.get(name, ("", "", ""))
        if module:
            command = importlib.import_module(f"minivllm.{module}")
            getattr(command, f"add{suffix}_arguments")(parsers[name])
            parsers[name].set_defaults(run=getattr(command, f"run{suffix}"))
    return parsers


if __name__ == "__main__":
    sys.exit(main())
