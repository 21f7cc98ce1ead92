"""Folders for what is run as code: made for their owner alone, and looked at before they are trusted.

Owns: nothing.
Interface: make_private, others_may_write.
Must not know: what lies in them.
"""

import os
import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and what is missing above it, that only its owner can open. What is there stays as it is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def others_may_write(path: Path) -> str | None:
    """Why what lies at `path` may come from somebody else, or None. Raises OSError where nothing is.

    Only this user and the administrator (uid 0) are trusted; a link is not.
    """
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a link"
    if hasattr(os, "getuid") and found.st_uid not in (os.getuid(), 0):
        return f"{path} belongs to another user (uid {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
