"""A trace becomes one self-contained HTML file.

Owns: how data, style and scripts are put into the page.
Interface: render, page_text.
Must not know: what the page shows, or how (page-files/*.js).

The scripts are ES modules. A browser loads no modules from disk, so each becomes a function in one script that returns
what the module exports; they follow each other so that a module stands behind those that it imports.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from minivllm.errors import InputError
from minivllm.files import write_file
from minivllm.printable import printable
from minivllm.show.page.data import page_data
from minivllm.trace.replay import Trace

PAGE = Path(__file__).with_name("page-files")
MODULES = (
    "data.js",
    "state.js",
    "marks.js",
    "link.js",
    "splitters.js",
    "facts.js",
    "strip.js",
    "layout.js",
    "timeline.js",
    "event.js",
    "blocks.js",
    "schedule.js",
    "batch.js",
    "attention.js",
    "text.js",
    "why.js",
    "main.js",
)
# A second line of defence: the browser runs this one script and no other, and fetches nothing.
POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
IMPORT = re.compile(r'^import (\{[^}]*\}) from "([\w.]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (function|const|let|class) (\w+)", re.MULTILINE)


def render(trace: Trace, path: str | Path, name: str | None = None, tokenizer: str | Path | None = None) -> Path:
    """Write the page of a trace; returns where it is. name: the heading, by default the file's name.

    tokenizer: the folder of the model or its tokenizer, for the texts of single tokens; the default model's is found.

    Raises InputError where the file can't be written, or the trace has no event.
    """
    path = Path(path)
    text = page_text(trace, name or path.stem, tokenizer=tokenizer)
    try:
        write_file(path, text.encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        raise InputError(f"The page can't be written to {path}: {error.strerror or error}.") from error
    return path


def page_text(
    trace: Trace,
    name: str,
    place: str = "",
    only: str = "",
    tokenizer: str | Path | None = None,
    pieces: Mapping[int, str] | None = None,
) -> str:
    """The page as text. Raises InputError for a trace without events.

    place: where it opens, as in its address (`e=40&t=blocks`). only: one part of it (`timeline`, `event`, `panel`).
    tokenizer: see render. pieces: the texts of tokens, where they are known already; no tokenizer is looked for then.
    """
    if not trace.events:
        raise InputError("The trace has no event: there is nothing to show.")
    data = msgspec.json.encode(page_data(trace, name, place, only, tokenizer, pieces)).decode()
    script = "\n".join(["const modules = {};", *map(_inlined, MODULES)])
    parts = {
        "policy": POLICY.format(b64encode(sha256(f"\n{script}\n".encode()).digest()).decode()),
        "title": _escaped(printable(name)),
        "style": _read("style.css"),
        "data": data.replace("<", "\\u003c"),  # so that no text in it can end the element
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _inlined(module: str) -> str:
    """A module as a function that runs at once."""
    text = _read(module)
    exports = ", ".join(match[2] for match in EXPORT.finditer(text))
    body = EXPORT.sub(r"\1 \2", IMPORT.sub(r'const \1 = modules["\2"];', text))
    return f'modules["{module}"] = (() => {{\n{body}return {{ {exports} }};\n}})();'


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
