"""What the header says of parts that were put in the place of the engine's own."""

import hashlib
from pathlib import Path

import pytest
from traced_runs import generate, llm_of

from minivllm.proof.lockstep import scheduler as module
from minivllm.proof.rerecord import first_difference
from minivllm.show.diff import diff
from minivllm.trace import Trace

OWN = """
from minivllm.core.scheduler import Scheduler as Base

class Scheduler(Base):
    pass
"""


def recorded(path: Path, scheduler: str, multiprocess: bool = False) -> Trace:
    settings = {"trace": str(path), "trace_clock": "logical", "multiprocess": multiprocess}
    with llm_of("plain", parts={"scheduler": scheduler}, **settings) as llm:
        generate(llm, "plain")
    return Trace.load(path)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = tmp_path / "my_scheduler.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize("multiprocess", [False, True])
def test_a_file_is_named_without_its_folder_and_with_its_hash(tmp_path: Path, part: Path, multiprocess: bool) -> None:
    header = recorded(tmp_path / "trace.jsonl", f"{part}:Scheduler", multiprocess).header
    assert header.config["parts"] == {"scheduler": "my_scheduler.py:Scheduler"}
    assert header.parts_sha256 == {"scheduler": hashlib.sha256(OWN.encode()).hexdigest()}


def test_a_module_is_known_by_its_file(tmp_path: Path) -> None:
    header = recorded(tmp_path / "trace.jsonl", "minivllm.proof.lockstep.scheduler:PoisonedScheduler").header
    assert header.config["parts"] == {"scheduler": "minivllm.proof.lockstep.scheduler:PoisonedScheduler"}
    expected = hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
    assert header.parts_sha256 == {"scheduler": expected}


def test_another_version_of_a_part_is_a_setting_that_differs(tmp_path: Path, part: Path) -> None:
    first = recorded(tmp_path / "first.jsonl", f"{part}:Scheduler")
    part.write_text(f"{OWN}    # changed\n", encoding="utf-8")
    second = recorded(tmp_path / "second.jsonl", f"{part}:Scheduler")
    assert [row.what for row in diff(first, second).settings] == ["parts_sha256.scheduler"]
    assert first_difference(first, second) is None  # the events say whether it matters


def test_the_engines_own_parts_are_not_mentioned(tmp_path: Path) -> None:
    with llm_of("plain", multiprocess=False, trace=str(tmp_path / "trace.jsonl")) as llm:
        generate(llm, "plain")
    header = Trace.load(tmp_path / "trace.jsonl").header
    assert not header.parts_sha256
    assert not header.config["parts"]
    assert not header.watch
