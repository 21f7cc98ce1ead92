"""A single panel of the page, in a notebook.

Owns: how a panel is put into a cell's output, so that it works in a saved notebook too.
Interface: show; unpacked, for who compares saved outputs.
Must not know: Jupyter; an object that has `_repr_html_` is all that a notebook asks for.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from html import escape

from minivllm.errors import InputError
from minivllm.show.page.render import page_text
from minivllm.trace.replay import Trace

PANELS = ("blocks", "schedule", "batch", "attention", "text", "why")  # the tabs of the page
PARTS = ("timeline", "event", *PANELS)
# The page is three times as large as what a notebook should hold, so it is unpacked where it is shown.
UNPACK = """<!doctype html><meta charset="utf-8"><title>A trace</title><script>
const bytes = Uint8Array.from(atob("{{packed}}"), (c) => c.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text().then((text) => {
  document.open();
  document.write(text);
  document.close();
});
</script>"""
PACKED = re.compile(r'(?<=atob\(")[A-Za-z0-9+/=]*')
HEIGHTS = {"timeline": 310, "event": 440, "page": 800}  # px


class Panel:
    """What `show` returns: a notebook draws it, by itself and without a server."""

    def __init__(self, text: str, height: int) -> None:
        self.text = text  # the page
        self.height = height  # px

    def __repr__(self) -> str:
        return "A panel of the trace's page: a notebook draws it."

    def _repr_html_(self) -> str:
        packed = b64encode(zlib.compress(self.text.encode(), 9)).decode()
        page = escape(UNPACK.replace("{{packed}}", packed), quote=False).replace("'", "&#x27;")
        style = f"width:100%;height:{self.height}px;border:0"
        return f"<iframe srcdoc='{page}' style='{style}' sandbox='allow-scripts allow-popups'></iframe>"


def unpacked(html: str) -> str:
    """A panel's HTML with its page in plain text: builds of zlib pack the same page into different bytes.

    What is no packed page stays as it is.
    """
    try:
        return PACKED.sub(lambda match: zlib.decompress(b64decode(match[0])).decode(), html)
    except (ValueError, zlib.error):
        return html


def show(
    trace: Trace,
    panel: str = "page",
    event: int | None = None,
    request: str | None = None,
    height: int | None = None,
    name: str | None = None,
    pieces: Mapping[int, str] | None = None,
) -> Panel:
    """One panel of the trace's page, at an event.

    panel: page (all of it), timeline, event, or a tab: blocks, schedule, batch, attention, text, why. event: its seq,
    by default the first plan. request: the followed one, as the caller knows it. height: px.
    name: the heading, by default the panel's name. pieces: see render.page_text; with them the panel is the same on
    every machine.
    Raises InputError for a panel, and TraceError for a request, that there is not.
    """
    if panel != "page" and panel not in PARTS:
        raise InputError(f"There is no panel {panel!r}. Panels: page, {', '.join(PARTS)}.")
    if event is not None and event not in trace:
        raise InputError(f"The trace has no event {event}. It has {len(trace)}, from {trace.events[0].seq}.")
    if request is not None:
        trace.internal_ids(request)
    if event is None:
        event = next((one.seq for one in trace if one.kind == "schedule"), trace.events[0].seq if trace.events else 0)
    place = f"e={event}&f=0" + (f"&t={panel}" if panel in PANELS else "") + (f"&r={request}" if request else "")
    only = "" if panel == "page" else panel if panel in ("timeline", "event") else "panel"
    return Panel(page_text(trace, name or panel, place, only, pieces=pieces), height or HEIGHTS.get(panel, 400))
