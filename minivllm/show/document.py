"""The schema, written down: `python -m minivllm.show.document` writes docs/trace-schema.json and docs/trace-schema.md.

Owns: nothing; all it says is in the event classes: their docstrings, their fields, the comments behind the fields.
Interface: json_schema, markdown, field_comments; write.
Must not know: more than the classes say.
"""

import inspect
import re
import sys
import typing
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import msgspec

from minivllm.trace.events import KINDS, SCHEMA, Event, Kind, Unfinished
from minivllm.trace.events_worker import Summed
from minivllm.trace.schema import EVENTS, VLLM_VERSION, AnyEvent, Header, Process

FIELD = re.compile(r"^    (\w+): .+?(?:  # (.+))?$")
# What a field means wherever it has no comment of its own.
GLOSSARY = {
    "num_prompt_tokens": "tokens of the prompt",
    "num_tokens": "tokens of the request that exist: prompt and outputs",
    "num_computed_tokens": "of these, those whose K and V are in the cache, or will be after the planned step",
    "num_output_tokens": "tokens of the output",
    "num_hit_tokens": "tokens found in the prefix cache",
    "prompt_token_ids": "token ids of the prompt",
    "new_token_ids": "token ids",
    "max_tokens": "tokens of the output, at most",
    "n": "answers to one prompt",
    "priority": "smaller goes first",
    "external_req_id": "the number of the prompt in the LLM's life, as text",
    "request_id": "internal id",
    "req_id": "internal id",
    "num_requests": "prompts of the call",
    "num_outputs": "outputs in the message",
    "num_waiting": "requests in the waiting queue",
    "num_running": "requests that run",
    "num_free_blocks": "blocks in the free queue",
    "block_ids": "ids of blocks",
    "new_block_ids": "ids of blocks that were just taken",
    "hit_block_ids": "ids of blocks found in the prefix cache",
    "block_hashes": "hashes of blocks, the first 16 hexadecimal digits",
    "block_hash": "hash of a block, the first 16 hexadecimal digits",
    "blocks_needed": "free blocks that it would take",
    "blocks_free": "free blocks that there were",
    "total_num_scheduled_tokens": "tokens of the step",
    "max_query_len": "tokens of one row in this step, at most",
    "max_seq_len": "tokens of one row in all, at most",
    "dtype": "of the values",
    "name": "which one",
    "tensors": "by the name of the argument",
    "num_warps": "warps of one program",
    "num_stages": "stages of its software pipeline",
    "finish_reason": "stop, length, abort or error; None while it runs",
    "stop_reason": "the stop token or stop string that ended it",
}
COMMON = Event.__struct_fields__
COMMAND = "python -m minivllm.show.document"


