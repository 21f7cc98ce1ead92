"""The commands that run a model: `minivllm trace | generate | model`.

Owns: their arguments, and what they print. Interface: add_NAME_arguments and run_NAME for each.
Must not know: how anything is done.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from minivllm.errors import InputError
from minivllm.paths import OUT_FOLDER

DEFAULT_PROMPT = "What is the capital of France?"
DEFAULT_MAX_TOKENS = 64


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompt, how it is answered, where the trace goes."""
    _add_generation_arguments(parser)
    parser.add_argument(
        "--out", type=Path, default=OUT_FOLDER, help=f"a folder, or the .jsonl file itself (default: {OUT_FOLDER})"
    )
    parser.add_argument("--detail", type=int, choices=(0, 1, 2), default=0, help="1: every layer; 2: values too")
    parser.add_argument(
        "--redact", action="store_true", help="write lengths in place of text and token ids, for a bug report"
    )


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompt and how it is answered."""
    _add_generation_arguments(parser)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Whether to get the model."""
    parser.add_argument("--fetch", action="store_true", help="get it now, if it isn't there")


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
