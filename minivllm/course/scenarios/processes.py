"""Scenarios across two processes, and those on the wall clock."""

from typing import Any

from minivllm.course.scenarios.cast import A, B
from minivllm.course.scenarios.scenario import CROWD, NO_CACHE, Ask, Scenario, one, together

TWO_PROCESSES: dict[str, Any] = {"multiprocess": True, "clock": "monotonic", "once": True}

SCENARIOS = [
    *(
        Scenario(
            f"batch-{n}",
            f"{n} times request A at once, in bfloat16, on the wall clock: how long a step takes.",
            (tuple(Ask(A, {"max_tokens": 6}) for _ in range(n)),),
            {**NO_CACHE, **CROWD, "dtype": "bfloat16"},
            clock="monotonic",
            once=True,
        )
        for n in (1, 2, 4, 8, 16, 32, 64)
    ),
    Scenario("two-process", "Request A across two processes that take turns.", one(A), multiprocess=True),
    Scenario(
        "two-process-chunk-16",
        "The same in chunks of 16 tokens: two steps have nothing to say.",
        one(A),
        {"max_num_batched_tokens": 16},
        multiprocess=True,
    ),
    Scenario(
        "two-process-late-abort",
        "A stop string across two processes: the abort comes too late for the step that has been planned.",
        one(A, stop=["Paris"]),
        multiprocess=True,
    ),
    Scenario("two-process-together", "Two requests across two processes.", together(A, B), multiprocess=True),
    Scenario(
        "together-wall",
        "The same, running freely: the second may come too late for the first step.",
        together(A, B),
        **TWO_PROCESSES,
    ),
    Scenario(
        "nap",
        "Request A across two processes, whose caller sleeps for six seconds before it asks for the first output.",
        one(A),
        nap_seconds=6.0,
        **TWO_PROCESSES,
    ),
    Scenario("one-wall", "Request A across two processes: messages and their bytes.", one(A), **TWO_PROCESSES),
    Scenario(
        "late-abort-wall",
        "A stop string across two processes: the core is told while it runs ahead.",
        one(A, stop=["Paris"]),
        **TWO_PROCESSES,
    ),
]
