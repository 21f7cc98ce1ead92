"""For notebook 07 (and 08, 13): the values that traces of detail 2 hold of one attention layer.

Owns: nothing.
Interface: shapes; cached, read_by_head, HeadRead, weights_on, prompt_tensors; likeliest, early; moved, tiny.
Must not know: torch; why a layer or a head was chosen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minivllm.trace import Trace


def layer_event(trace: Trace, kind: str, step: int, layer: int) -> Any:
    """do_kv_cache_update or attention of one layer in one step. Raises LookupError where there is none."""
    for event in trace.filter(kind=kind, step=step):
        if event.layer == layer:
            return event
    raise LookupError(f"no {kind} of layer {layer} in step {step}")


def shapes(trace: Trace, step: int = 1) -> list[tuple[str, str, str]]:
    """What goes through one layer in a step of a trace of detail 1: (what, shape, which tokens a number depends on).

    vLLM: model_executor/models/llama.py::LlamaDecoderLayer.forward
    """
    model = trace.header.model
    write, read = (layer_event(trace, kind, step, 0) for kind in ("do_kv_cache_update", "attention"))
    (tokens, heads, size), (_, kv_heads, _) = read.query_shape, write.key_shape
    alone = "its own"
    return [
        ("hidden states, normed", f"[{tokens}, {model['hidden_size']}]", alone),
        ("q, k and v, projected", f"[{tokens}, {(heads + 2 * kv_heads) * size}]", alone),
        ("q as heads, rotated", f"[{tokens}, {heads}, {size}]", alone),
        ("k as heads, rotated; v as heads", f"[{tokens}, {kv_heads}, {size}]", alone),
        ("attention", f"{list(read.tensors['output'].shape)}", "all up to its own"),
        ("projected back, added", f"[{tokens}, {model['hidden_size']}]", alone),
        ("inside the MLP", f"[{tokens}, {model['intermediate_size']}]", alone),
        ("hidden states of the next layer", f"[{tokens}, {model['hidden_size']}]", alone),
    ]


def cached(trace: Trace, position: int, layer: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """K and V that were written to the cache for the token at `position` of the only request: [KV heads, head size].

    Raises LookupError where the trace does not watch it.
    """
    for batch in trace.filter(kind="prepare_inputs"):
        if position in batch.positions:
            event = layer_event(trace, "do_kv_cache_update", batch.step, layer)
            place = event.watched.index(batch.positions.index(position))
            return np.array(event.keys[place]), np.array(event.values[place])
    raise LookupError(f"no step writes position {position}")


@dataclass
class HeadRead:
    """What one query head of one token reads."""

    query: np.ndarray  # float64[D]
    keys: np.ndarray  # float64[L, D], of its KV head
    values: np.ndarray  # float64[L, D]
    output: np.ndarray  # float64[D], what the engine's attention gave

    @property
    def scores(self) -> np.ndarray:
        """[L], scaled."""
        return self.keys @ self.query / np.sqrt(len(self.query))

    @property
    def weights(self) -> np.ndarray:
        """[L], they sum to 1."""
        exponentials = np.exp(self.scores - self.scores.max())
        return exponentials / exponentials.sum()


def read_by_head(trace: Trace, step: int, layer: int, head: int, row: int = 0) -> HeadRead:
    """What query head `head` of the last token of a row reads, where the trace watches its KV head and that token."""
    event = layer_event(trace, "attention", step, layer)
    group = len(event.query[0]) // event.kv_cache_shape[3]
    kept = list(trace.header.watch["kv_heads"]).index(head // group)
    keys, values = (np.array(tensor[row][kept]) for tensor in (event.keys, event.values))
    return HeadRead(np.array(event.query[-1][head]), keys, values, np.array(event.output[-1][head]))


def weights_on(trace: Trace, step: int, place: int) -> np.ndarray:
    """The weight that each head of each layer puts on a watched position, by its place in the watch: [layers, heads].
    """
    events = [event for event in trace.filter(kind="attention", step=step) if event.weights]
    return np.array([event.weights[0][place] for event in sorted(events, key=lambda event: event.layer)])


def prompt_tensors(trace: Trace, layer: int = 16) -> list[np.ndarray]:
    """q, k and v of the whole prompt in step 1: float32 [heads, tokens, D] each."""
    write, read = (layer_event(trace, kind, 1, layer) for kind in ("do_kv_cache_update", "attention"))
    tensors = (read.query, write.keys, write.values)
    return [np.ascontiguousarray(np.array(one, dtype=np.float32).swapaxes(0, 1)) for one in tensors]


def likeliest(trace: Trace, step: int, row: int = 0) -> list[tuple[int, float]]:
    """(token id, probability by the raw logits) of a row's likeliest tokens."""
    (event,) = trace.filter(kind="sampler.forward", step=step)
    return [(one.token_id, float(np.exp(one.logprob))) for one in event.candidates[row]]


def early(trace: Trace, step: int) -> dict[int, list[tuple[int, float]]]:
    """Layers passed -> (token id, probability) of the likeliest tokens, if the head were read there."""
    (event,) = trace.filter(kind="model_forward", step=step)
    found = sorted(event.early_candidates.items())
    return {layer + 1: [(one.token_id, float(np.exp(one.logprob))) for one in rows[0]] for layer, rows in found}


def moved(axes: Iterable[str], source: int, place: int) -> list[str]:
    """Names of axes with the one at `source` moved to `place`."""
    order = list(axes)
    order.insert(place, order.pop(source))
    return order


def tiny(error: float) -> str:
    """A difference in words that are the same on every machine."""
    return "below a hundred-thousandth" if error < 1e-5 else "above a hundred-thousandth"
