"""Whether somebody else may have written a file that is about to be run as code.

Owns: nothing.
Interface: others_may_write.
Must not know: what the file is.
"""

import os
import stat
from pathlib import Path


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
