"""Where things are kept: named by the environment, made for the user alone, and never a crash."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from minivllm import paths
from minivllm.errors import InputError
from minivllm_kernels.trust import make_private


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MINIVLLM_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/minivllm"),
        ({"HOME": "/home/me"}, "/home/me/.cache/minivllm"),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINIVLLM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert paths.cache_dir() == Path(expected)
    for folder in (paths.default_model_dir(), paths.kernels_dir(), paths.vllm_wheels_dir()):
        assert folder.parent == Path(expected)


def nobodys_home(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """As for a user id without an entry in the list of users, and without HOME."""

    def homeless(path: Path) -> Path:
        if str(path).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return path

    for name in ("MINIVLLM_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))


def test_without_a_home_it_is_a_private_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nobodys_home(monkeypatch, tmp_path)
    folder = paths.cache_dir()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert paths.cache_dir() == folder


@pytest.mark.parametrize("plant", ["open", "link"])
def test_a_planted_folder_is_not_used(plant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nobodys_home(monkeypatch, tmp_path)
    folder = paths.cache_dir()
    if plant == "open":
        folder.chmod(0o777)
    else:
        folder.rmdir()
        folder.symlink_to(tmp_path)
    with pytest.raises(InputError, match=r"no home folder, and .*(mode 777|is a link).*Set MINIVLLM_CACHE"):
        paths.cache_dir()


def test_a_home_that_is_asked_for_and_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nobodys_home(monkeypatch, tmp_path)
    monkeypatch.setenv("MINIVLLM_CACHE", "~/mine")
    with pytest.raises(InputError, match=r"MINIVLLM_CACHE='~/mine' can't be resolved.*full path"):
        paths.cache_dir()


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can be another user")
def test_a_user_nobody_knows() -> None:
    """As `docker run --user 54321`."""
    code = "import os; from minivllm.paths import cache_dir; os.setuid(54321); print(cache_dir())"
    with tempfile.TemporaryDirectory() as folder:  # pytest's own lies where other users can't go
        Path(folder).chmod(0o777)
        environment = {"TMPDIR": folder, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
    assert done.stdout.strip() == f"{folder}/minivllm-cache-54321", done.stderr


def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    folder = tmp_path / "there" / "cache" / "kernels"
    make_private(folder)
    make_private(folder)
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent)] == [
        0o700,
        0o700,
        0o755,
    ]
