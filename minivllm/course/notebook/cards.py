"""Cards: a prediction with its options, closing questions, and single events.

Owns: how an answer is hidden until it is asked for. `<details>` needs no kernel and no script, so it works in a saved
file, and a notebook that nobody watches runs through.
Interface: predict, recall, checks; card, cards.
Must not know: what is asked.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from minivllm.course.notebook.html import CELL, GREY, TINT, inline, show, text_of
from minivllm.errors import InputError
from minivllm.trace.events import KINDS, Event

FRAME = f"border-left:4px solid #767676;background:{TINT};padding:6px 12px;margin:4px 0;max-width:60em"
DONT_KNOW = "I don't know"


def predict(
    question: str,
    answer: Any,
    wrong: Mapping[Any, str | tuple[str, str]],
    right: str,
    hint: str | None = None,
    guess: Any = None,
) -> None:
    """A question, and its options in an order that the question's text decides; each opens its own sentence.

    answer: computed by the caller from the trace. wrong: option -> feedback, or (the idea behind it, feedback).
    right: what is said under the answer. guess: an option, to be told the verdict at once.
    Raises InputError when the answer is among the wrong options: then the engine or the question has changed.
    """
    options = {text_of(option): feedback for option, feedback in wrong.items()}
    answer_text = text_of(answer)
    if answer_text in options:
        raise InputError(f"The answer {answer_text!r} of {question!r} is also offered as a wrong one.")
    if not options:
        raise InputError(f"{question!r} needs wrong options, each with what it teaches.")
    order = sorted([*options, answer_text], key=lambda option: sha256((question + option).encode()).digest())
    body = [_option(option, options.get(option), right) for option in order]
    body.append(_details(DONT_KNOW, f"Answer: <b>{inline(answer_text)}</b>. {inline(right)}"))
    if hint:
        body.insert(0, _details("A hint", inline(hint)))
    if guess is not None:
        said = text_of(guess)
        body.append(f"<p>Your guess, <b>{inline(said)}</b>: {_verdict(said, answer_text, options, right)}</p>")
    title = f"<p><b>Predict.</b> {inline(question)} <i>Choose, then open it.</i></p>"
    plain = f"Predict: {question} Options: {'; '.join(order)}; {DONT_KNOW}."
    show(f'<div style="{FRAME}">{title}{"".join(body)}</div>', plain)


def _option(option: str, feedback: str | tuple[str, str] | None, right: str) -> str:
    return _details(option, f"✓ <b>Yes.</b> {inline(right)}" if feedback is None else f"✗ {_told(feedback)}")


def _told(feedback: str | tuple[str, str]) -> str:
    if isinstance(feedback, str):
        return inline(feedback)
    idea, sentence = feedback
    return f"<i>{inline(idea)}:</i> {inline(sentence)}"


def _verdict(said: str, answer: str, options: Mapping[str, Any], right: str) -> str:
    if said == answer:
        return f"✓ yes. {inline(right)}"
    return f"✗ {_told(options[said])}" if said in options else "✗ not one of the options; open them."


def _details(summary: str, html: str) -> str:
    return (
        f'<details style="margin:2px 0"><summary style="cursor:pointer">{inline(summary)}</summary>'
        f'<p style="margin:2px 0 6px 18px">{html}</p></details>'
    )


def recall(question: str, answer: str) -> None:
    """One question from an earlier notebook, with its answer hidden."""
    html = f"<p><b>Recall.</b> {inline(question)}</p>{_details('Answer', inline(answer))}"
    show(f'<div style="{FRAME}">{html}</div>', f"Recall: {question}")


def checks(questions: Sequence[tuple[str, str]]) -> None:
    """The closing questions, with hidden answers."""
    items = "".join(f"<li><p>{inline(one)}</p>{_details('Answer', inline(answer))}</li>" for one, answer in questions)
    show(f'<div style="{FRAME}"><ol>{items}</ol></div>', "\n".join(one for one, _ in questions))


# ---------------------------------------------------------------------- events


def card(event: Event, fields: Sequence[str] = (), before_after: Sequence[str] = ()) -> None:
    """One event: when, where, who, and some of its fields. See `cards`."""
    cards((event, fields, before_after))


def cards(*events: tuple) -> None:
    """Events side by side: each is (event, fields) or (event, fields, before_after).

    fields: names; `name` or `name=label`. before_after: names of fields that hold a value at entry and at exit.
    """
    shown = [(_title(event), _place(event), _rows(event, *more)) for event, *more in events]
    one = f'style="{CELL};padding:6px 10px"'
    html = "".join(f"<td {one}><b>{title}</b><br>{place}{_table(rows)}</td>" for title, place, rows in shown)
    plain = "\n".join(f"{title} ({place}): " + ", ".join(f"{n} {v}" for n, v in rows) for title, place, rows in shown)
    show(f'<table style="margin:4px 0"><tr>{html}</tr></table>', plain)


def _title(event: Event) -> str:
    return " ".join(part for part in (KINDS[event.kind].boundary if event.kind in KINDS else "", event.kind) if part)


def _place(event: Event) -> str:
    step = "before step 1" if event.step is None else f"step {event.step}"
    return f"event {event.seq} · {step} · {event.proc}, {event.thread}"


def _rows(event: Event, fields: Sequence[str] = (), before_after: Sequence[str] = ()) -> list[tuple[str, str]]:
    rows = []
    for name in [*fields, *before_after]:
        name, _, label = name.partition("=")
        if not hasattr(event, name):
            raise InputError(f"The event {event.kind} has no field {name!r}. Its fields: {', '.join(_fields(event))}.")
        value = getattr(event, name)
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()  # of the one request that there is
        rows.append((label or name, text_of(value)))
    return rows


def _fields(event: Event) -> tuple[str, ...]:
    return type(event).__struct_fields__


def _table(rows: list[tuple[str, str]]) -> str:
    cell = f"{CELL};border:0"
    body = "".join(
        f'<tr><td style="{cell};{GREY}">{inline(name)}</td><td style="{cell}">{inline(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{body}</table>" if rows else ""
