"""A headless Chromium that is driven by tests marked `browser`; Debian: apt-get install chromium chromium-driver.

Nothing but this machine's loopback addresses can be reached from it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1280, 800)  # of a page, in px
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)


def missing() -> str | None:
    """What is not installed, and how to get it; None if all is there."""
    if any(map(shutil.which, BROWSERS)) and shutil.which("chromedriver"):
        return None
    return "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"


@contextmanager
def chromium() -> Iterator[Any]:
    """A selenium driver that keeps what the console says and what the network is asked for.

    Where there is no Chromium the test is skipped; in CI, that is a failure.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    problem = missing()
    if problem:
        pytest.fail(problem) if os.environ.get("CI") else pytest.skip(problem)
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"))) as chrome:
        size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield chrome
