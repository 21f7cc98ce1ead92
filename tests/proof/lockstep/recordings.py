"""The committed recordings of vLLM 0.22.0, and how a test says that one of them is not equal."""

from functools import cache
from pathlib import Path
from typing import Any

from minivllm.proof.lockstep.command import find_difference
from minivllm.proof.lockstep.recording import Recording, load
from minivllm.proof.lockstep.report import account

FOLDER = Path(__file__).parents[3] / "traces/vllm-0.22.0"
KNOWN_BUG = "vllm-0.22.0-known-bug.json.gz"
KNOWN_BUG_TEXT = "vllm-0.22.0-known-bug-text.json.gz"


@cache  # they are only read
def recording(name: str) -> Recording:
    return load(FOLDER / name)


def files(level: str) -> list[str]:
    """The files of a level whose workloads our engine must equal."""
    return sorted(path.name for path in FOLDER.glob(f"vllm-0.22.0-{level}*.json*"))


def assert_equal(level: str, workload: dict[str, Any], name: str) -> None:
    difference = find_difference(level, workload)
    assert difference is None, account(level, workload, name, difference)
