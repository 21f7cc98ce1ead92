"""What the parts of a step cost, read off a trace of the batch.

Owns: nothing. Interface: step_parts.
Must not know: who recorded the trace, or torch.
"""

from minivllm.proof.bench.result import STEP
from minivllm.trace import Trace

# part -> the kinds of events in which it happens
PARTS = {
    "the scheduler": ("schedule", "update_from_output"),
    "flattening": ("update_states", "prepare_inputs", "get_slot_mappings", "build_attention_metadata"),
    "attention": ("attention",),
    "writing K and V": ("do_kv_cache_update",),
    "the head": ("compute_logits",),
    "the sampler": ("sampler.forward",),
}
INSIDE = ("attention", "do_kv_cache_update")  # of the forward pass; one event sums up the calls of all layers


def step_parts(trace: Trace) -> dict[str, float]:
    """Milliseconds of the mean step with more than one request, and of its parts: `step: whole_ms`, `step: …_ms`."""
    steps = {plan.step for plan in trace.filter(kind="schedule") if len(plan.num_scheduled_tokens) > 1}
    events = [event for event in trace if event.step in steps]

    def total(*kinds: str) -> float:
        took = (getattr(e, "total_ns", None) or e.t1 - e.t0 for e in events if e.kind in kinds)
        return sum(took) / 1e6 / max(len(steps), 1)

    parts = {name: total(*kinds) for name, kinds in PARTS.items()}
    parts["products, norms, RoPE"] = total("model_forward") - total(*INSIDE)
    parts["the rest"] = total("step") - sum(parts.values())
    return {f"{STEP}{name}_ms": value for name, value in {"whole": total("step"), **parts}.items()}
