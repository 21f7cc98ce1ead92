"""Picture: a finished drawing, its alternative text, and the values that it shows.

Interface: Picture with svg, alt, model, save, png; _repr_mimebundle_.
Must not know: what is drawn.
"""

import base64
import html
import io
import re
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

COLOURS = 32  # of the PNG
SHORTEST_ALT = 30  # characters; two sentences have more
NUMBERED_ID = re.compile(r' id="[a-z]+[A-Za-z]*_\d+"')
NOT_TURNED = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
FONT = "'DejaVu Sans', Verdana, sans-serif"
# (what matplotlib writes, what says the same in fewer bytes)
SHORTER = (
    (re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL), ""),
    (NUMBERED_ID, ""),
    (NOT_TURNED, ""),
    (re.compile(r"font-family: 'DejaVu Sans'; "), ""),
    (re.compile(r"text-anchor: start; "), ""),
    (re.compile(r"\s*\n([LMz])"), r"\1"),
    (re.compile(r"M ([\d.]+ [\d.]+)((?:L [\d.]+ [\d.]+)+?)L \1z"), r"M \1\2z"),
    (re.compile(r"([LMC]) ([\d.]+) ([\d.]+)"), r"\1\2 \3"),
    (re.compile(r"\s+(z\s*)?\""), r'\1"'),
    (re.compile(r"<g>\s*</g>"), ""),
    (re.compile(r"<g>\s*(<(?:path|text)[^<]*?(?:/>|</text>))\s*</g>"), r"\1"),
    (re.compile(r"\s*\n\s*"), "\n"),
)


class Picture:
    """What every function of this package returns.

    svg: the file, as text. alt: for readers who can't see it. model: what is drawn, as plain values; tests compare it
    with the trace's.
    """

    def __init__(self, svg: str, alt: str, model: Any, figure: Any = None) -> None:
        self.svg = svg
        self.alt = alt
        self.model = model
        self._figure = figure

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """For notebooks. JupyterLab shows no SVG of a file that it does not trust yet: then the PNG stands in."""
        data = {"image/svg+xml": self.svg, "text/plain": self.alt}
        if self._figure is None:
            return data, {}
        data["image/png"] = base64.b64encode(self.png()).decode()
        return data, {"image/png": {"width": int(self._figure.get_figwidth() * 96)}}

    def __repr__(self) -> str:
        return f"Picture({self.alt!r})"

    def png(self) -> bytes:
        """The picture in few colours, and so in few bytes."""
        from PIL import Image  # comes with matplotlib

        drawn, packed = io.BytesIO(), io.BytesIO()
        self._figure.savefig(drawn, format="png", dpi=128, metadata={"Software": None})
        few = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(packed, "PNG", optimize=True)
        return packed.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the picture: .svg, or .png in twice its size. Returns the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            self._figure.savefig(path, dpi=192, metadata={"Software": None})
        else:
            path.write_text(self.svg, encoding="utf-8")
        return path


def check_alt(alt: str) -> str:
    """`alt` without line breaks. Raises InputError for one that says nothing."""
    alt = " ".join(alt.split())
    if len(alt) < SHORTEST_ALT:
        raise InputError(
            f"alt={alt!r} is too short. Write two sentences: what is drawn, and the fact to take from it, with numbers."
        )
    return alt


def finish_svg(raw: str, alt: str, width: int, height: int) -> str:
    """matplotlib's SVG as one element that can stand in a page: described, named, and without what says nothing."""
    body = raw[raw.index("<svg") :]
    for pattern, replacement in SHORTER:
        body = pattern.sub(replacement, body)
    first, _, _ = alt.partition(". ")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" '
        f'width="{width}" height="{height}" viewBox="0 0 {width * 0.75:g} {height * 0.75:g}" role="img" '
        f'aria-label="{html.escape(alt)}" font-family="{FONT}" style="max-width:100%;height:auto;background:#fff">\n'
        f"<title>{html.escape(first.rstrip('.'))}</title>\n<desc>{html.escape(alt)}</desc>\n"
    )
    return head + body[body.index(">") + 1 :].lstrip()
