"""The layers of pyproject.toml hold, name every module, and would notice a breach."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
COMPOSITION_ROOTS = {"core_proc.py", "llm_engine.py"}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of `folder`/pyproject.toml against the packages in `folder`."""
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.'); {code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_contracts_are_kept() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_module_has_its_layer() -> None:
    layers = next(contract["layers"] for contract in CONTRACTS if contract["id"] == "layers")
    named = {tuple(name.strip(" ()").split(".")) for layer in layers for name in layer.replace("|", ":").split(":")}
    missing = []
    for path in (ROOT / "minivllm").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if path.name == "__init__.py":
            continue
        if not any(parts[:length] in named for length in range(2, len(parts) + 1)):
            missing.append(".".join(parts))
    assert not missing, f"give these a place in the layers of pyproject.toml: {missing}"


def test_in_the_engine_two_files_import_the_trace() -> None:
    sources = {path.name: path.read_text() for path in (ROOT / "minivllm/engine").glob("*.py")}
    assert {name for name, text in sources.items() if "minivllm.trace" in text} == COMPOSITION_ROOTS


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("minivllm/config.py", "import minivllm.core.scheduler", "only from the layers below"),
        ("minivllm/core/scheduler.py", "import torch", "core/ decides"),
        ("minivllm/models/wrong.py", "from minivllm.core import block_pool", "SchedulerOutput alone"),
        ("minivllm/engine/wrong.py", "import minivllm.worker.wrong", "only the core and its process"),
        ("minivllm/trace/wrong.py", "def late(): import torch", "Reading a trace"),
        ("minivllm/worker/wrong.py", "import minivllm.trace", "What decides and computes"),
        ("minivllm/llm.py", "def late(): import minivllm.show.explain", "only from the layers below"),
        ("minivllm/show/wrong.py", "import minivllm.course.scenarios", "only from the layers below"),
        ("minivllm/proof/refs/wrong.py", "import minivllm.core.scheduler", "checked as text"),
        ("minivllm_kernels/wrong.py", "import minivllm.errors", "kernels import nothing"),
    ],
)
def test_a_breach_is_noticed(tmp_path: Path, module: str, line: str, broken: str) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "minivllm", tmp_path / "minivllm", ignore=ignore)
    shutil.copytree(ROOT / "kernels", tmp_path / "minivllm_kernels", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "minivllm/worker/wrong.py").touch()
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    unwrapped = " ".join(result.stdout.split())
    assert result.returncode == 1, result.stdout + result.stderr
    assert broken in unwrapped and "BROKEN" in unwrapped
