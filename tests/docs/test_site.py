"""The site builds without a warning, offline, from the pages as they are."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from docs.pages import ROOT

pytestmark = pytest.mark.skipif(
    find_spec("myst_nb") is None and "CI" not in os.environ, reason="needs the extra docs: pip install -e '.[docs]'"
)


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`make docs`, with no way out to a network."""
    offline = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", str(source / "docs")]
    return subprocess.run(
        [*command, str(source), str(out)], env=os.environ | offline, capture_output=True, text=True, timeout=300
    )


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    result = build(ROOT, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    faq = (tmp_path / "docs/faq.html").read_text(encoding="utf-8")
    assert 'id="why-does-my-request-wait"' in faq
    assert 'class="mermaid"' in (tmp_path / "README.html").read_text(encoding="utf-8")
    assert 'href="faq.html#two-processes"' in (tmp_path / "docs/instructor.html").read_text(encoding="utf-8")


def test_planted_errors_break_the_build(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs/conf.py", source / "docs")
    (source / "docs/other.md").write_text("# Other\n")
    planted = "[gone](gone.md) [no heading](other.md#no-heading) [nor here](#nor-here)\n\n```{nonsense}\n```\n"
    (source / "docs/index.md").write_text(f"# Index\n\n{planted}\n```{{toctree}}\nother\n```\n")
    (source / "docs/alone.md").write_text("# In no list\n")
    result = build(source, tmp_path / "out")
    assert result.returncode == 1
    for complaint in ("gone.md", "no-heading", "nor-here", "nonsense", "alone.md"):
        assert complaint in result.stderr
