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
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,800",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A selenium driver. Where there is no Chromium the test is skipped; in CI, that is a failure."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        missing = "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=Service(driver)) as chrome:
        yield chrome
