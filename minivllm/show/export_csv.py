"""A trace as a table: a row for each step.

Interface: to_csv, COLUMNS.
Must not know: files.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

from minivllm.printable import printable
from minivllm.show.lives import Lives, StepEvents
from minivllm.trace.replay import Trace

COLUMNS = (
    "step",
    "t0_ms",  # from the first event of the trace; empty for a logical clock
    "took_ms",
    "token_budget",
    "num_tokens",  # planned
    "num_prefill_tokens",
    "num_decode_tokens",
    "num_recompute_tokens",  # again, after a preemption
    "num_hit_tokens",  # found in the prefix cache by those admitted
    "num_scheduled",  # requests
    "num_new",
    "num_resumed",
    "num_preempted",
    "num_skipped",
    "num_finished",  # ended by this step
    "num_sampled",  # tokens
    "num_running",  # after the plan, as the next ones
    "num_waiting",
    "num_free_blocks",
    "scheduled",  # request:tokens, by name, in the order of the plan
    "skipped",  # request:reason
    "preempted",  # requests
)


def to_csv(trace: Trace) -> str:
    """The steps of a trace as CSV, with a heading."""
    lives = Lives(trace)
    phase_of = {(i, role.step): role.phase for i in lives.lives for role in lives.roles(i)}
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for step in lives.plans():
        writer.writerow({name: _cell(value) for name, value in _row(lives, step, phase_of)})
    return out.getvalue()


def _cell(value: Any) -> Any:
    """What a spreadsheet shows and does not run: a text that begins like a formula gets the quote that says it is a
    text."""
    if not isinstance(value, str):
        return value
    text = printable(value).replace("\n", "\\n").replace("\t", "\\t")
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _row(lives: Lives, step: StepEvents, phase_of: dict[tuple[str, int], str]) -> Iterator[tuple[str, Any]]:
    plan = step.schedule
    yield "step", step.number
    if lives.trace.header.clock == "monotonic":
        yield "t0_ms", f"{step.t0 / 1e6:.3f}"
        yield "took_ms", f"{(step.t1 - step.t0) / 1e6:.3f}"
    yield "token_budget", plan.token_budget[0]
    yield "num_tokens", plan.total_num_scheduled_tokens
    tokens = plan.num_scheduled_tokens
    for phase in ("prefill", "decode", "recompute"):
        yield f"num_{phase}_tokens", sum(n for i, n in tokens.items() if phase_of.get((i, step.number)) == phase)
    resumed = [cached for cached in plan.scheduled_cached_reqs if cached.resumed]
    yield "num_hit_tokens", sum(admitted.num_computed_tokens for admitted in [*plan.scheduled_new_reqs, *resumed])
    yield "num_scheduled", len(tokens)
    yield "num_new", len(plan.scheduled_new_reqs)
    yield "num_resumed", len(resumed)
    yield "num_preempted", len(plan.preemptions)
    yield "num_skipped", len(plan.skipped)
    updates = step.update.updates if step.update is not None else []
    yield "num_finished", sum(update.finish_reason is not None for update in updates)
    yield "num_sampled", sum(update.num_tokens[1] - update.num_tokens[0] for update in updates)
    yield "num_running", plan.num_running[1]
    yield "num_waiting", plan.num_waiting[1]
    yield "num_free_blocks", plan.num_free_blocks[1]
    yield "scheduled", " ".join(f"{lives.name(i)}:{n}" for i, n in tokens.items())
    yield "skipped", " ".join(f"{lives.name(skipped.req_id)}:{skipped.reason}" for skipped in plan.skipped)
    yield "preempted", " ".join(lives.name(preemption.req_id) for preemption in plan.preemptions)
