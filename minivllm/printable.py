"""Text that others wrote, made safe to show: in a terminal, in a log, in a table.

Interface: printable, one_line, PrintableStream.

A prompt, an id, a file may hold characters that are orders to a terminal (ESC clears the screen or writes to the
clipboard), that end a text (NUL), or that turn the direction of what follows. All of these are shown as Python writes
them in a literal, `\\x1b`. Newlines and tabs stay.
"""

import re
from typing import Any

# C0 without tab and newline, DEL and C1; marks of direction; line and paragraph separators; half surrogate pairs, which
# no encoding has; tags, which are invisible
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: Any) -> str:
    """`str(text)`, each character that would not be seen as such written as an escape."""
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))


def one_line(error: BaseException, limit: int = 300) -> str:
    """The text of another library's error, for a message of one line."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= limit else f"{text[:limit]} …"


class PrintableStream:
    """A text stream that passes on what is printable. All else that a stream can do, the stream behind it does."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
