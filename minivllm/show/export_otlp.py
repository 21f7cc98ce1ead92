"""A trace as OpenTelemetry spans, in OTLP's JSON form: what a collector takes in.

Owns: which number of a request has which attribute name: those of the GenAI conventions and vLLM's own, side by side.
Interface: to_otlp.
Must not know: files, or a collector.

Every request is a trace of its own, as in vLLM: one span for the request, and inside it one for each phase of its life.
Ids are hex, and integers of 64 bits are strings, as OTLP/JSON says. The same trace gives the same ids. The GenAI names
are literal here: the packages that hold them as constants change from month to month.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

from minivllm.show.lives import Life, Lives
from minivllm.show.phases import stages
from minivllm.trace.replay import Trace

SPAN_NAME = "llm_request"  # vLLM's
INTERNAL, SERVER = 1, 2  # span kinds
OK, ERROR = 1, 2  # status codes
NAMESPACE = "minivllm"
PARAMS = {  # those that differ from their defaults
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "seed": int,
    "frequency_penalty": float,
    "presence_penalty": float,
}

Row = dict[str, Any]


def to_otlp(trace: Trace) -> Row:
    """The requests of a trace as an ExportTraceServiceRequest in OTLP/JSON.

    Times are Unix nanoseconds; those of a logical clock count from 1970 and mean order alone.

    vLLM: v1/engine/output_processor.py::OutputProcessor.do_tracing (one span a request, without phases)
    """
    lives = Lives(trace)
    spans = [span for life in lives.lives.values() for span in _spans(lives, life)]
    header = trace.header
    resource = {
        "service.name": NAMESPACE,
        "service.version": header.minivllm,
        f"{NAMESPACE}.vllm_version": header.vllm,
        f"{NAMESPACE}.clock": header.clock,
        f"{NAMESPACE}.schema": header.schema,
    }
    scope = {"name": f"{NAMESPACE}.trace", "version": header.minivllm}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


# ---------------------------------------------------------------------- spans


def _spans(lives: Lives, life: Life) -> Iterator[Row]:
    stretches = stages(lives, life.request_id)
    if not stretches:
        return
    begin = _begin(lives.trace)
    trace_id, root_id = _id(lives.trace, life, 16), _id(lives.trace, life, 8, "request")
    failed = life.end == "error"
    yield {
        "traceId": trace_id,
        "spanId": root_id,
        "name": SPAN_NAME,
        "kind": SERVER,
        **_times(begin, stretches[0].t0, stretches[-1].t1),
        "attributes": _attributes({name: value for name, value in _request_values(lives, life) if value is not None}),
        "events": [{"timeUnixNano": str(begin + at), "name": name} for at, name in _moments(life)],
        "status": {"code": ERROR, "message": "the request failed"} if failed else {"code": OK},
    }
    for number, phase in enumerate(stretches):
        values = {f"{NAMESPACE}.phase": phase.name, f"{NAMESPACE}.steps": list(phase.steps)}
        yield {
            "traceId": trace_id,
            "spanId": _id(lives.trace, life, 8, f"phase {number}"),
            "parentSpanId": root_id,
            "name": phase.name,
            "kind": INTERNAL,
            **_times(begin, phase.t0, phase.t1),
            "attributes": _attributes(values),
        }


def _begin(trace: Trace) -> int:
    """Unix time of the trace's first event, ns; 0 where the clock is logical."""
    if trace.header.clock != "monotonic":
        return 0
    return int(trace.header.environment.get("started_at", 0) * 1e9)


def _times(begin: int, t0: int, t1: int) -> Row:
    return {"startTimeUnixNano": str(begin + t0), "endTimeUnixNano": str(begin + t1)}


def _id(trace: Trace, life: Life, size: int, what: str = "trace") -> str:
    """`size` bytes in hex that no other span of this or another run has."""
    environment = trace.header.environment
    run = [environment.get("pids"), environment.get("started_at")]
    text = json.dumps([*run, life.request_id, what], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * size]


def _moments(life: Life) -> Iterator[tuple[int, str]]:
    """vLLM's events of a request, and its first token."""
    if life.arrived is not None:
        yield life.arrived.t1, "QUEUED"
    first_token = _token_times(life)[:1]
    for event in life.events:
        if event.kind == "update_from_output" and event.t1 in first_token:
            yield event.t1, "FIRST_TOKEN"
        if event.kind != "schedule":
            continue
        resumed = [cached.req_id for cached in event.scheduled_cached_reqs if cached.resumed]
        if life.request_id in [new.req_id for new in event.scheduled_new_reqs] + resumed:
            yield event.t0, "SCHEDULED"
        if any(preemption.req_id == life.request_id for preemption in event.preemptions):
            yield event.t0, "PREEMPTED"


# ---------------------------------------------------------------------- attributes


