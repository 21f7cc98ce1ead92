"""A chat template is a program that came with the model: it runs in a sandbox, and here within limits.

Owns: nothing that lasts.
Interface: check_template, within_limits, check_rendered.
Must not know: what a template says.

The sandbox (jinja2's, which transformers sets up) keeps a template from files and from Python's insides. It does not
keep it from looping or growing for ever.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from minivllm.errors import InputError

MAX_SECONDS = 10.0
MAX_BYTES = 512 << 20  # that rendering may take beyond what the process has
MAX_CHARS = 32 << 20  # of a rendered conversation


def check_template(template: str) -> None:
    """Raise InputError for what no limit could interrupt: a power, whose digits may take hours by themselves.

    vLLM: none, vLLM renders without limits
    """
    from jinja2 import Environment, TemplateSyntaxError

    before = "("
    try:
        for line, kind, value in Environment().lex(template):
            if value == "**" and kind == "operator" and before not in ("(", ","):  # after these, it is no power
                raise InputError(f"The chat template computes a power (**) in line {line}, which is not allowed here.")
            before = value if kind != "whitespace" else before
    except TemplateSyntaxError:
        return  # rendering will say so


@contextmanager
def within_limits() -> Iterator[None]:
    """Around the rendering of a template. Raises InputError when it takes too long or too much memory.

    A debugger that follows this thread keeps doing so; then there is no limit of time.

    vLLM: none, vLLM renders without limits
    """
    with _limited_memory(), _limited_time() if sys.gettrace() is None else nullcontext():
        try:
            yield
        except MemoryError:
            raise InputError(
                f"The chat template takes more than {MAX_BYTES >> 20} MiB of memory for these messages. Format the "
                "prompt yourself and use generate()."
            ) from None


def check_rendered(text: str) -> None:
    """Raise InputError for a conversation that no model could read and no tokenizer should try.

    vLLM: none, vLLM renders without limits
    """
    if len(text) > MAX_CHARS:
        raise InputError(
            f"The chat template makes {len(text)} characters of these messages; at most {MAX_CHARS} can be read. "
            "Format the prompt yourself and use generate()."
        )


@contextmanager
def _limited_time() -> Iterator[None]:
    """A template is compiled to Python: between two of its lines it can be stopped, in any thread."""
    end = time.monotonic() + MAX_SECONDS

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in ("<template>", "<unknown>") else None

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > end:
            raise InputError(
                f"The chat template takes more than {MAX_SECONDS:g} s for these messages. Format the prompt yourself "
                "and use generate()."
            )
        return on_line

    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(None)


@contextmanager
def _limited_memory() -> Iterator[None]:
    """The process may grow by MAX_BYTES. Where the system does not say how large a process is, there is no limit."""
    try:
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([now + MAX_BYTES, *bounds]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
