"""Settings, the model, the size of a trace, what was asked."""

from typing import Any

from minivllm.sampling_params import SamplingParams
from minivllm.show.describe import quoted
from minivllm.trace import Trace
from trace_facts.lookup import first, internal_id, quantity

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@quantity
def config(trace: Trace, name: str) -> Any:
    return trace.header.config[name]


@quantity
def model(trace: Trace, name: str) -> Any:
    return trace.header.model[name]


@quantity
def default(trace: Trace, name: str) -> Any:
    """The default of a sampling parameter."""
    return getattr(SamplingParams(), name)


@quantity
def param(trace: Trace, name: str) -> Any:
    """A sampling parameter of the first request, if it isn't the default."""
    return first(trace.filter(kind="process_inputs"), "parameters").sampling_params[name]


@quantity
def dtype_bytes(trace: Trace) -> int:
    return BYTES[trace.header.config["dtype"]]


@quantity
def num_blocks(trace: Trace) -> int:
    return trace.header.num_gpu_blocks


@quantity
def usable_blocks(trace: Trace) -> int:
    return trace.header.num_gpu_blocks - 1


@quantity
def token_bytes(trace: Trace) -> int:
    """K and V of one token in all layers."""
    shape = trace.header.model
    return 2 * shape["num_layers"] * shape["num_kv_heads"] * shape["head_size"] * dtype_bytes(trace)


@quantity
def block_bytes(trace: Trace) -> int:
    return token_bytes(trace) * trace.header.config["block_size"]


@quantity
def pool_megabytes(trace: Trace) -> str:
    return f"{block_bytes(trace) * trace.header.num_gpu_blocks / 1e6:.1f}"


@quantity
def num_traces(traces: list[Trace]) -> int:
    return len(traces)


@quantity
def num_events(trace: Trace) -> int:
    return len(trace)


@quantity
def num_kinds(trace: Trace) -> int:
    return len({event.kind for event in trace})


@quantity
def num_boundaries(trace: Trace) -> int:
    return len({event.boundary for event in trace if event.boundary})


@quantity
def num_requests(trace: Trace) -> int:
    return len(trace.request_ids)


@quantity
def last_tick(trace: Trace) -> int:
    return max(event.t1 for event in trace)


@quantity
def asked(trace: Trace, request: str) -> str:
    """The user's last message."""
    events = trace.filter(kind="render_chat")
    return quoted(events[list(dict.fromkeys(trace.external_ids.values())).index(request)].messages[-1]["content"], 90)


@quantity
def id_chars(trace: Trace, request: str) -> int:
    return len(internal_id(trace, request))


@quantity
def prompt_tokens(trace: Trace, request: str) -> int:
    opened = trace.filter(request=internal_id(trace, request), kind="preprocess_add_request")
    return first(opened, f"request {request}").num_prompt_tokens
