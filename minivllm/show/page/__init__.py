"""The viewer: one HTML page in which a request's life lies open.

    from minivllm.show import page as viewer
    viewer.render(trace, "run.html")
    viewer.show(trace, "blocks", event=40)

Owns: the page (page-files/*.html, *.css, *.js) and what goes into it.
Interface: render, page_text; show, for notebooks.
Must not know: the engine. A trace is all that it needs; no torch, no network.
"""

from minivllm.show.page.notebook import show
from minivllm.show.page.render import page_text, render

__all__ = ["page_text", "render", "show"]
