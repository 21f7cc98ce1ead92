"""pyproject.toml, environment.yml and the Makefile agree, and what they promise is what one gets."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import minivllm

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def python_outside(folder: Path, code: str, **env: str) -> str:
    """What `code` prints when it runs in `folder`, so that nothing is found because it lies in the current folder."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# environment.yml


def conda_lists() -> tuple[list[str], list[str]]:
    """The conda and the pip requirements of environment.yml."""
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    return [entry for entry in conda if isinstance(entry, str)], pip


def test_environment_names_the_main_packages_as_pyproject_does() -> None:
    _, pip = conda_lists()
    named = {Requirement(line).name: line for line in pip if not line.startswith("-")}
    assert list(named) == ["torch", "triton", "transformers", "jupyter", "matplotlib", "pytest"]
    lists = [EXTRAS["tested"], EXTRAS["engine"], EXTRAS["notebooks"], EXTRAS["test"]]
    first = {Requirement(line).name: line for requirements in reversed(lists) for line in requirements}
    assert named == {name: first[name] for name in named}


def test_environment_installs_everything() -> None:
    conda, pip = conda_lists()
    assert pip[-1] == "-e .[all,tested]"
    assert EXTRAS["all"] == ["minivllm[engine,notebooks,test,docs]"]
    python = next(entry for entry in conda if entry.startswith("python="))
    assert python.removeprefix("python=") in SpecifierSet(PROJECT["project"]["requires-python"])


def test_tested_versions_lie_within_what_is_supported() -> None:
    supported = {Requirement(line).name: Requirement(line).specifier for line in EXTRAS["engine"]}
    for line in EXTRAS["tested"] + EXTRAS["tested-triton"]:
        pin = Requirement(line)
        (version,) = pin.specifier
        assert version.operator == "=="
        assert version.version in supported[pin.name]


# what is installed


def test_every_package_is_listed() -> None:
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "minivllm").rglob("*.py")}
    packages = {".".join(folder.parts) for folder in folders}
    elsewhere = {"minivllm_kernels", "minivllm_kernels.flash_attention", "minivllm.recorded", "minivllm.lessons"}
    elsewhere |= {f"minivllm.lessons.lab{path.name[:2]}" for path in (ROOT / "notebooks/labs").glob("[0-9]*_*")}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages | elsewhere


def test_replay_needs_no_torch() -> None:
    names = {Requirement(line).name for line in PROJECT["project"]["dependencies"]}
    assert names == {"msgspec", "numpy", "tqdm"}


def test_installed_project_is_this_one(tmp_path: Path) -> None:
    assert importlib.metadata.version("minivllm") == minivllm.__version__
    found = python_outside(tmp_path, "import minivllm; print(minivllm.__file__)")
    assert Path(found) == ROOT / "minivllm/__init__.py"


def test_kernels_folder_is_minivllm_kernels(tmp_path: Path) -> None:
    found = python_outside(tmp_path, "import minivllm_kernels; print(next(iter(minivllm_kernels.__path__)))")
    assert Path(found) == ROOT / "kernels"


def test_the_name_kernels_is_left_to_others(tmp_path: Path) -> None:
    code = "import importlib.util as u; s = u.find_spec('kernels'); print(*(s.submodule_search_locations if s else []))"
    assert str(ROOT) not in python_outside(tmp_path, code)


