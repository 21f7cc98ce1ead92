"""Files that are written whole or not at all.

Interface: write_file; refusal.
Must not know: what is in a file.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path`, all of it or nothing, and make the folders above it. Raises OSError.

    A file gets its name only when it is whole, so a full disk leaves what was there before. A link is followed. What is
    no file is never replaced: a pipe that somebody reads and a device such as /dev/null or a terminal are written to, a
    folder, a disk and a socket are refused.
    """
    mode = _mode(path)
    if mode is not None and (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        _write_to(path, data)
        return
    if mode is not None and not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, refusal(path))
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    unfinished.unlink(missing_ok=True)  # of a process that had this number
    try:
        with open(unfinished, "xb") as file:  # x: through no link that somebody put there
            file.write(data)
        if mode is not None:
            unfinished.chmod(stat.S_IMODE(mode))
        unfinished.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            unfinished.unlink(missing_ok=True)
        raise


def refusal(path: Path) -> str | None:
    """Why a file can't be made at `path` because of what is there: "it is a folder", "it is a device"; or None."""
    mode = _mode(path)
    if mode is None or stat.S_ISREG(mode):
        return None
    kinds = ((stat.S_ISDIR, "folder"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"))
    return f"it is a {next((name for is_kind, name in kinds if is_kind(mode)), 'device')}"


def _mode(path: Path) -> int | None:
    """Of what `path` leads to; None if nothing is there. By stat: /dev/stdout leads to what no path names."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _write_to(path: Path, data: bytes) -> None:
    # without O_NONBLOCK, opening a pipe that nobody reads would wait for ever; with it, that is an error
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(descriptor, True)
    with open(descriptor, "wb") as file:
        file.write(data)
