"""Facts of notebook 10: how the text of a request grows on the caller's side, and who ended it.

Owns: nothing; it reads a trace.
Interface: grown_text, verdict; Grown, Verdict.
Must not know: how anything is shown.
"""

from typing import NamedTuple

from minivllm.trace import Trace


class Grown(NamedTuple):
    """One token on the caller's side."""

    step: int
    token_id: int
    piece: str  # what the token added to the text, or what of it was left by a stop string
    shown: str  # what became visible with it
    held: str  # the end of the text that stays hidden for now
    stop_string: str | None  # found with it


class Verdict(NamedTuple):
    """How a request ended.

    vLLM: v1/engine/__init__.py::EngineCoreOutput
    """

    text: str
    num_output_tokens: int
    finish_reason: str | None
    stop_reason: int | str | None
    core_said: str | None  # the core's own finish reason; None: the core was told
    num_aborts: int  # messages or calls that told the core


def grown_text(trace: Trace, request: str = "0") -> list[Grown]:
    """The tokens of one request as the detokenizer took them in. request: external or internal id."""
    text, visible, rows = "", 0, []
    for event in trace.filter(kind="detokenize", request=request):
        text = (text + event.new_text)[: event.num_chars[1]]
        end = len(text) - event.num_held_chars
        shown, held = text[visible:end], text[max(end, 0) :]
        visible = max(visible, end)
        rows.append(Grown(event.step, event.new_token_ids[-1], event.new_text, shown, held, event.stop_string))
    return rows


def verdict(trace: Trace, request: str = "0") -> Verdict:
    """What the caller was told of one request, and what the core had said. request: external id."""
    (answer,) = (one for event in trace.filter(kind="run_engine") for one in event.outputs if one.request_id == request)
    updates = (one for event in trace.filter(kind="update_from_output", request=request) for one in event.updates)
    ids = trace.internal_ids(request)
    core_said = next((one.finish_reason for one in updates if one.req_id in ids and one.finish_reason), None)
    num_aborts = len(trace.filter(kind="abort_requests", request=request))
    return Verdict(
        answer.text, answer.num_output_tokens, answer.finish_reason, answer.stop_reason, core_said, num_aborts
    )


def marked(text: str) -> str:
    """A text with its blanks and line ends made visible, in quotes."""
    return "'" + text.replace(" ", "␣").replace("\n", "⏎") + "'"
