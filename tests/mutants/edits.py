"""Reads edits.txt: the wrong edits, and which tests look for each.

Must not know: how an edit is planted, or what catches it.
"""

from dataclasses import dataclass
from pathlib import Path

LOCKSTEP = "tests/proof/lockstep"
SCRIPTED = f"{LOCKSTEP}/test_engine_recordings.py::test_batches_and_texts_are_equal_with_the_recorded_tokens"
CHECKS = {
    "core": (
        f"{LOCKSTEP}/test_scheduler_recordings.py",
        f"{LOCKSTEP}/test_known_bug.py",
        f"{LOCKSTEP}/test_traps_blocks.py",
        f"{LOCKSTEP}/test_traps_scheduler.py",
        "tests/core/test_kv_cache_manager.py",
        "tests/core/test_request_queue.py",
        "tests/core/test_skipped.py",
        "tests/core/test_waiting_is_free.py",
    ),
    "worker": (SCRIPTED, f"{LOCKSTEP}/test_traps_worker.py"),
    "sample": (
        f"{LOCKSTEP}/test_sampler_recordings.py",
        f"{LOCKSTEP}/test_traps_sampling.py",
        "tests/sample/test_sampler.py",
    ),
    "engine": (
        SCRIPTED,
        f"{LOCKSTEP}/test_traps_output.py",
        f"{LOCKSTEP}/test_traps_sampling.py",
        "tests/engine/test_detokenizer.py::test_special_tokens_next_to_each_other_have_no_space",
        "tests/engine/test_outputs.py::test_every_preemption_counts",
    ),
    "llm": (SCRIPTED, f"{LOCKSTEP}/test_traps_output.py"),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One wrong edit. `old` stands exactly once in `symbol`."""

    module: str  # below minivllm
    symbol: str  # a function, or a class and its method
    what: str
    old: str
    new: str
    proof: str  # why nothing can notice it; empty for almost all

    @property
    def checks(self) -> tuple[str, ...]:
        """The tests that look for it: quick ones, of its part of the engine."""
        return CHECKS[self.module.partition(".")[0]]


def read_edits(path: Path) -> list[Edit]:
    """The edits of a file, in its order."""
    paragraphs = path.read_text().split("\n\n")
    return [_parse(paragraph.strip("\n").splitlines()) for paragraph in paragraphs if not paragraph.startswith("#")]


def _parse(lines: list[str]) -> Edit:
    where, _, what = lines[0].partition(": ")
    module, symbol = where.split()

    def marked(mark: str, joint: str) -> str:
        return joint.join(line[2:] for line in lines[1:] if line.startswith(mark))

    return Edit(module, symbol, what, marked("-", "\n"), marked("+", "\n"), marked("=", " "))


EDITS = read_edits(Path(__file__).parent / "edits.txt")
