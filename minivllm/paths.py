"""Where minivllm keeps what it fetches or makes: the default model, compiled kernels, wheels of vLLM.

Owns: the names of these folders. All lie in one cache folder.
Interface: cache_dir, default_model_dir, kernels_dir, vllm_wheels_dir and vllm_source_dir name a folder;
check_current_folder.
Must not know: what lies in them, or who asks.
"""

import os
import tempfile
from pathlib import Path

from minivllm.errors import InputError
from minivllm_kernels.trust import make_private, others_may_write

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
OUT_FOLDER = Path("traces/out")  # where commands write traces, from the folder that one stands in


def check_current_folder() -> None:
    """InputError if the folder that this process works in has been removed: torch and transformers die of it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("The current folder has been removed. Change to one that exists, and try again.") from None


def cache_dir() -> Path:
    """`MINIVLLM_CACHE`, or `minivllm` in `XDG_CACHE_HOME`, or `~/.cache/minivllm`.

    For a user without a home: a folder in the temporary one that nobody else can open, made now. InputError if somebody
    else has taken its name.
    """
    own, shared = os.environ.get("MINIVLLM_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return _expanded("MINIVLLM_CACHE", own)
    if shared:
        return _expanded("XDG_CACHE_HOME", shared) / "minivllm"
    try:
        return Path("~/.cache").expanduser() / "minivllm"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return _temporary()


def default_model_dir() -> Path:
    """The default model's folder, there or not."""
    return cache_dir() / DEFAULT_MODEL


def kernels_dir() -> Path:
    """The compiled kernels."""
    return cache_dir() / "kernels"


def vllm_wheels_dir() -> Path:
    """The wheels of vLLM that its source is read from."""
    return cache_dir() / "vllm-wheels"


def vllm_source_dir() -> Path:
    """vLLM's source package, whose tests `make test-vllm` runs."""
    return cache_dir() / "vllm-source"


def _temporary() -> Path:
    folder = Path(tempfile.gettempdir()) / f"minivllm-cache-{os.getuid()}"
    make_private(folder)
    problem = others_may_write(folder)
    if problem is not None:
        raise InputError(f"This user has no home folder, and {problem}. Set MINIVLLM_CACHE to a folder of yours.")
    return folder


def _expanded(variable: str, value: str) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{variable}={value!r} can't be resolved: this user has no home folder. Set it to a full path."
        ) from error
