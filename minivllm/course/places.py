"""Where a file of the repository is: in a checkout where its name says, in an installed package beside the modules.

Owns: nothing. Interface: repo_path, module_of, lab_folders, ROOT.
Must not know: what is in the files.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the repository, or site-packages
LAB = re.compile(r"^labs/(\d\d)_[^/]*")
# first part of a path in the repository -> the folder that pyproject.toml installs it as
INSTALLED = {"traces": "minivllm/recorded", "notebooks": "minivllm/lessons", "kernels": "minivllm_kernels"}


def repo_path(path: str | Path, root: Path = ROOT) -> Path:
    """The file or folder that the repository calls `path`, for example traces/labs/ladder.json.gz."""
    top, _, rest = Path(path).as_posix().partition("/")
    if top not in INSTALLED or (root / top).is_dir():
        return root / path
    return root / INSTALLED[top] / LAB.sub(r"lab\1", rest)


def module_of(path: str) -> str:
    """The name that a Python file of the repository is imported by, for example minivllm_kernels.reference."""
    top, _, rest = path.partition("/")
    name = INSTALLED.get(top, top) + "/" + LAB.sub(r"lab\1", rest)
    return name.removesuffix(".py").replace("/", ".")


def lab_folders(root: Path = ROOT) -> list[Path]:
    """The folders of all labs, in order."""
    labs = repo_path("notebooks/labs", root)
    folders = labs.glob("[0-9][0-9]_*") if labs.is_dir() else repo_path("notebooks", root).glob("lab[0-9][0-9]")
    return sorted(folder for folder in folders if (folder / "lab.toml").is_file())
