"""The pictures of the page in README.md and the docs, taken from real pages: `make screenshots` takes them anew.

Owns: the scenes, and what is done to a picture so that it stays small.
Interface: SCENES; as a program it writes docs/pictures/*.png, with --out FOLDER elsewhere.
Must not know: what a page shows.

It needs Chromium with its driver, and the default model's tokenizer for the texts of tokens (`make trace` gets it).
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]  # browser, the driver that tests use

from browser import SIZE, chromium, missing  # noqa: E402

from minivllm.show.page import render  # noqa: E402
from minivllm.trace import Event, Trace  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COLOURS = 160  # of a picture's palette: flat colours and the edges of letters
LARGEST = 150_000  # bytes


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: an event of a recorded trace, and a tab of its page."""

    name: str
    trace: str
    tab: str
    wanted: Callable[[Any], bool]  # the first such event
    request: str = "0"  # the followed one, as the caller knows it
    dark: bool = False
    clock: str = "order"

    def seq(self, trace: Trace) -> int:
        return next(event.seq for event in trace if self.wanted(event))


def _forced(event: Event) -> bool:
    return event.kind == "schedule" and bool(event.preemptions)


SCENES = (
    Scene("page-preemption", "pool-8", "blocks", _forced, request="2"),
    Scene("page-sharing-dark", "together", "blocks", lambda e: e.kind == "schedule", request="2", dark=True),
    Scene("page-processes", "one-wall", "text", lambda e: e.kind == "core_client.receive" and e.msg == 6),
    Scene("page-schedule", "pool-8", "schedule", _forced, request="2"),
    Scene("page-batch", "together", "batch", lambda e: e.kind == "prepare_inputs", request="1"),
    Scene("page-attention", "kernels-together", "attention", lambda e: e.kind == "kernel.program" and len(e.tiles) > 1),
    Scene("page-text", "hesitation", "text", lambda e: e.kind == "detokenize" and e.num_output_tokens[1] == 7),
    Scene("page-why-dark", "pool-8", "why", lambda e: e.kind == "allocate_slots" and e.refused, request="2", dark=True),
)


def take(chrome: Any, scene: Scene, page: Path, seq: int) -> bytes:
    """The picture of a scene, as a PNG with a palette."""
    from PIL import Image

    scheme = {"name": "prefers-color-scheme", "value": "dark" if scene.dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    chrome.get("about:blank")
    chrome.get(f"{page.as_uri()}#e={seq}&t={scene.tab}&r={scene.request}&c={scene.clock}&f=0")
    chrome.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    picture = Image.open(io.BytesIO(chrome.get_screenshot_as_png())).convert("RGB")
    assert picture.size == SIZE
    small = picture.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, "PNG", optimize=True)
    return file.getvalue()


def main(arguments: list[str]) -> int:
    """Take all pictures; returns 1 where one is too large, or there is no browser."""
    parser = argparse.ArgumentParser(description="Take the pictures of the page anew.")
    parser.add_argument("--out", type=Path, default=PICTURES, metavar="FOLDER")
    out = parser.parse_args(arguments).out
    problem = missing()
    if problem:
        print(f"make screenshots {problem}", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    too_large = []
    with tempfile.TemporaryDirectory() as folder, chromium() as chrome:
        for scene in SCENES:
            trace = Trace.load(ROOT / "traces" / f"{scene.trace}.jsonl.gz")
            page = render(trace, Path(folder) / f"{scene.trace}.html")
            picture = take(chrome, scene, page, scene.seq(trace))
            (out / f"{scene.name}.png").write_bytes(picture)
            print(f"{out / scene.name}.png  {len(picture) / 1000:.0f} kB")
            if len(picture) > LARGEST:
                too_large.append(scene.name)
    if too_large:
        print(f"Larger than {LARGEST:,} bytes: {', '.join(too_large)}.", file=sys.stderr)
    return 1 if too_large else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
