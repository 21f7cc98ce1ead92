"""vLLM's own tests: from its source package, which pip fetches once, into a folder of the user's cache.

Nothing of the package is installed or run, but for the test files; and nothing of it belongs into this repository.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from minivllm.errors import InputError
from minivllm.paths import vllm_source_dir
from minivllm_kernels.trust import make_private

VERSION = "0.22.0"
ARCHIVE = f"vllm-{VERSION}.tar.gz"
SHA256 = "6d41581a9e5288cd69278518a550c6d7ce510ae27a506556a3427d01284be7fe"

# pip asks a source package for its metadata before it hands it over, and vLLM's build wants torch, Rust and CMake for
# that. This stands in for setuptools in the process in which pip asks.
BUILD_META = f"""
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = Path(folder, "vllm-{VERSION}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: vllm\\nVersion: {VERSION}\\n")
    return info.name
"""


def tests_of_vllm(files: list[str]) -> Path:
    """A folder that holds `files` ("tests/…") of vLLM's source. Raises InputError."""
    folder = vllm_source_dir()
    archive = folder / ARCHIVE
    if not archive.exists():
        _fetch(archive)
    _check(archive)
    unpacked = folder / f"vllm-{VERSION}"
    if all((unpacked / file).exists() for file in files):
        return unpacked
    wanted = {f"vllm-{VERSION}/{file}" for file in files}
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.name in wanted and member.isfile()]
        tar.extractall(folder, members, filter="data")
    missing = wanted - {member.name for member in members}
    if missing:
        raise InputError(f"{archive} lacks {', '.join(sorted(missing))}.")
    for file in files:
        for parent in Path(file).parents[:-1]:
            (unpacked / parent / "__init__.py").touch()
    return unpacked


def _fetch(archive: Path) -> None:
    make_private(archive.parent)
    print(f"fetching the source of vllm=={VERSION} with pip (35 MB), into {archive.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
        stand_in = Path(temporary, "stand-in", "setuptools")
        stand_in.mkdir(parents=True)
        (stand_in / "__init__.py").touch()
        (stand_in / "build_meta.py").write_text(BUILD_META)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "vllm", "--no-build-isolation"]
        command += ["--disable-pip-version-check", "--quiet", "--dest", temporary, f"vllm=={VERSION}"]
        environment = os.environ | {"PYTHONPATH": str(stand_in.parent)}
        if subprocess.run(command, env=environment, check=False).returncode != 0:
            raise InputError(f"pip could not fetch the source of vllm=={VERSION} (see above). Check the network.")
        _check(Path(temporary, ARCHIVE)).replace(archive)


def _check(archive: Path) -> Path:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise InputError(f"{archive} has the sha256 {found}, and not {SHA256}. Remove it, and it is fetched again.")
    return archive
