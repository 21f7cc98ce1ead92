"""A step costs the same over a large pool as over a small one: it looks at as many blocks, however many there are."""

import sys

from minivllm.proof.bench.own_scheduler import SETTINGS, make_core


def lines_run(num_blocks: int, running: int, steps: int) -> list[int]:
    """Lines of Python that run in each of `steps` steps, counted by the interpreter."""
    core = make_core(SETTINGS | {"num_blocks": num_blocks}, running)
    count, counts = 0, []

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    for _ in range(steps):
        count = 0
        sys.settrace(trace)
        try:
            core.step()
        finally:
            sys.settrace(None)
        counts.append(count)
    return counts


def test_a_step_over_100k_blocks_runs_no_more_lines_than_over_1k() -> None:
    small, large = (lines_run(num_blocks, running=16, steps=20) for num_blocks in (1_000, 100_000))
    assert small == large


def test_a_step_grows_with_the_running_requests_and_not_with_their_length() -> None:
    counts = lines_run(10_000, running=8, steps=100)[1:]
    assert max(counts[50:]) <= max(counts[:50]), "a step late in a request's life costs what an early one costs"
    twice = lines_run(10_000, running=16, steps=20)[1:]
    assert min(twice) < 2.1 * min(counts)
