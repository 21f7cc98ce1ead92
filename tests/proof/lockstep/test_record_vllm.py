"""Recording: the command's part of it, with our own engine in vLLM's place. CI has no vLLM."""

import ast
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from proof.lockstep.recordings import FOLDER

from minivllm.__main__ import main
from minivllm.errors import InputError
from minivllm.proof.lockstep import record_vllm, replay_scheduler
from minivllm.proof.lockstep.recording import load

ROOT = Path(__file__).parents[3]
HARD = FOLDER / "vllm-0.22.0-scheduler-hard.json.gz"


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_the_recorder_and_the_scripts_for_a_peers_python_alone_import_vllm() -> None:
    importing = {path.name for path in (ROOT / "minivllm").rglob("*.py") if "vllm" in imports_of(path)}
    assert importing == {"record_vllm.py", "peer_vllm_generate.py", "peer_vllm_scheduler.py"}


def test_importing_it_needs_no_vllm() -> None:
    top_level = ast.parse(Path(record_vllm.__file__).read_text()).body
    modules = [node.module for node in top_level if isinstance(node, ast.ImportFrom)]
    assert not any(module.startswith("vllm") for module in modules)


@pytest.mark.parametrize("package", record_vllm.PACKAGES)
def test_vllm_is_found_under_either_name(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != package:
            raise PackageNotFoundError(name)
        return "0.22.0+cpu"

    monkeypatch.setattr(record_vllm, "version", version)
    for name in ("VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_KVCACHE_SPACE", "VLLM_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "left as it was after the test")
    assert record_vllm.check_environment() == "0.22.0"


def test_without_vllm_it_says_so() -> None:
    with pytest.raises(InputError, match="make vllm-env"):
        record_vllm.check_environment()


def test_what_vllm_refuses_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = load(HARD).names()[:3]

    def record(workload: dict[str, Any], model: str) -> dict[str, Any]:
        assert model == "some/folder"
        assert "steps" not in workload
        if workload["name"] == names[1]:
            raise ValueError("No common block size for 1.")
        return workload | {"steps": replay_scheduler(workload)}

    monkeypatch.setattr(record_vllm, "check_environment", lambda: "0.22.0")
    monkeypatch.setattr(record_vllm, "record_scheduler", record)
    out = tmp_path / "out.json.gz"
    asked = ["lockstep", str(HARD), "--limit", "3", "--record", str(out), "--model", "some/folder"]
    assert main(asked) == 1
    printed = capsys.readouterr().out
    assert f"{names[1]} left out: ValueError: No common block size for 1." in printed
    assert f"2 workloads of vllm 0.22.0: {out}" in printed
    recorded = load(out)
    assert recorded.names() == [names[0], names[2]]
    assert recorded.workloads == [work for work in load(HARD).workloads if work["name"] in recorded.names()]
    assert main(["lockstep", str(out)]) == 0


def test_what_is_made_can_be_recorded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_vllm, "check_environment", lambda: "0.22.0")
    monkeypatch.setattr(record_vllm, "record_scheduler", lambda work, model: work | {"steps": replay_scheduler(work)})
    out = tmp_path / "out.json"
    made = ["--generate", "4", "--count", "1", "--only", "prefix"]
    assert main(["lockstep", *made, "--record", str(out), "--model", "some/folder"]) == 0
    assert load(out).names() == ["prefix-4000"]
