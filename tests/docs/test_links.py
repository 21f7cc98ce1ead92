"""Every relative link in README.md and docs/ leads somewhere."""

from pathlib import Path

import pytest
from docs.pages import LINK, anchors, broken_links, pages

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_hold(path: Path) -> None:
    assert broken_links(path) == []


def test_there_are_links() -> None:
    links = [link for path in PAGES for _, link in LINK.findall(path.read_text(encoding="utf-8"))]
    assert sum(not link.startswith("http") for link in links) >= 40
    assert sum("#" in link and not link.startswith("http") for link in links) >= 5


def test_wrong_links_are_found(tmp_path: Path) -> None:
    other = "# A title\n\n## What `this` is\n\n## What this is\n\n```sh\n# no heading\n```\n"
    (tmp_path / "other.md").write_text(other)
    page = tmp_path / "page.md"
    page.write_text(
        "[right](other.md) [right](other.md#what-this-is-1) [code] `[no](link.md)` [web](https://example.org/x)\n"
        "[gone](gone.md) [no such heading](other.md#no-heading) [here](#nowhere)\n"
    )
    assert broken_links(page) == [
        "gone.md: no such file",
        "other.md#no-heading: no such heading",
        "#nowhere: no such heading",
    ]


def test_anchors_are_those_of_github() -> None:
    page = "# What's in `x_y`, and why?\n\n## T = 0 – always\n\n## [A link](page.md) here\n"
    assert anchors(page) == {"whats-in-x_y-and-why", "t--0--always", "a-link-here"}
