"""The schema of a trace file: all kinds of events in one union, the header, and how lines become structs and back.

Interface: EVENTS, Header, Process; encode, Decoder.
Must not know: files, or how a trace is recorded.

A trace file is JSON Lines: one Header, then the events in the order of their entries.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from minivllm.trace import events_cache, events_caller, events_core, events_ipc, events_kernel, events_worker
from minivllm.trace.events import KINDS, SCHEMA, Event, Unfinished, Unknown

VLLM_VERSION = "0.22.0"


def _classes() -> dict[str, type[Event]]:
    found = {}
    for module in (events_caller, events_ipc, events_core, events_cache, events_worker, events_kernel):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Event) and value.__struct_config__.tag in KINDS:
                found[value.__struct_config__.tag] = value
    return {kind: found[kind] for kind in KINDS}


EVENTS: dict[str, type[Event]] = _classes()  # in the order of the table


class Process(msgspec.Struct, omit_defaults=True):
    """One process of a trace. `offset_ns` has been added to its stamps to bring them to the caller's clock."""

    name: str  # caller or core
    offset_ns: int = 0  # 0: its clock is the caller's, as far as can be measured
    error_bound_ns: int = 0  # how far off that may be
    complete: bool = False  # it ended in order; False: it was killed, or its part of the trace was cut off


class Header(msgspec.Struct, tag_field="kind", tag="header", omit_defaults=True):
    """The first line of a trace. All but `environment` is the same whenever the same run is recorded again."""

    schema: int  # version of the format
    minivllm: str  # versions
    vllm: str  # that is mirrored
    clock: str  # monotonic or logical
    detail: int  # 0, 1 or 2
    processes: list[Process]  # the caller first
    config: dict[str, Any] = {}  # EngineConfig, resolved; without paths
    model: dict[str, Any] = {}  # shape of the model
    num_gpu_blocks: int | None = None  # the null block included
    watch: dict[str, Any] = {}  # which values detail 2 has: TraceWatch of minivllm/config.py
    parts_sha256: dict[str, str] = {}  # of config.parts: seam -> sha256 of the file that its symbol is from
    redacted: bool = False  # lengths stand where texts and token ids were
    part: bool = False  # what one process wrote, not merged yet
    boundaries: dict[str, str | None] = {}  # kind -> B1..B27
    environment: dict[str, Any] = {}  # versions, paths, process ids, wall clock: differs from run to run


class End(msgspec.Struct, tag_field="kind", tag="end"):
    """The last line of a part that was written to its end."""


class Open(msgspec.Struct, tag_field="kind", tag="open"):
    """A line of a part: this call has begun. The event of the same seq, if it ever comes, says the rest."""

    seq: int
    of: str  # the kind
    t0: int
    parent: int | None
    thread: str
    step: int | None


Line = Header | Open | End | Event

AnyEvent = reduce(or_, [*EVENTS.values(), Unfinished])
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(reduce(or_, [AnyEvent, Open, End, Header]))
_RAW = msgspec.json.Decoder()
COMMON = Event.__struct_fields__


def encode(line: Line) -> bytes:
    """One line of a file, without the newline."""
    return _ENCODER.encode(line.raw if isinstance(line, Unknown) else line)


def encode_lines(lines: Iterable[Line]) -> bytes:
    """Lines of a file, each with its newline."""
    return _ENCODER.encode_lines([line.raw if isinstance(line, Unknown) else line for line in lines])


def decode(line: bytes) -> Line:
    """One line. A kind that is not known becomes an Unknown. Raises msgspec.DecodeError for a line that is no event."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError:
        raw = _RAW.decode(line)
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if not isinstance(kind, str) or kind in (*EVENTS, "header", "open", "end"):
            raise
        return unknown(raw)


def decode_lines(data: bytes) -> list[Line]:
    """All lines at once. Raises msgspec.DecodeError as soon as one is not as it should be."""
    return _DECODER.decode_lines(data)


def from_raw(raw: dict[str, Any]) -> Line:
    """As `decode`, from a dict."""
    return decode(_ENCODER.encode(raw))


def unknown(raw: dict[str, Any]) -> Unknown:
    """An event of a kind that this version does not know: its common fields, and all of it as `raw`."""
    common = {name: raw[name] for name in COMMON if name in raw}
    return msgspec.convert({"proc": "", "seq": -1, "t0": 0, "t1": 0, **common, "kind": "unknown", "raw": raw}, Unknown)


def new_header(clock: str, detail: int, process: Process, minivllm: str, **fields: Any) -> Header:
    """The header of what one process records."""
    return Header(
        schema=SCHEMA,
        minivllm=minivllm,
        vllm=VLLM_VERSION,
        clock=clock,
        detail=detail,
        processes=[process],
        boundaries={kind: row.boundary for kind, row in KINDS.items()},
        **fields,
    )
