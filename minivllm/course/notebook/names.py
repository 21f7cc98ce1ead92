"""Names for people: which request is A, and what text a token stands for.

Owns: the letters of the running example's cast, and the pieces that are known without a tokenizer.
Interface: who, tokens.
Must not know: a tokenizer's package is needed for none of the recorded traces; data.json has their pieces.
"""

from collections.abc import Iterable
from functools import cache

from minivllm.course import scenarios
from minivllm.course.notebook.data import read_data
from minivllm.trace.replay import Trace

CAST = "ABCDEFGHLRV"


def who(trace: Trace) -> dict[str, str]:
    """Internal id -> letter of the cast, in order of arrival: A, then A′ for the same prompt again. Others: r0, r1.

    With n > 1 the children are A0, A1.
    """
    prompts = trace.filter(kind=("render_chat", "render_cmpl"))
    letters = [_letter(getattr(event, "messages", None)) for event in prompts]
    found: dict[str, str] = {}
    seen: dict[str, int] = {}
    externals = list(dict.fromkeys(trace.external_ids.values()))
    for place, external in enumerate(externals):
        internals = trace.internal_ids(external)
        letter = (letters[place] if place < len(letters) else None) or f"r{external}"
        dashes = "′" * seen.get(letter, 0)
        seen[letter] = seen.get(letter, 0) + 1
        for child, internal in enumerate(internals):
            found[internal] = letter + dashes + (str(child) if len(internals) > 1 else "")
    return found


def _letter(messages: object) -> str | None:
    return next((letter for letter in CAST if getattr(scenarios, letter) == messages), None)


def tokens(ids: Iterable[int]) -> list[str]:
    """The text of each token id, for `pieces` and for sentences; ⟨id⟩ where it is not known."""
    return [_known().get(token_id, f"⟨{token_id}⟩") for token_id in ids]


@cache
def _known() -> dict[int, str]:
    return {int(token_id): text for token_id, text in read_data()["pieces"].items()}
