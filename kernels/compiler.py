"""Which C compiler this machine has. Without torch, so that it can be asked where nothing else works.

Owns: nothing.
Interface: find_compiler, compiler_version.
Must not know: what is compiled.
"""

import functools
import os
import shlex
import shutil
import subprocess


def find_compiler() -> tuple[str, ...] | None:
    """$CC, cc, gcc or clang: the first that is there, as words of a command; None where there is none.

    $CC may have arguments (`gcc -m64`) or a program in front (`ccache gcc`).
    """
    try:
        own = tuple(shlex.split(os.environ.get("CC", "")))
    except ValueError:  # a quote without its end
        own = ()
    return next((words for words in (own, ("cc",), ("gcc",), ("clang",)) if words and shutil.which(words[0])), None)


@functools.cache
def compiler_version(compiler: tuple[str, ...]) -> str:
    """The first line of what it says to --version; empty if it says nothing."""
    try:
        said = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.partition("\n")[0].strip()
