"""Reads edits.txt: the wrong edits, and which tests look for each.

Must not know: how an edit is planted, or what catches it.
"""

from dataclasses import dataclass
from pathlib import Path

from minivllm.course.places import module_of

LOCKSTEP = "tests/proof/lockstep"
SCRIPTED = f"{LOCKSTEP}/test_engine_recordings.py::test_batches_and_texts_are_equal_with_the_recorded_tokens"
PAGE = "tests/show/page/test_page.py"
ENDS = (
    "tests/engine/test_interrupts.py::test_ctrl_c_in_a_step",
    "tests/engine/test_bad_days.py::test_a_failing_step_ends_the_engine",
    "tests/engine/test_bad_days.py::test_the_environment_chooses_the_mode",
    "tests/engine/test_bad_days.py::test_core_killed_in_a_utility_call",
)
CHECKS = {
    "minivllm/core/": (
        f"{LOCKSTEP}/test_scheduler_recordings.py",
        f"{LOCKSTEP}/test_known_bug.py",
        f"{LOCKSTEP}/test_traps_blocks.py",
        f"{LOCKSTEP}/test_traps_scheduler.py",
        "tests/core/test_kv_cache_manager.py",
        "tests/core/test_request_queue.py",
        "tests/core/test_skipped.py",
        "tests/core/test_waiting_is_free.py",
    ),
    "minivllm/worker/": (SCRIPTED, f"{LOCKSTEP}/test_traps_worker.py"),
    "minivllm/sample/": (
        f"{LOCKSTEP}/test_sampler_recordings.py",
        f"{LOCKSTEP}/test_traps_sampling.py",
        "tests/sample/test_sampler.py",
    ),
    "minivllm/engine/": (
        SCRIPTED,
        f"{LOCKSTEP}/test_traps_output.py",
        f"{LOCKSTEP}/test_traps_sampling.py",
        "tests/engine/test_detokenizer.py",
        "tests/engine/test_output_processor.py",
        "tests/engine/test_outputs.py::test_every_preemption_counts",
    ),
    "minivllm/engine/core_client.py": (
        *ENDS,
        "tests/engine/test_one_end.py::TestLastWords",
        "tests/engine/test_one_end.py::test_shutdown_wakes_everybody",
        "tests/engine/test_one_end.py::test_a_last_word_of_somebody_else",
        "tests/engine/test_one_end.py::test_a_core_that_sleeps",
        "tests/engine/test_threads.py::test_forks",
    ),
    "minivllm/engine/interrupt.py": ENDS,
    "minivllm/engine/core_proc.py": ("tests/engine/test_core_proc.py",),
    "minivllm/engine/core_manager.py": ("tests/engine/test_core_manager.py",),
    "minivllm/trace/merge.py": ("tests/trace/test_merge.py", "tests/trace/test_logical.py"),
    "minivllm/trace/replay.py": ("tests/trace/test_store.py",),
    "minivllm/trace/store.py": ("tests/trace/test_store.py",),
    "minivllm/show/pictures/": ("tests/show/pictures/test_shapes.py", "tests/show/pictures/test_pictures.py"),
    "minivllm/show/page/page-files/": (
        *(
            f"{PAGE}::{name}"
            for name in ("test_blocks", "test_schedule", "test_the_state_is_the_trace_s_at_every_event")
        ),
        "tests/show/page/test_handling.py::test_words_and_times",
    ),
    "minivllm/course/notebook/build.py": ("tests/course/notebooks/test_tidy_build.py",),
    "minivllm/llm.py": (SCRIPTED, f"{LOCKSTEP}/test_traps_output.py"),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One wrong edit. `old` stands exactly once in `symbol`."""

    path: str  # in the repository: Python, or JavaScript of a page
    symbol: str  # a function, or a class and its method
    what: str
    old: str
    new: str
    proof: str  # why nothing can notice it; empty for almost all

    @property
    def module(self) -> str:
        """The module that the file is imported as."""
        return module_of(self.path)

    @property
    def checks(self) -> tuple[str, ...]:
        """The tests that look for it: quick ones. Those of the longest path in CHECKS that it is of."""
        place = max((place for place in CHECKS if self.path.startswith(place)), key=len)
        return CHECKS[place]


def read_edits(path: Path) -> list[Edit]:
    """The edits of a file, in its order."""
    paragraphs = path.read_text().split("\n\n")
    return [_parse(paragraph.strip("\n").splitlines()) for paragraph in paragraphs if not paragraph.startswith("#")]


def _parse(lines: list[str]) -> Edit:
    where, _, what = lines[0].partition(": ")
    place, symbol = where.split()
    path = place if "/" in place else f"minivllm/{place.replace('.', '/')}.py"

    def marked(mark: str, joint: str) -> str:
        return joint.join(line[2:] for line in lines[1:] if line.startswith(mark))

    return Edit(path, symbol, what, marked("-", "\n"), marked("+", "\n"), marked("=", " "))


EDITS = read_edits(Path(__file__).parent / "edits.txt")