def test_console_script_starts_the_command_line() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="minivllm")
    assert script.value == "minivllm.__main__:main"
    assert callable(script.load())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel installs, with a constant more in a kernel's module, so that it is known for what it is."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("minivllm", "kernels", "traces", "notebooks"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    (source / "kernels/probe.py").write_text("ANSWER = 42\n")
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--no-deps"]
    result = subprocess.run([*pip_wheel, "-w", tmp_path, "."], cwd=source, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("minivllm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    return tmp_path / "installed"


def test_wheel_holds_the_packages_and_nothing_else(installed: Path, tmp_path: Path) -> None:
    top = {path.name for path in installed.iterdir()}
    assert top == {"minivllm", "minivllm_kernels", f"minivllm-{minivllm.__version__}.dist-info"}
    code = "import minivllm, minivllm_kernels.probe as p; print(minivllm.__file__, p.ANSWER)"
    found, answer = python_outside(tmp_path, code, PYTHONPATH=str(installed)).split()
    assert Path(found) == installed / "minivllm/__init__.py"
    assert answer == "42"
    assert (installed / "minivllm/recorded/one.jsonl.gz").is_file()


def command(installed: Path, folder: Path, *arguments: str, status: int = 0) -> str:
    """What `minivllm …` of an installed wheel prints, in a folder outside of any checkout."""
    run = [sys.executable, "-P", "-m", "minivllm", *arguments]
    env = os.environ | {"PYTHONPATH": str(installed)}
    result = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout


def test_an_installed_wheel_has_the_labs(installed: Path, tmp_path: Path) -> None:
    listed = command(installed, tmp_path, "lab", "list")
    numbers = [path.name[:2] for path in sorted((ROOT / "notebooks/labs").glob("[0-9]*_*"))]
    assert [line[:2] for line in listed.splitlines() if line[:2].isdecimal()] == numbers
    command(installed, tmp_path, "lab", "start", "04")
    assert "4.1" in command(installed, tmp_path, "lab", "check", "04", status=1)
    links = re.findall(r"\]\(<?([^)#>]+)", (tmp_path / "my-labs/04/README.md").read_text())
    assert links, "the notebook is in the wheel"
    assert all(link.startswith("http") or Path(link).is_file() for link in links), links
    code = (
        "from minivllm.course.grader.catalog import get_lab; from minivllm.course.grader.wrong import solution; "
        "open('my-labs/04/starter.py', 'w').write(solution(get_lab('04')))"
    )
    python_outside(tmp_path, code, PYTHONPATH=str(installed))
    assert " 60/100" in command(installed, tmp_path, "lab", "check", "04"), "graded by the recordings in the wheel"


def test_an_installed_wheel_tells_its_recorded_traces(installed: Path, tmp_path: Path) -> None:
    trace = str(installed / "minivllm/recorded/one.jsonl.gz")
    told = command(installed, tmp_path, "why", trace, "0")
    assert told == command(ROOT, tmp_path, "why", str(ROOT / "traces/one.jsonl.gz"), "0")
    command(installed, tmp_path, "view", trace, "--out", "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000
    code = "from minivllm.course.notebook.data import read_data; print(len(read_data()['pieces']) > 100)"
    assert python_outside(tmp_path, code, PYTHONPATH=str(installed)) == "True"


# make

FAKE_PYTHON = """#!/bin/sh
# Stands for a Python: notes what it is asked to do, and makes a virtual environment that holds itself.
echo "$*" >> "$LOG"
case "$*" in
  *version_info*) exit {too_old} ;;
  *"import ensurepip"*) exit {no_venv} ;;
  "-m venv --clear .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what `make setup` reads."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


def make(clone: Path, *arguments: str, too_old: int = 0, no_venv: int = 0) -> subprocess.CompletedProcess[str]:
    python = clone / "python"
    python.write_text(FAKE_PYTHON.format(too_old=too_old, no_venv=no_venv))
    python.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "LOG": str(clone / "log")}
    command = ["make", f"PYTHON={python}", *arguments]
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=60)


def pip_calls(clone: Path) -> list[str]:
    log = clone / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if "pip install" in line]


def test_make_lists_its_targets(clone: Path) -> None:
    result = make(clone)
    assert result.returncode == 0
    for target in ("setup", "trace", "test", "lint", "clean"):
        assert f"  make {target} " in result.stdout
    assert pip_calls(clone) == []


def test_make_builds_the_environment_once(clone: Path) -> None:
    assert make(clone, "setup").returncode == 0
    torch, project = pip_calls(clone)
    assert torch.endswith(EXTRAS["tested"][0])
    assert "-e .[engine,test,docs,tested" in project
    assert make(clone, "setup").returncode == 0
    assert len(pip_calls(clone)) == 2, "the second make installed again"
    later = (clone / "pyproject.toml").stat().st_mtime + 3600
    os.utime(clone / "pyproject.toml", (later, later))
    assert make(clone, "setup").returncode == 0
    assert len(pip_calls(clone)) == 4, "a newer pyproject.toml must be installed"


def test_make_takes_torch_from_another_index(clone: Path) -> None:
    assert make(clone, "setup", "TORCH_INDEX=https://download.pytorch.org/whl/cpu").returncode == 0
    assert pip_calls(clone)[0].endswith("--extra-index-url https://download.pytorch.org/whl/cpu")


def test_make_refuses_an_old_python(clone: Path) -> None:
    result = make(clone, "setup", too_old=1)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stderr
    assert "make PYTHON=/path/to/python3.12 setup" in result.stderr
    assert pip_calls(clone) == []


def test_make_says_how_to_get_a_missing_venv_module(clone: Path) -> None:
    result = make(clone, "setup", no_venv=1)
    assert result.returncode != 0
    assert "venv or ensurepip module is missing" in result.stderr
    assert "apt-get install python3-venv" in result.stderr
    assert pip_calls(clone) == []


# the lock that CI installs from


def locked() -> dict[str, tuple[str, int]]:
    """Package -> its version and how many hashes it has."""
    found: dict[str, tuple[str, int]] = {}
    for line in (ROOT / ".ci/requirements.lock").read_text().splitlines():
        if pin := re.match(r"([\w.-]+)==(\S+)", line):
            name = canonicalize_name(pin[1])
            found[name] = (pin[2], 0)
        elif re.match(r"\s+--hash=sha256:[0-9a-f]{64}", line):
            found[name] = (found[name][0], found[name][1] + 1)
        else:
            raise AssertionError(f"neither a pin nor a hash: {line}")
    return found


def test_the_lock_has_a_hash_of_every_package() -> None:
    assert [name for name, (_, hashes) in locked().items() if hashes == 0] == []


def test_the_lock_is_what_the_project_asks_for() -> None:
    versions = locked()
    asked = [line for extra in ("engine", "test", "docs", "tested", "tested-triton") for line in EXTRAS[extra]]
    for line in [*PROJECT["project"]["dependencies"], *asked]:
        wanted = Requirement(line)
        if wanted.name != "torch":
            assert versions[canonicalize_name(wanted.name)][0] in wanted.specifier, line


def test_ci_installs_from_the_lock() -> None:
    assert "export LOCK=.ci/requirements.lock" in (ROOT / ".ci/run").read_text()
    assert '--require-hashes --no-deps -r "$(LOCK)"' in (ROOT / "Makefile").read_text()
