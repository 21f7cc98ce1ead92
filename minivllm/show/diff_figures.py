"""Figures of two traces side by side: settings, steps, tokens, hits, preemptions, outputs, times.

Interface: settings, figures, outputs, time_ratios, Compared.
Must not know: events one by one (diff_events.py), or how a figure is shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from minivllm.show.describe import quoted
from minivllm.show.diff_events import Pairs
from minivllm.show.lives import Lives
from minivllm.trace.replay import Trace

TIMED = ("step", "schedule", "model_forward", "sample_tokens", "process_outputs")  # mean of each


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of both traces."""

    what: str
    a: Any
    b: Any

    @property
    def same(self) -> bool:
        return self.a == self.b


def settings(a: Trace, b: Trace) -> list[Compared]:
    """What the headers say differently. Versions of other packages, paths and process ids are no settings."""
    said_a, said_b = dict(_settings(a)), dict(_settings(b))
    rows = [Compared(name, said_a.get(name), said_b.get(name)) for name in dict.fromkeys((*said_a, *said_b))]
    return [row for row in rows if not row.same]


def _settings(trace: Trace) -> Iterator[tuple[str, Any]]:
    header = trace.header
    yield from header.config.items()
    yield from ((f"model.{name}", value) for name, value in header.model.items())
    for name in ("minivllm", "vllm", "clock", "detail", "num_gpu_blocks", "redacted"):
        yield name, getattr(header, name)
    yield from ((f"parts_sha256.{seam}", digest) for seam, digest in header.parts_sha256.items())
    yield "processes", len(header.processes)


def figures(a: Trace, b: Trace) -> list[Compared]:
    """What the runs come to."""
    sums_a, sums_b = _sums(a), _sums(b)
    return [Compared(what, sums_a[what], sums_b[what]) for what in sums_a]


def _sums(trace: Trace) -> dict[str, Any]:
    plans = [event for event in trace.filter(kind="schedule") if event.total_num_scheduled_tokens is not None]
    totals = [plan.total_num_scheduled_tokens for plan in plans]
    admitted = [(new.num_computed_tokens, plan) for plan in plans for new in plan.scheduled_new_reqs]
    admitted += [(c.num_computed_tokens, plan) for plan in plans for c in plan.scheduled_cached_reqs if c.resumed]
    return {
        "steps": len(plans),
        "tokens computed": sum(totals),
        "tokens per step": round(sum(totals) / len(totals), 1) if totals else 0,
        "most tokens in a step": max(totals, default=0),
        "tokens found in the cache": sum(hits for hits, _ in admitted),
        "preemptions": sum(len(plan.preemptions) for plan in plans),
        "times that a request waited": sum(len(plan.skipped) for plan in plans),
        "most requests running": max((len(plan.running) for plan in plans), default=0),
        "fewest free blocks": min((plan.num_free_blocks[1] for plan in plans if plan.num_free_blocks), default=None),
        "messages": sum(1 for event in trace if event.kind in ("core_client.send", "core.send")),
    }


def outputs(a: Trace, b: Trace, pairs: Pairs) -> dict[str, list[Compared]]:
    """Of each request that both have, by its shared name: its text and tokens, why it ended, and its steps."""
    said_a, said_b = _outputs(a, pairs.names_a), _outputs(b, pairs.names_b)
    return {
        name: [Compared(what, value, said_b[name][what]) for what, value in said.items()]
        for name, said in said_a.items()
        if name in said_b
    }


def _outputs(trace: Trace, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Shared name -> what the request got."""
    lives = Lives(trace)
    last = trace.state_at(trace.events[-1].seq).requests if trace.events else {}
    found = {}
    for request_id, life in lives.lives.items():
        state = last.get(request_id)
        sampled = [
            u for e in life.events if e.kind == "update_from_output" for u in e.updates if u.req_id == request_id
        ]
        worked = [role.step for role in lives.roles(request_id) if role.num_new_tokens]
        first = next((e.step for e in life.events if e.kind == "update_from_output" and _gave(e, request_id)), None)
        found[names[request_id]] = {
            "text": quoted(state.output_text, 10_000) if state is not None and state.output_text else None,
            "tokens": list(state.output_token_ids) if state is not None else [],
            "number of tokens": sum(update.num_tokens[1] - update.num_tokens[0] for update in sampled),
            "end": life.end,
            "first token in step": first,
            "last step": worked[-1] if worked else None,
        }
    return found


def _gave(event: Any, request_id: str) -> bool:
    return any(u.req_id == request_id and u.num_tokens[1] > u.num_tokens[0] for u in event.updates)


def time_ratios(a: Trace, b: Trace) -> list[tuple[str, float]]:
    """b's time divided by a's: of the whole run, and of a call of each kind, in the mean. Empty for logical clocks."""
    if a.header.clock != "monotonic" or b.header.clock != "monotonic" or not a.events or not b.events:
        return []
    whole = [max(event.t1 for event in trace) for trace in (a, b)]
    ratios = [("the whole run", whole[1] / whole[0])] if whole[0] else []
    for kind in TIMED:
        means = [_mean([event.duration for event in trace.filter(kind=kind)]) for trace in (a, b)]
        if all(means):
            ratios.append((f"one {kind}", means[1] / means[0]))
    return ratios


def _mean(durations: list[int]) -> float:
    return sum(durations) / len(durations) if durations else 0.0
