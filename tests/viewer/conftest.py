"""A real headless Chromium, and the pages of tiny traces; screenshots are kept for a person to look at.

Screenshots go to $MINIVLLM_SCREENSHOTS, by default build/screenshots in the repository.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_model
from viewer_pages import Page

from minivllm.trace import Trace
from minivllm.viewer import render

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1280, 800)


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Chromium. In CI it must be there; elsewhere tests without one are skipped."""
    chromium = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        missing = "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        assert not os.environ.get("CI"), missing
        pytest.skip(missing)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield driver
    driver.quit()


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
