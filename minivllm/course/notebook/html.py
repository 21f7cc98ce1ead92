"""HTML that reads well with and without its styles, and how it gets into a cell's output.

Owns: colours, the little markup of sentences, how numbers are written.
Interface: show, note, picture; inline, text_of, colour_of.
Must not know: traces.

GitHub strips every style, so a table is a <table>, a mark is a sign as well as a weight, and colour repeats what a
letter says. Backgrounds are see-through greys: the same in light and dark.
"""

import sys
from html import escape
from typing import Any

from markdown_it import MarkdownIt

COLOURS = {"A": "#0072B2", "B": "#E69F00", "C": "#009E73", "L": "#CC79A7", "V": "#CC79A7"}
OTHERS = "#8C6D46"
TINT = "rgba(127,127,127,.13)"
GREY = "color:#767676"  # 4.5 : 1 on white and 4.6 : 1 on black
CELL = "border:1px solid rgba(127,127,127,.35);padding:2px 7px;text-align:left;vertical-align:top"
MAX_VALUE = 60  # characters


def _markdown() -> MarkdownIt:
    """Markdown with these four marks alone: a value in a sentence may hold any other."""
    markdown = MarkdownIt("zero").enable(["backticks", "emphasis", "link"])
    for mark, tag in (("strong", "b"), ("em", "i")):
        markdown.add_render_rule(f"{mark}_open", lambda *_, tag=tag: f"<{tag}>")
        markdown.add_render_rule(f"{mark}_close", lambda *_, tag=tag: f"</{tag}>")
    markdown.add_render_rule("text", lambda _, tokens, at, *__: _escaped(tokens[at].content))
    markdown.add_render_rule("code_inline", lambda _, tokens, at, *__: f"<code>{_escaped(tokens[at].content)}</code>")
    return markdown


def _escaped(text: str) -> str:
    return escape(text, quote=False)


MARKDOWN = _markdown()


def colour_of(owner: str) -> str:
    """The colour that means this owner; A′ has A's."""
    return COLOURS.get(owner.rstrip("′'"), OTHERS)


def inline(text: str) -> str:
    """A sentence as HTML. It may hold `code`, **strong**, *weak* and [links](address), as in Markdown."""
    return MARKDOWN.renderInline(text)


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