def _request_values(lives: Lives, life: Life) -> Iterator[tuple[str, Any]]:
    """(attribute, value) of a request's span; None is left out."""
    trace = lives.trace
    params = life.asked.sampling_params if life.asked is not None else {}
    is_chat = any(event.kind == "render_chat" for event in life.events)
    model = os.path.basename(str(trace.header.environment.get("model") or "").rstrip("/\\")) or None
    external = trace.external_ids[life.request_id]
    yield "gen_ai.operation.name", "chat" if is_chat else "text_completion"
    yield "gen_ai.provider.name", NAMESPACE
    yield "gen_ai.request.model", model
    yield "gen_ai.response.model", model
    yield "gen_ai.response.id", external
    yield "gen_ai.request.id", external  # vLLM's
    yield from _usage(life)
    yield "gen_ai.request.max_tokens", life.arrived.max_tokens if life.arrived is not None else None
    for name, kind in PARAMS.items():
        yield f"gen_ai.request.{name}", kind(params[name]) if name in params else None
    stop = params.get("stop")
    yield "gen_ai.request.stop_sequences", stop if isinstance(stop, list) else None
    yield "gen_ai.request.choice.count", params.get("n", 1)
    yield "gen_ai.request.n", params.get("n", 1)  # vLLM's
    yield "gen_ai.response.finish_reasons", [_finish_reason(life)] if life.end != "not_finished" else None
    if trace.header.clock == "monotonic":
        yield from _latencies(lives, life)
    yield f"{NAMESPACE}.request_id", life.request_id
    yield f"{NAMESPACE}.end", life.end
    roles = lives.roles(life.request_id)
    yield f"{NAMESPACE}.num_steps", sum(role.num_new_tokens > 0 for role in roles)
    yield f"{NAMESPACE}.num_steps_waited", sum(role.phase == "queue" for role in roles)
    yield f"{NAMESPACE}.num_preemptions", sum(name == "PREEMPTED" for _, name in _moments(life))


def _usage(life: Life) -> Iterator[tuple[str, Any]]:
    prompt = life.arrived.num_prompt_tokens if life.arrived is not None else None
    counts = [
        update.num_tokens for event in _updates(life) for update in event.updates if update.req_id == life.request_id
    ]
    output = counts[-1][1] - prompt if counts and prompt is not None else 0
    plans = [event for event in life.events if event.kind == "schedule"]
    hits = [
        new.num_computed_tokens for plan in plans for new in plan.scheduled_new_reqs if new.req_id == life.request_id
    ]
    yield "gen_ai.usage.input_tokens", prompt
    yield "gen_ai.usage.prompt_tokens", prompt  # vLLM's
    yield "gen_ai.usage.output_tokens", output
    yield "gen_ai.usage.completion_tokens", output  # vLLM's
    yield "gen_ai.usage.cache_read.input_tokens", hits[0] if hits else None


def _latencies(lives: Lives, life: Life) -> Iterator[tuple[str, float | None]]:
    """Seconds, by vLLM's definitions."""
    queued = life.arrived.t1 if life.arrived is not None else None
    scheduled = next((at for at, name in _moments(life) if name == "SCHEDULED"), None)
    tokens = _token_times(life)
    first, last = (tokens[0], tokens[-1]) if tokens else (None, None)
    stretches = stages(lives, life.request_id)
    end = stretches[-1].t1 if life.closed is not None else None
    given = [e.t1 for e in life.events if e.kind == "process_outputs"]
    to_first = _seconds(life.start, given[0] if given else None)
    yield "gen_ai.response.time_to_first_chunk", to_first
    yield "gen_ai.latency.time_to_first_token", to_first  # vLLM's, and all below
    yield "gen_ai.latency.e2e", _seconds(life.start, end)
    yield "gen_ai.latency.time_in_queue", _seconds(queued, scheduled)
    yield "gen_ai.latency.time_in_model_prefill", _seconds(scheduled, first)
    yield "gen_ai.latency.time_in_model_decode", _seconds(first, last)
    yield "gen_ai.latency.time_in_model_inference", _seconds(scheduled, last)


def _updates(life: Life) -> list[Any]:
    return [event for event in life.events if event.kind == "update_from_output"]


def _token_times(life: Life) -> list[int]:
    """When the core had each of its tokens, ns."""
    return [
        event.t1
        for event in _updates(life)
        for update in event.updates
        if update.req_id == life.request_id and update.num_tokens[1] > update.num_tokens[0]
    ]


def _seconds(t0: int | None, t1: int | None) -> float | None:
    return None if t0 is None or t1 is None else (t1 - t0) / 1e9


def _finish_reason(life: Life) -> str:
    """As the caller gets it: stop, length, abort or error."""
    return {"max_tokens": "length", "max_model_len": "length", "abort": "abort", "error": "error"}.get(life.end, "stop")


def _attributes(values: Row) -> list[Row]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> Row:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
