"""Which C compiler this machine has. Without torch, so that it can be asked where nothing else works.

Owns: nothing.
Interface: find_compiler.
Must not know: what is compiled.
"""

import os
import shutil


def find_compiler() -> str | None:
    """$CC, cc, gcc or clang: the first that is there, as it was named; None where there is none.

    vLLM: none, vLLM's wheel brings its kernels compiled
    """
    names = filter(None, (os.environ.get("CC"), "cc", "gcc", "clang"))
    return next((name for name in names if shutil.which(name)), None)
