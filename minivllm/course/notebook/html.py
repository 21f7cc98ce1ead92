"""HTML that reads well with and without its styles, and how it gets into a cell's output.

Owns: colours, the little markup of sentences, how numbers are written.
Interface: show, note, picture; inline, text_of, colour_of.
Must not know: traces.

GitHub strips every style, so a table is a <table>, a mark is a sign as well as a weight, and colour repeats what a
letter says. Backgrounds are see-through greys: the same in light and dark.
"""

import re
import sys
from html import escape
from typing import Any

COLOURS = {"A": "#0072B2", "B": "#E69F00", "C": "#009E73", "L": "#CC79A7", "V": "#CC79A7"}
OTHERS = "#8C6D46"
TINT = "rgba(127,127,127,.13)"
GREY = "color:#767676"  # 4.5 : 1 on white and 4.6 : 1 on black
CELL = "border:1px solid rgba(127,127,127,.35);padding:2px 7px;text-align:left;vertical-align:top"
MARKUP = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*(.+?)\*|\[([^\]]+)\]\(([^()\s]+)\)")
MAX_VALUE = 60  # characters


def colour_of(owner: str) -> str:
    """The colour that means this owner; A′ has A's."""
    return COLOURS.get(owner.rstrip("′'"), OTHERS)


def inline(text: str) -> str:
    """A sentence as HTML. It may hold `code`, **strong**, *weak* and [links](address), as in Markdown."""
    parts, at = [], 0
    for match in MARKUP.finditer(text):
        code, strong, weak, words, address = match.groups()
        parts.append(escape(text[at : match.start()], quote=False))
        at = match.end()
        if code:
            parts.append(f"<code>{escape(code, quote=False)}</code>")
        elif strong or weak:
            tag = "b" if strong else "i"
            parts.append(f"<{tag}>{inline(strong or weak)}</{tag}>")
        else:
            parts.append(f'<a href="{escape(address)}">{inline(words)}</a>')
    return "".join([*parts, escape(text[at:], quote=False)])


def text_of(value: Any) -> str:
    """A value as it is written everywhere: thousands with a comma, probabilities with three digits, before → after."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _short(", ".join(f"{key}: {text_of(one)}" for key, one in value.items()), len(value))
    if isinstance(value, tuple) and len(value) == 2:
        return f"{text_of(value[0])} → {text_of(value[1])}"
    if isinstance(value, list | tuple):
        return _short("[" + ", ".join(str(one) for one in value) + "]", len(value))
    return str(value)


def _short(text: str, count: int) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 14].rstrip()} … ({count} in all)"


def show(html: str, plain: str) -> None:
    """Put it into the cell's output; outside a notebook print `plain`, which says the same in words."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(plain)
        return
    from IPython.display import display

    display({"text/html": html, "text/plain": plain}, raw=True)


def note(text: str) -> None:
    """A paragraph of Markdown with computed numbers in it."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(text)
        return
    from IPython.display import display

    display({"text/markdown": text, "text/plain": text}, raw=True)


def picture(figure: Any, caption: str) -> None:
    """A figure of minivllm.show.pictures, and one sentence under it that could be false."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import display

        display(figure)
    note(f"*{caption}*")
