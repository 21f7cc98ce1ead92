"""A real headless Chromium, and the pages of tiny traces; screenshots are kept for a person to look at.

Screenshots go to $MINIVLLM_SCREENSHOTS, by default build/screenshots in the repository.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from tiny_models import tiny_model
from viewer_pages import Page

from minivllm.show.page import render
from minivllm.trace import Trace


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    with chromium() as chrome:
        yield chrome


@pytest.fixture(scope="session")
def page_of(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Page]:
    """Name and trace -> the page, opened. The same trace is rendered once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def path_of(name: str, trace: Trace) -> Path:
        return render(trace, folder / f"{name}.html", tokenizer=tiny_model())

    def open_page(name: str, trace: Trace, address: str = "", dark: bool = False) -> Page:
        page = Page(driver, path_of(name, trace))
        page.complaints(), page.requests()
        page.open(address, dark)
        return page

    return open_page
