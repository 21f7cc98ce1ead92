"""The first cell installs the project, traces included, where it is missing: from a git address, in an empty folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from docs.pages import ROOT

from minivllm.course.notebook import build

WHAT_PIP_NEEDS = ("pyproject.toml", "README.md", "LICENSE", "minivllm", "kernels", "traces", "notebooks")
ASKED = '\ntrace = nb.trace("one")\nimport minivllm\nprint(minivllm.__file__, len(trace.request_ids))\n'


@pytest.fixture
def origin(tmp_path: Path) -> str:
    """The address of a git repository with the project as it stands here."""
    folder = tmp_path / "origin"
    folder.mkdir()
    for name in WHAT_PIP_NEEDS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        extra = {"ignore": shutil.ignore_patterns("__pycache__", "out")} if (ROOT / name).is_dir() else {}
        copy(ROOT / name, folder / name, **extra)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True, timeout=120)
    return f"git+file://localhost{folder}"  # without a host, older versions of pip take it for no address


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has all that ours has, but not the project: so nothing must be downloaded."""
    venv, borrowed = tmp_path / "venv", tmp_path / "borrowed"
    borrowed.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "minivllm" not in entry.name:
            (borrowed / entry.name).symlink_to(entry)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=120)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return venv / "bin/python"


def run_setup(python: Path, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MINIVLLM_SOURCE")}
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    command = [str(python), "-c", build.setup_cell("00") + ASKED]
    return subprocess.run(
        command, cwd=folder, env=kept | offline | env, capture_output=True, text=True, timeout=300, check=False
    )


def test_setup_cell_installs_from_a_git_address(origin: str, bare_python: Path, tmp_path: Path) -> None:
    result = run_setup(bare_python, tmp_path / "empty", MINIVLLM_SOURCE=origin)
    assert result.returncode == 0, result.stderr
    file, requests = result.stdout.split()[-2:]
    assert Path(file).is_relative_to(tmp_path / "venv")
    assert requests == "1"
    again = run_setup(bare_python, tmp_path / "again")
    assert again.returncode == 0, again.stderr


def test_setup_cell_says_what_it_lacks(bare_python: Path, tmp_path: Path) -> None:
    result = run_setup(bare_python, tmp_path / "empty")
    assert result.returncode == 1
    assert result.stderr.strip() == "Set MINIVLLM_SOURCE to the git address of minivllm."
