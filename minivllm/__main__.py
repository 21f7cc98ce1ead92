"""The command line: `minivllm trace | generate | model | doctor | record | lockstep | refs | …`.

Owns: arguments, what is printed, exit status. A mistake of the user's is one line on stderr and status 2, an engine
that died is status 1; neither shows a traceback.
Must not know: how anything is done.
"""

import argparse
import importlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from minivllm import __version__
from minivllm.errors import EngineDeadError, InputError, ModelError
from minivllm.printable import PrintableStream, printable

DEFAULT_PROMPT = "What is the capital of France?"
DEFAULT_MAX_TOKENS = 64
TRACE_DIR = Path("traces/out")
# commands that bring their own arguments: name, module, suffix of its functions, help; importing them must be cheap
MODULE_COMMANDS = (
    ("why", "minivllm.show.commands", "_why", "why a request got what it got in a step; where its time went"),
    ("diff", "minivllm.show.commands", "_diff", "where two traces of one workload part"),
    ("export", "minivllm.show.commands", "_export", "a trace for Perfetto, as CSV, or as OpenTelemetry spans"),
    ("view", "minivllm.show.page.commands", "", "a trace as one page to look at in a browser"),
    ("lockstep", "minivllm.proof.lockstep.command", "", "compare the engine with recordings of the real vLLM"),
    ("lab", "minivllm.course.grader.cli", "", "build parts of the engine, graded by what the real vLLM decided"),
    ("refs", "minivllm.proof.refs.cli", "", "check the references to vLLM's source; what moved in another version"),
    ("kernels", "minivllm.proof.kernels_cli", "", "compile the Triton kernels for a GPU; show what a launch touched"),
)
BENCH_COMMANDS = (
    ("throughput", "minivllm.proof.bench.commands", "_throughput", "64 requests together, one alone: tokens a second"),
    ("latency", "minivllm.proof.bench.commands", "_latency", "first token and step time, by batch and by context"),
    ("scheduler", "minivllm.proof.bench.commands", "_scheduler", "what a step costs without the model"),
    ("tracing", "minivllm.proof.bench.commands", "_tracing", "what a trace costs, at each detail"),
    ("startup", "minivllm.proof.bench.commands", "_startup", "from nothing to the first token"),
    ("kernels", "minivllm.proof.bench.commands", "_kernels", "this machine's limits, and how near the kernels come"),
    ("memory", "minivllm.proof.bench.commands", "_memory", "peak, growth over many requests, size of the pool"),
    ("page", "minivllm.proof.bench.commands", "_page", "write docs/performance.md from the results in traces/bench/"),
    ("gpu", "minivllm.proof.bench.gpu", "", "a random model of 1B-like shapes, end to end on a CUDA GPU"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    vLLM: entrypoints/cli/main.py::main (role)
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a stdout that isn't UTF-8 can't have every character
    with redirect_stdout(PrintableStream(sys.stdout)):
        with redirect_stderr(PrintableStream(sys.stderr)):  # not longer: progress bars need their control characters
            arguments = _parser().parse_args(argv)
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except (InputError, ModelError) as error:
        print(f"minivllm: {printable(error)}", file=sys.stderr)
        return 2
    except EngineDeadError as error:
        print(f"minivllm: {printable(error)}", file=sys.stderr)
        return 1
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
    except BrokenPipeError:
        # whoever read our output has had enough, as `| head` does; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


# ---------------------------------------------------------------------- arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minivllm", description="The life of one request of vLLM 0.22.0, in a small engine that can be traced."
    )
    parser.add_argument("--version", action="version", version=f"minivllm {__version__} (mirrors vLLM 0.22.0)")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    trace = commands.add_parser("trace", help="answer one prompt and write the trace of its life")
    _add_generation_arguments(trace)
    trace.add_argument(
        "--out", type=Path, default=TRACE_DIR, help=f"a folder, or the .jsonl file itself (default: {TRACE_DIR})"
    )
    trace.add_argument("--detail", type=int, choices=(0, 1, 2), default=0, help="1: every layer; 2: values too")
    trace.add_argument(
        "--redact", action="store_true", help="write lengths in place of text and token ids, for a bug report"
    )
    trace.set_defaults(run=run_trace)

    generate = commands.add_parser("generate", help="answer one prompt")
    _add_generation_arguments(generate)
    generate.set_defaults(run=run_generate)

    model = commands.add_parser("model", help="where the default model lies and what it is")
    model.add_argument("--fetch", action="store_true", help="get it now, if it isn't there")
    model.set_defaults(run=run_model)

    doctor = commands.add_parser("doctor", help="what works on this machine, and what to do about the rest")
    doctor.set_defaults(run=run_doctor)

    record = commands.add_parser("record", help="run a named scenario on a logical clock and write its trace")
    record.add_argument("scenario", nargs="*", help="names; without one, the list of them")
    record.add_argument("--all", action="store_true", help="every scenario")
    record.add_argument("--check", action="store_true", help="compare with the traces that are there; write nothing")
    record.add_argument("--out", type=Path, default=TRACE_DIR, help=f"the folder (default: {TRACE_DIR})")
    record.add_argument("--model", help="a Hugging Face folder or hub id (default: SmolLM2-135M-Instruct)")
    record.set_defaults(run=run_record)

    _add_module_commands(commands, MODULE_COMMANDS)
    bench = commands.add_parser("bench", help="measure the engine")
    _add_module_commands(bench.add_subparsers(required=True, metavar="WHAT"), BENCH_COMMANDS)
    return parser


def _add_module_commands(commands: Any, modules: Sequence[tuple[str, str, str, str]]) -> None:
    for name, module, suffix, about in modules:
        command = importlib.import_module(module)
        subparser = commands.add_parser(name, help=about)
        getattr(command, f"add{suffix}_arguments")(subparser)
        subparser.set_defaults(run=getattr(command, f"run{suffix}"))


def _add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help=f"default: {DEFAULT_PROMPT!r}")
    parser.add_argument("--prompt-file", type=Path, metavar="FILE", help="read the prompt from a file (- for stdin)")
    parser.add_argument("--raw", action="store_true", help="the prompt as it is, without the model's chat template")
    parser.add_argument("--model", help="a Hugging Face folder or hub id (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_MAX_TOKENS, metavar="N", help="default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="default: 0, always the likeliest")
    parser.add_argument("--seed", type=int, metavar="N", help="makes a temperature above 0 repeatable")
    parser.add_argument("--dtype", default="auto", metavar="NAME", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps")
    parser.add_argument("--in-process", action="store_true", help="the engine core in this process, for a debugger")


# ---------------------------------------------------------------------- trace and generate


def run_trace(arguments: argparse.Namespace) -> int:
    """Answer one prompt, streaming; then print its life and say where the trace is."""
    from minivllm.show.page.render import render
    from minivllm.show.table import format_life
    from minivllm.trace import load
    from minivllm.trace.store import why_not_writable

    prompt = _read_prompt(arguments)
    path = _trace_path(arguments.out, prompt)
    error = why_not_writable(path)
    if error is not None:  # not after the answer
        raise InputError(f"The trace can't be written to {path} ({error.strerror or error}). Give another --out.")
    output = _generate(arguments, prompt, trace=str(path), trace_detail=arguments.detail)
    trace = load(path)
    if arguments.redact:
        trace = trace.redact()
        try:
            trace.save(path)
        except OSError as error:
            path.unlink(missing_ok=True)  # the texts were not to stay
            raise InputError(f"The redacted trace can't be written to {path}: {error.strerror or error}.") from None
    print()
    print(format_life(trace, output.request_id))
    print()
    page = render(trace, path.with_suffix(".html"), path.stem)
    print(f"The trace, {len(trace)} events: {path}")
    print(f"The same as a page, to open in a browser: {page}")
    print("Next:")
    print(f"  why it went this way, and where the time went   minivllm why {path} {output.request_id}")
    print(f"  a timeline for ui.perfetto.dev                  minivllm export {path} --to chrome")
    print("  other stories: chunks, hits, preemption, …      minivllm record")
    return 0


def run_generate(arguments: argparse.Namespace) -> int:
    """Answer one prompt, streaming."""
    _generate(arguments, _read_prompt(arguments))
    return 0


def _generate(arguments: argparse.Namespace, prompt: str, **config: Any) -> Any:
    """Run the prompt and print its text as it comes; returns the RequestOutput."""
    from minivllm.llm import LLM
    from minivllm.sampling_params import SamplingParams

    params = SamplingParams(
        temperature=arguments.temperature, seed=arguments.seed, max_tokens=arguments.max_tokens
    )  # before the engine starts: a wrong value shows at once
    if arguments.in_process:
        config["multiprocess"] = False
    shown = 0

    def show(output: Any) -> None:
        nonlocal shown
        text = output.outputs[0].text
        print(text[shown:], end="", flush=True)
        shown = len(text)

    with LLM(arguments.model, dtype=arguments.dtype, device=arguments.device, **config) as llm:
        if arguments.raw:
            outputs = llm.generate(prompt, params, use_tqdm=False, on_output=show)
        else:
            messages = [{"role": "user", "content": prompt}]
            outputs = llm.chat(messages, params, use_tqdm=False, on_output=show)
    print()
    return outputs[0]


def _read_prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt_file is None:
        return DEFAULT_PROMPT if arguments.prompt is None else arguments.prompt
    if arguments.prompt is not None:
        raise InputError(f"Give a prompt or --prompt-file {arguments.prompt_file}, not both.")
    if str(arguments.prompt_file) == "-":
        return sys.stdin.read()
    try:
        return arguments.prompt_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--prompt-file {arguments.prompt_file} can't be read as text: {error}") from error


def _trace_path(out: Path, prompt: str) -> Path:
    """`out` itself if it names a .jsonl file, else a file in it that is called after the prompt."""
    if out.suffix == ".jsonl":
        return out
    name = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")[:40].rstrip("-")
    return out / f"{name or 'trace'}.jsonl"


# ---------------------------------------------------------------------- scenarios


def run_record(arguments: argparse.Namespace) -> int:
    """Write the traces of named scenarios, or compare them with those that are there; status 1 if one differs."""
    from minivllm.attention.triton_mode import prepare_triton
    from minivllm.course.scenarios import SCENARIOS, get_scenario, run_scenario, write_table_of_traces

    names = list(SCENARIOS) if arguments.all else arguments.scenario
    if not names:
        width = max(map(len, SCENARIOS))
        for scenario in SCENARIOS.values():
            print(f"{scenario.name:<{width}}  {scenario.shows}")
        return 0
    if any(get_scenario(name).needs_triton for name in names):
        prepare_triton("triton", "cpu")  # before the first engine imports triton
    different = 0
    for place, name in enumerate(names, start=1):
        path = arguments.out / f"{get_scenario(name).name}.jsonl.gz"
        reason = _why_left_alone(SCENARIOS[name], path, arguments)
        if reason is not None:
            print(f"[{place}/{len(names)}] {name}: {reason}", flush=True)
        elif arguments.check:
            difference = _compare_with_new(path, get_scenario(name), arguments.model)
            different += difference is not None
            print(f"[{place}/{len(names)}] {name}: {difference or 'the same'}", flush=True)
        else:
            run_scenario(get_scenario(name), arguments.model, str(path))
            print(f"[{place}/{len(names)}] {path}", flush=True)
    if not arguments.check:
        write_table_of_traces(arguments.out)
    return 1 if different else 0


def _why_left_alone(scenario: Any, path: Path, arguments: argparse.Namespace) -> str | None:
    if scenario.once and (arguments.check or (arguments.all and path.exists())):
        return "recorded once, and kept"
    if scenario.needs_triton and arguments.all and importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed here"
    return None


def _compare_with_new(path: Path, scenario: Any, model: str | None) -> str | None:
    from minivllm.course.scenarios import run_scenario
    from minivllm.proof.rerecord import first_difference
    from minivllm.trace import load

    committed = load(path)
    with tempfile.TemporaryDirectory(prefix="minivllm-") as folder:
        again = Path(folder) / path.name
        run_scenario(scenario, model, str(again))
        return first_difference(committed, load(again))


# ---------------------------------------------------------------------- model and doctor


def run_model(arguments: argparse.Namespace) -> int:
    """Print where the default model lies and what it is."""
    from minivllm.models.default_model import default_model_path, describe

    if arguments.fetch:
        default_model_path()
    model = describe()
    state = f"{model['size'] / 1e6:.0f} MB" if model["present"] else f"not there yet ({model['missing']})"
    print(f"{model['name']} ({model['license']}): {model['about']}")
    print(f"  folder   {model['path']}")
    print(f"  state    {state}")
    print(f"  source   {model['source']}, {model['source_size'] / 1e6:.0f} MB, sha256 {model['source_sha256']}")
    if model["present"]:
        print(f"  weights  sha256 {model['weights_sha256']}")
    else:
        print("  Get it with: minivllm model --fetch (the first run does so by itself)")
    print("  Another model: --model FOLDER on the command line, LLM('FOLDER') in Python")
    return 0


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print what works here; status 1 if the engine can't run."""
    from minivllm.proof.doctor import examine

    findings = examine()
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{finding.mark:<5} {finding.what:<{width}}  {finding.found}")
        if finding.remedy:
            print(f"{'':<5} {'':<{width}}  -> {finding.remedy}")
    return 1 if any(finding.mark == "FAIL" for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
