"""A trace in other tools' formats: Chrome trace events (Perfetto), CSV, OpenTelemetry.

Interface: export, FORMATS.
Must not know: what is in a format (export_chrome, export_csv, export_otlp).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from minivllm.errors import InputError
from minivllm.show.export_chrome import to_chrome
from minivllm.show.export_csv import to_csv
from minivllm.show.export_otlp import to_otlp
from minivllm.trace.replay import Trace


class Format(NamedTuple):
    """A form that a trace can be written in."""

    about: str
    suffix: str
    make: Callable[[Trace], Any]  # a text, or what JSON can hold


FORMATS = {
    "chrome": Format("opens in Perfetto and chrome://tracing", ".chrome.json", to_chrome),
    "csv": Format("a row for each step", ".csv", to_csv),
    "otlp-json": Format("OpenTelemetry spans, for a collector", ".otlp.json", to_otlp),
}


def export(trace: Trace, to: str) -> bytes:
    """A trace in one of FORMATS; the same trace gives the same bytes. Raises InputError for another format."""
    if to not in FORMATS:
        raise InputError(f"There is no format {to!r}. There are: {', '.join(FORMATS)}.")
    made = FORMATS[to].make(trace)
    return made.encode() if isinstance(made, str) else msgspec.json.encode(made)


def default_path(trace_path: Path, to: str) -> Path:
    """Where an export lies unless told otherwise: beside the trace, `run.jsonl.gz` becoming `run.chrome.json`."""
    name = trace_path.name.removesuffix(".gz").removesuffix(".jsonl")
    return trace_path.with_name(name + FORMATS[to].suffix)
