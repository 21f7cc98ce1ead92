"""What notebook 03 counts: turns of a step, variants of a budget, and draws that nobody hears.

Interface: turns, budgets, reasons, discarded_draws.
Must not know: how anything is shown.
"""

from collections.abc import Mapping
from math import exp
from typing import Any

from minivllm.course.notebook.names import tokens
from minivllm.course.notebook.story import Story
from minivllm.course.notebook.tables import drawn
from minivllm.trace import Trace

END_OF_PROMPT = 3  # tokens shown of what a chunk ends with


def turns(story: Story, step: int) -> list[dict[str, Any]]:
    """The turns of a step in order: who wants how much, gets how much, and what is left.

    vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
    """
    plan = story.plan(step)
    running = story.trace.state_at(plan.seq, before=True).running
    left, rows = plan.token_budget[0], []
    for request_id, tokens_given in plan.num_scheduled_tokens.items():
        name = story.names[request_id]
        rows.append(
            {
                "turn": name,
                "from": "running" if request_id in running else "waiting",
                "left before": left,
                "wants": story.known(name, step) - story.computed(name, step)[1] + tokens_given,
                "gets": tokens_given,
                "left after": left - tokens_given,
            }
        )
        left -= tokens_given
    return rows


def budgets(stories: Mapping[int, Story]) -> list[dict[str, Any]]:
    """One row for each budget of a request that is alone: its chunks, its first word, its steps."""
    rows = []
    for budget, story in stories.items():
        first = story.first_word("A")
        chunks = [story.sent(step)["A"] for step in range(1, first + 1)]
        rows.append(
            {
                "budget": budget,
                "chunks of the prompt": _sum(chunks),
                "first word in step": first,
                "steps in all": story.steps,
            }
        )
    return rows


def _sum(chunks: list[int]) -> str:
    return " + ".join(map(str, chunks)) if len(chunks) < 8 else f"{len(chunks)} times {chunks[0]}"


def reasons(story: Story, name: str, steps: tuple[int, ...]) -> list[dict[str, Any]]:
    """Why some steps passed a request over, with the numbers behind it."""
    skips = story.skips(name)
    return [
        {
            "step": step,
            "reason": skips[step].reason,
            "behind": story.names.get(skips[step].blocked_by),
            "budget left": skips[step].token_budget,
            "blocks needed": skips[step].blocks_needed,
            "blocks free": skips[step].blocks_free,
        }
        for step in steps
    ]


def discarded_draws(trace: Trace) -> list[dict[str, Any]]:
    """The two likeliest tokens of each chunk in mid-prompt, of a trace of one request with values.

    vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
    """
    rows = []
    for step in trace.filter(kind="sampler.forward"):
        if not step.discarded_rows:
            continue
        (batch,) = trace.filter(kind="prepare_inputs", step=step.step)
        row: dict[str, Any] = {
            "step": step.step,
            "the chunk ends with": "…" + "".join(tokens(batch.input_ids[-END_OF_PROMPT:])),
        }
        for rank, candidate in zip(("first", "second"), step.candidates[0][:2], strict=True):
            (text,) = tokens([candidate.token_id])
            row |= {f"{rank} choice": f"`{drawn(text)}`", f"{rank} probability": exp(candidate.logprob)}
        rows.append(row)
    return rows
