"""The pictures of the page in the docs: there, small, described, and taken from events that the traces have."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import screenshots

from minivllm.show.page import render
from minivllm.trace import Trace

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "docs" / "viewer.md"]
IMAGE = re.compile(r"!\[(.*?)\]\(((?:docs/)?pictures/[\w-]+\.png)\)", re.DOTALL)


def test_every_picture_is_shown_with_a_text_and_small() -> None:
    shown: dict[Path, str] = {}
    for page in PAGES:
        for alt, link in IMAGE.findall(page.read_text(encoding="utf-8")):
            shown[(page.parent / link).resolve()] = alt
    files = {path.resolve() for path in screenshots.PICTURES.glob("*.png")}
    assert (
        files == set(shown) == {(screenshots.PICTURES / f"{scene.name}.png").resolve() for scene in screenshots.SCENES}
    )
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) <= screenshots.LARGEST and sum(sizes) <= 1_000_000
    for path, alt in shown.items():
        assert alt.count(". ") >= 1 and alt.endswith("."), path
        assert path.read_bytes()[16:24] == (1280).to_bytes(4, "big") + (800).to_bytes(4, "big"), path
    assert {scene.dark for scene in screenshots.SCENES} == {False, True}


@pytest.mark.parametrize("scene", screenshots.SCENES, ids=lambda scene: scene.name)
def test_every_scene_has_its_event(scene: screenshots.Scene) -> None:
    trace = Trace.load(ROOT / "traces" / f"{scene.trace}.jsonl.gz")
    event = trace[scene.seq(trace)]
    assert scene.wanted(event)
    trace.internal_ids(scene.request)


@pytest.mark.browser
def test_a_picture_is_taken(driver: Any, tmp_path: Path) -> None:
    scene = next(scene for scene in screenshots.SCENES if scene.dark)
    trace = Trace.load(ROOT / "traces" / f"{scene.trace}.jsonl.gz")
    picture = screenshots.take(driver, scene, render(trace, tmp_path / "page.html"), scene.seq(trace))
    assert picture.startswith(b"\x89PNG") and 10_000 < len(picture) <= screenshots.LARGEST
    assert driver.execute_script("return document.body.dataset.seq") == str(scene.seq(trace))


def test_the_program_says_what_it_takes() -> None:
    done = subprocess.run([sys.executable, "docs/screenshots.py", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "--out" in done.stdout
