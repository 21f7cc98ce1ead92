"""For notebook 14: what takes how long, as shares and ratios of the recorded times, and what a step reads.

Owns: nothing. Times stay inside: everything that is given out is a ratio, a share, or a number of steps.
Interface: decode_step, relative, parts, share; weight_bytes, kv_bytes, prompt_tokens; waits, hole, refused, stretches;
way_to_first_token.
Must not know: how fast the machine was.

The quickest decode step of a trace stands for all of them: on a busy machine the others were interrupted.
"""

from typing import Any

from minivllm.course.notebook.story import Story
from minivllm.show.lives import Lives
from minivllm.show.phases import phases
from minivllm.show.pictures.latency import latencies
from minivllm.trace import Trace

# part of a step -> the kinds of events in which it happens
PARTS = {
    "the 30 layers": ("model_forward",),
    "the head": ("compute_logits",),
    "preparing": ("update_states", "prepare_inputs", "get_slot_mappings", "build_attention_metadata"),
    "sampling": ("sample_tokens",),
    "scheduling": ("schedule",),
    "taking in the results": ("update_from_output",),
    "text": ("process_outputs",),
}

# phase -> what happens in it before the first token is read
WORDS = {
    "input": "rendered, checked and registered",
    "ipc": "on its way to the core",
    "queue": "waiting in the core",
    "prefill": "step 1",
    "between": "between step 1 and step 2",
    "decode": "the core is in step 2, the text on its way back",
    "detokenize": "made into text",
}


def decode_step(trace: Trace) -> int:
    """The quickest step in which every request decodes one token."""
    plans = [one for one in trace.filter(kind="schedule") if set(one.num_scheduled_tokens.values()) == {1}]
    return min((one.step for one in plans), key=lambda step: _whole(trace, step))


def relative(traces: dict[int, Trace]) -> dict[int, float]:
    """Requests in a batch -> how much longer its decode step takes than that of the first batch."""
    times = {size: _whole(trace, decode_step(trace)) for size, trace in traces.items()}
    first = next(iter(times.values()))
    return {size: time / first for size, time in times.items()}


def parts(trace: Trace) -> dict[str, float]:
    """Part of a decode step -> its share, and `the rest`."""
    step = decode_step(trace)
    whole = _whole(trace, step)
    shares = {name: sum(_took(e) for e in trace.filter(step=step, kind=kinds)) / whole for name, kinds in PARTS.items()}
    return {**shares, "the rest": 1 - sum(shares.values())}


def _whole(trace: Trace, step: int) -> int:
    """ns from the caller's question for the step's outputs to their text."""
    (event,) = trace.filter(step=step, kind="step")
    return _took(event) + sum(_took(one) for one in trace.filter(step=step, kind="process_outputs"))


def _took(event: Any) -> int:
    return event.t1 - event.t0


def weight_bytes(model: dict[str, Any], itemsize: int = 4) -> int:
    """All weights of a Llama model whose head is its embedding.

    vLLM: model_executor/models/llama.py::LlamaForCausalLM
    """
    width, inner, head = model["hidden_size"], model["intermediate_size"], model["head_size"]
    attention = width * head * 2 * (model["num_attention_heads"] + model["num_kv_heads"])
    layer = attention + 3 * width * inner + 2 * width
    return itemsize * (model["vocab_size"] * width + model["num_layers"] * layer + width)


def kv_bytes(model: dict[str, Any], itemsize: int = 4) -> int:
    """K and V of one token in all layers.

    vLLM: v1/kv_cache_interface.py::FullAttentionSpec.real_page_size_bytes
    """
    return 2 * model["num_layers"] * model["num_kv_heads"] * model["head_size"] * itemsize


def prompt_tokens(story: Story) -> int:
    """Prompt tokens that were computed, of all requests; what was found in the prefix cache does not count."""
    steps = {name: range(story.first_step(name), story.first_word(name) + 1) for name in story.ids}
    return sum(story.sent(step)[name] for name, one in steps.items() for step in one)


def share(part: float) -> str:
    """A part of 1 in words."""
    return "below 0.1%" if part < 0.0005 else f"{part:.1%}"


def waits(story: Story, name: str) -> list[int]:
    """The steps that gave a request a token, in order."""
    events = story.trace.filter(kind="update_from_output", request=story.ids[name])
    return [e.step for e in events for one in e.updates if one.req_id == story.ids[name] and one.new_token_ids]


def hole(story: Story, name: str) -> tuple[int, int, int]:
    """The longest wait between two tokens: (number of the first of them, from 1, its step, the other's step)."""
    steps = waits(story, name)
    place = max(range(1, len(steps)), key=lambda i: steps[i] - steps[i - 1])
    return place, steps[place - 1], steps[place]


def refused(story: Story, name: str) -> list[int]:
    """The steps that would not take a request back for want of blocks."""
    return [step for step, one in story.skips(name).items() if one.reason == "blocks"]


def stretches(story: Story, name: str) -> list[tuple[str, int]]:
    """A request's life in steps: (phase, steps), neighbours of one name joined.

    vLLM: v1/metrics/stats.py::IterationStats.update_from_finished_request
    """
    found: list[tuple[str, int]] = []
    for phase in phases(Lives(story.trace), story.ids[name]):
        if phase.steps and found and found[-1][0] == phase.name:
            found[-1] = phase.name, found[-1][1] + len(phase.steps)
        elif phase.steps:
            found.append((phase.name, len(phase.steps)))
    return found


def way_to_first_token(trace: Trace) -> tuple[float, dict[str, float]]:
    """TTFT of the first request as a multiple of its TPOT, and what the TTFT consists of, in words and as shares.

    vLLM: v1/metrics/stats.py::IterationStats.update_from_finished_request
    """
    (request_id, latency) = next(iter(latencies(trace, "ms").items()))
    shares: dict[str, float] = {}
    start, end = latency.arrived, latency.tokens[0]
    for phase in phases(Lives(trace), request_id):
        t0, t1 = max(phase.t0 / 1e6, start), min(phase.t1 / 1e6, end)
        if t1 > t0:
            shares[WORDS[phase.name]] = shares.get(WORDS[phase.name], 0.0) + (t1 - t0) / (end - start)
    return latency.ttft / latency.tpot, shares
