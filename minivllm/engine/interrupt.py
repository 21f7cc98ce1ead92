"""Work that Ctrl-C must not cut in half."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the work is done: half a step would leave plan, cache and batch at odds, half a message
    would spoil the next one, half an end would leave a process.

    vLLM: none, vLLM is interrupted wherever it is
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield  # KeyboardInterrupt comes to the main thread only; a handler that was set in C can't be put back
        return
    interrupted = False

    def note(*_: object) -> None:
        nonlocal interrupted
        interrupted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted:
        signal.raise_signal(signal.SIGINT)
