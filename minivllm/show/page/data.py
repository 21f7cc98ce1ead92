"""What the page needs to know: the events, what the kinds are, explanations, and the texts of tokens.

Owns: the shape of the page's data.
Interface: page_data.
Must not know: HTML.
"""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import msgspec

from minivllm.show.explain import Explainer
from minivllm.show.page.deltas import state_data
from minivllm.show.page.pieces import token_pieces
from minivllm.show.page.sources import our_source, vllm_source
from minivllm.show.sentences import Key, Said, Teller
from minivllm.show.steps import Steps
from minivllm.trace.events import KINDS, Unknown
from minivllm.trace.replay import Trace

TRIVIAL = ("not_arrived", "finished")  # verdicts that the page says by itself


def page_data(
    trace: Trace,
    name: str,
    place: str = "",
    only: str = "",
    tokenizer: str | Path | None = None,
    pieces: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """All that the page shows, ready for JSON. place, only, tokenizer, pieces: see page_text in minivllm.show.page."""
    pieces = token_pieces(trace, tokenizer) if pieces is None else dict(pieces)
    steps = Steps(trace)
    header = msgspec.to_builtins(trace.header)
    environment = header.pop("environment", None) or {}  # paths and process ids are nobody's business
    return {
        "name": name,
        "place": place,
        "only": only,
        "model": PurePath(environment.get("model") or "").name,
        "header": header,
        "truncated": trace.truncated,
        "requests": trace.external_ids,
        "kinds": _kinds({event.kind for event in trace}),
        "events": [event.raw if isinstance(event, Unknown) else event for event in trace],
        "state": state_data(trace),
        **steps.data(),
        "said": _sentences(trace, steps, pieces),
        **_explanations(trace),
        "pieces": pieces,
    }


def _kinds(used: set[str]) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            "boundary": row.boundary,
            "method": row.method,
            "ours": our_source(row.method),
            "vllm": vllm_source(row.vllm),
        }
        for kind, row in KINDS.items()
        if kind in used
    }


def _sentences(trace: Trace, steps: Steps, pieces: Mapping[int, str]) -> dict[str, Any]:
    """`of`: for each event the number of one of `sentences`; where it depends on the followed request: request ->
    number, and "" for anybody else. A sentence is [parts, note]; a part is a text, or [key word], or [key word, 1] for
    a loss.
    """
    teller = Teller(trace, steps, pieces)
    numbers: dict[Said, int] = {}

    def number(event: Any, followed: str | None = None) -> int:
        return numbers.setdefault(teller.tell(event, followed), len(numbers))

    of: list[int | dict[str, int]] = []
    for event in trace:
        if event.kind == "sample_tokens" and len(event.reqs) > 1:
            of.append({"": number(event)} | {i: number(event, i) for i in event.req_ids})
        else:
            of.append(number(event))
    return {"of": of, "sentences": [[list(map(_part, one.parts)), one.note] for one in numbers]}


def _part(part: str | Key) -> Any:
    return part if isinstance(part, str) else [part.text, 1] if part.is_loss else [part.text]


def _explanations(trace: Trace) -> dict[str, Any]:
    """`why`: request -> step -> [verdict, sentence, reasons]; a reason is [label, sentence, failed, events].

    Many sentences recur from step to step: they are numbers of `sentences`.
    """
    explainer = Explainer(trace)
    numbers: dict[str, int] = {}

    def number(sentence: str) -> int:
        return numbers.setdefault(sentence, len(numbers))

    steps = sorted(explainer.lives.steps)
    found: dict[str, dict[int, Any]] = {}
    for request_id in trace.request_ids:
        of_request = found[request_id] = {}
        for step in steps:
            answer = explainer.explain(request_id, step)
            if answer.verdict not in TRIVIAL:
                reasons = [[r.label or r.code, number(r.sentence), r.failed, r.seqs] for r in answer.reasons]
                of_request[step] = [answer.verdict, number(answer.sentence), reasons]
    return {"why": found, "sentences": list(numbers)}
