"""Pages in a browser, for the tests in tests/show/page: what is drawn, and what the browser complains of."""

import json
import os
from pathlib import Path
from typing import Any

from traced_runs import record

from minivllm.trace import Trace

ROOT = Path(__file__).parents[1]
SCREENSHOTS = Path(os.environ.get("MINIVLLM_SCREENSHOTS", ROOT / "build" / "screenshots"))


def traced(name: str, **settings: Any) -> Trace:
    """The trace of a scenario, in process unless asked otherwise."""
    return record(name, **{"multiprocess": False, **settings}).trace


class Page:
    """One page in the browser: what is on it, and what it complained about."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        self.path = path

    def open(self, address: str = "", dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.driver.get(f"{self.path.as_uri()}{address}")
        assert self.run("return document.body.dataset.ready") == "yes", self.complaints()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        )

    def go(self, seq: int, tab: str | None = None) -> None:
        self.run("minivllm.show(arguments[0], arguments[1])", seq, tab)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()
            self.settle()

    @property
    def seq(self) -> int:
        return int(self.run("return document.body.dataset.seq"))

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def attributes(self, selector: str) -> list[dict[str, str]]:
        """The data attributes of all elements."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => ({...e.dataset}))", selector)

    def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.settle()
        self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def complaints(self) -> list[str]:
        """Errors and warnings in the console since the last time."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that the browser asked for since the last time, but for the page itself."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"].partition("#")[0])
        return [url for url in found if url not in ("about:blank", self.path.as_uri()) and not url.startswith("data:")]
