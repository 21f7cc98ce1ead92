"""Facts for notebook 00: what a trace counts, in which order a request passes the stops, what a header says.

Interface: answer_of, num_calls, counts, first_pass, header_rows, stops, story.
Must not know: how anything is shown.
"""

from typing import Any

from minivllm.proof.refs.map_page import HANDOVERS
from minivllm.show.explain import explain
from minivllm.trace import Trace
from minivllm.trace.events import KINDS

SHOWN = (
    "schedule",
    "model_forward",
    "attention",
    "get_new_blocks",
    "cache_full_blocks",
    "core.send",
    "detokenize",
    "free",
)
MEANS = {
    "schedule": "plans made",
    "model_forward": "runs of the model",
    "attention": "calls of an attention layer",
    "get_new_blocks": "times that blocks were taken from the pool",
    "cache_full_blocks": "times that full blocks got a name",
    "core.send": "messages from the core to the caller",
    "detokenize": "times that ids became text",
    "free": "times that blocks were given back",
}

SETTINGS = ("num_gpu_blocks_override", "max_num_batched_tokens", "max_num_seqs", "max_model_len")
CLOCKS = {"monotonic": "stamps are nanoseconds", "logical": "stamps only count events"}


def answer_of(trace: Trace) -> str:
    """The text that the first request's caller got."""
    return trace.filter(kind="run_engine")[0].outputs[0].text


def num_calls(trace: Trace, kind: str) -> int:
    """How often something was called; one event may stand for a call in every layer."""
    return sum(getattr(event, "calls", 1) for event in trace.filter(kind=kind))


def counts(trace: Trace) -> list[tuple[str, str, str, int]]:
    """Stop, kind, meaning and number of calls, of the kinds that the story is told with."""
    return [(KINDS[kind].boundary or "", f"`{kind}`", MEANS[kind], num_calls(trace, kind)) for kind in SHOWN]


def first_pass(trace: Trace, request: str) -> list[str]:
    """The stops of one request in the order in which it enters each for the first time."""
    return list(dict.fromkeys(event.boundary for event in trace.path(request) if event.boundary))


def header_rows(trace: Trace) -> list[tuple[str, Any]]:
    """What the header says, in five lines."""
    header = trace.header
    settings = "; ".join(f"`{name}` {header.config[name]}" for name in SETTINGS)
    layers, size = header.model["num_layers"], header.model["hidden_size"]
    return [
        ("schema", f"version {header.schema}, of vLLM {header.vllm}"),
        ("model", f"{header.model['architecture']}, {layers} layers, hidden size {size}"),
        ("settings that differ from the defaults", settings),
        ("clock", f"{header.clock}: {CLOCKS[header.clock]}"),
        ("processes", " and ".join(process.name for process in header.processes)),
    ]


def stops() -> list[tuple[str, str]]:
    """All stops of the road, and what is handed over there."""
    return list(HANDOVERS.items())


def story(trace: Trace, request: str, step: int) -> list[tuple[str, str]]:
    """What `minivllm why` says about a request in a step: the answer, then the reasons behind it."""
    found = explain(trace, request, step)
    return [("answer", found.sentence), *((reason.label or reason.code, reason.sentence) for reason in found.reasons)]
