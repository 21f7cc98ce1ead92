"""Why: for any request and step, in plain words with the numbers, from the trace alone.

    from minivllm.trace import Trace
    from minivllm.show.explain import explain, format_explanation
    print(format_explanation(explain(Trace.load("run.jsonl"), "1", step=2)))

Interface: explain, explain_all, format_explanation; Explainer, to ask one trace many times.
Must not know: a running engine, or how the trace was recorded.
"""

import textwrap

from minivllm.show.explain_life import explain_life
from minivllm.show.explain_step import explain_step
from minivllm.show.lives import Lives
from minivllm.show.reasons import Explanation, Reason
from minivllm.trace.check import TraceError
from minivllm.trace.replay import Trace

__all__ = ["Explainer", "Explanation", "Reason", "explain", "explain_all", "format_explanation"]


class Explainer:
    """Answers questions about one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lives = Lives(trace)

    def explain(self, request: str, step: int | None = None) -> Explanation:
        """See explain."""
        internal = self.trace.internal_ids(request)
        if len(internal) > 1:
            raise TraceError(f"Request {request} has {len(internal)} answers (n > 1): ask for {' or '.join(internal)}.")
        life = self.lives.lives[internal[0]]
        if step is None:
            return explain_life(self.lives, life)
        if step not in self.lives.steps:
            steps = sorted(self.lives.steps)
            known = f"It has steps {steps[0]} to {steps[-1]}." if steps else "It has no step at all."
            raise TraceError(f"The trace has no step {step}. {known}")
        return explain_step(self.lives, life, step)


def explain(trace: Trace, request: str, step: int | None = None) -> Explanation:
    """Why a step gave a request what it gave it; without a step, the request's whole life.

    request: external or internal id. Raises TraceError for a request or step that the trace does not have, and for an
    external id that stands for several requests (n > 1).
    """
    return Explainer(trace).explain(request, step)


def explain_all(trace: Trace, request: str, step: int | None = None) -> list[Explanation]:
    """As explain; of n > 1 each answer by itself."""
    explainer = Explainer(trace)
    return [explainer.explain(internal, step) for internal in trace.internal_ids(request)]


def format_explanation(explanation: Explanation, width: int = 100) -> str:
    """An explanation as text: the answer, the reasons behind it, and the events that they rest on."""
    where = "" if explanation.step is None else f", step {explanation.step}"
    lines = [f"Request {explanation.name}{where}: {explanation.verdict.replace('_', ' ')}"]
    lines += textwrap.wrap(explanation.sentence, width, initial_indent="  ", subsequent_indent="  ")
    labels = [reason.label or reason.code for reason in explanation.reasons]
    column = max(map(len, [*labels, "events"])) + 2
    for label, reason in zip(labels, explanation.reasons, strict=True):
        mark = "✗" if reason.failed else " "
        first = f"  {mark} {label:<{column}}"
        lines += textwrap.wrap(reason.sentence, width, initial_indent=first, subsequent_indent=" " * len(first))
    if explanation.step is not None and explanation.seqs:
        lines.append(f"    {'events':<{column}}{' '.join(map(str, explanation.seqs))}")
    return "\n".join(line.rstrip() for line in lines)