def field_comments(cls: type) -> dict[str, str]:
    """Field -> the comment behind it, of a struct and those it is made from; else what the glossary says, or ""."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            for line in inspect.getsource(base).splitlines():
                match = FIELD.match(line)
                if match and match[1] in cls.__struct_fields__:
                    found[match[1]] = match[2] or found.get(match[1], "")
    return {name: comment or GLOSSARY.get(name, "") for name, comment in found.items()}


def json_schema() -> bytes:
    """JSON Schema of a line: the header, or an event."""
    (header, event), definitions = msgspec.json.schema_components([Header, AnyEvent], ref_template="#/$defs/{name}")
    for cls in structs():
        definition = definitions.get(cls.__name__)
        if definition is not None:
            definition["description"] = _says(cls)
            for name, comment in field_comments(cls).items():
                if comment and name in definition["properties"]:
                    definition["properties"][name]["description"] = comment
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of a minivllm trace, schema {SCHEMA}",
        "anyOf": [header, event],
        "$defs": definitions,
    }
    return msgspec.json.format(msgspec.json.encode(schema, order="deterministic"), indent=1) + b"\n"


def markdown() -> str:
    """The same for people."""
    lines = [
        f"# The trace file, schema {SCHEMA}",
        "",
        f"<!-- Written by `{COMMAND}` from the classes in minivllm/trace/. Do not edit. -->",
        "",
        "A trace is JSON Lines: one header, then one line for each event, in the order in which the events began. An",
        f"event is one call of a method that `@boundary` marks. The fields have the names of vLLM {VLLM_VERSION}.",
        "",
        "- **[before, after]** is a value when the call began and when it returned.",
        "- **Left out** are empty lists, and fields with nothing to say: the call failed (`error`), could not be",
        "  looked at (`view_error`), or the value belongs to a higher detail.",
        "- **Time** is in ns from the first event. With the logical clock it only says what came first.",
        "- **Detail 0** has ids, lengths, counters, block tables, slots, positions, message sizes. **Detail 1** adds",
        "  one event a layer with shapes, strides and dtypes, and every launch of a kernel. **Detail 2** adds values:",
        "  the likeliest tokens, norms, and what each program of the first layer's launches read and wrote.",
        "- **Order of effects**: a component's state changes at the *exit* of its methods; see `Trace.state_at`.",
        "- **Versions**: a new kind or a new field keeps the schema's number, and readers ignore what they do not",
        "  know. Renaming, removing, or a change of meaning or unit raises it and brings an upgrade for older files.",
        "- **Redacted** traces have lengths where texts and token ids were.",
        "",
        "## All kinds",
        "",
        "| kind | boundary | process | method | detail | absent when | vLLM |",
        "|---|---|---|---|---|---|---|",
        *(_kind_row(row) for row in KINDS.values()),
        "",
        "Boundaries B1 to B27 are the hand-overs of a request's life, in the order in which it meets them. In process",
        "all happens in the caller's.",
        "",
        "## Fields of every event",
        "",
        *_fields(Event, COMMON),
        "",
    ]
    for kind, cls in EVENTS.items():
        row = KINDS[kind]
        own = [name for name in cls.__struct_fields__ if name not in COMMON]
        lines += [f"## {kind}", "", f"{row.boundary or 'No boundary'} · `{row.method}` · {_says(cls)}", ""]
        lines += [*_fields(cls, own), ""] if own else []
    lines += ["## unfinished", "", _says(Unfinished), "", *_fields(Unfinished, ["of"]), ""]
    lines += ["# What is inside", ""]
    for cls in [*_inner(), Header, Process]:
        lines += [f"## {cls.__name__}", "", _says(cls), "", *_fields(cls, cls.__struct_fields__), ""]
    return "\n".join(lines)


def write(folder: Path) -> None:
    """Write both files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace-schema.json").write_bytes(json_schema())
    (folder / "trace-schema.md").write_text(markdown(), encoding="utf-8")


def _kind_row(row: Kind) -> str:
    cls = EVENTS[row.kind]
    detail = "0: one a step; 1: one a layer" if issubclass(cls, Summed) else str(cls.min_detail)
    vllm = f"`{row.vllm}`" if row.vllm != "none" else "none"
    return f"| {row.kind} | {row.boundary or ''} | {row.process} | `{row.method}` | {detail} | {row.absent} | {vllm} |"


def _says(cls: type) -> str:
    """The docstring, without its reference."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return " ".join(text.split("\nvLLM:")[0].split())


def _fields(cls: type, names: Any) -> list[str]:
    comments, types = field_comments(cls), typing.get_type_hints(cls)
    return [
        "| field | type | |",
        "|---|---|---|",
        *(f"| {name} | {_type_name(types[name])} | {comments.get(name, '')} |" for name in names),
    ]


def _type_name(kind: Any) -> str:
    """A type as a reader would say it; that a field may be left out goes without saying."""
    if kind == tuple[int, int]:
        return "[int, int]"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (UnionType, typing.Union):
        names = dict.fromkeys(_type_name(argument) for argument in arguments if argument is not NoneType)
        return " or ".join(names)
    if origin is list:
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"{_type_name(arguments[0])} → {_type_name(arguments[1])}"
    return "any" if kind is Any else kind.__name__


def _inner() -> list[type]:
    """Structs that are fields of events, in the order in which they occur."""
    found: dict[type, None] = {}

    def look(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found.setdefault(kind)
        for argument in typing.get_args(kind):
            look(argument)

    for cls in EVENTS.values():
        for kind in typing.get_type_hints(cls).values():
            look(kind)
    return list(found)


def structs() -> list[type]:
    """All structs of a trace file."""
    return [*EVENTS.values(), Unfinished, *_inner(), Header, Process]


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
