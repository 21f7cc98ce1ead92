"""The shared libraries of cpu_kernels.c: compiled once, kept in a cache folder, and loaded if they are what was made.

Owns: the entries of the folder. An entry is a record, NAME.json, and the library that it names. The record has the
library's sha256, and what it was compiled with.
Interface: load_library, or LibraryError.
Must not know: what the functions compute.

A library is code that runs in this process, so a folder or file that somebody else can write is not used: the library
is compiled anew, for this process alone. One that is not what the record says was damaged, and is made again. Both are
told in one line.
"""

import ctypes
import hashlib
import json
import logging
import os
import platform
import subprocess
import tempfile
from pathlib import Path

from minivllm_kernels.compiler import compiler_version, find_compiler
from minivllm_kernels.trust import make_private, others_may_write

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("cpu_kernels.c")
# The order of a sum may change, so that it can be vectorised; infinities and NaN keep their meaning.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")
FLAGS += ("-fassociative-math",)
FOR_THIS_CPU = ("-march=native", "-mcpu=native")  # x86 has the one, Arm the other
COMPILE_SECONDS = 120


class LibraryError(Exception):
    """There is no library, and why, in words.

    vLLM: none, vLLM's wheel brings its kernels compiled
    """


class _ForeignError(Exception):
    """Somebody else may have written this."""


def load_library(folder: Path, name: str, defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library `name` of `folder`, which is made if it is not there, compiled with `defines`.

    Raises LibraryError.
    """
    compiler = find_compiler()
    if compiler is None:
        raise LibraryError("there is no C compiler (looked for $CC, cc, gcc, clang)")
    name = f"{name}-{_fingerprint(compiler, defines)}"
    try:
        make_private(folder)
        library = _find(folder, name) or _compile(compiler, folder, name, defines)
        return ctypes.CDLL(str(library))
    except _ForeignError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{folder} can't be used ({error.strerror or error})"
    logger.warning("%s: the kernels are compiled for this process alone. Mend that, or set MINIVLLM_CACHE.", problem)
    try:
        with tempfile.TemporaryDirectory(prefix="minivllm-kernels-") as private:
            return ctypes.CDLL(str(_compile(compiler, Path(private), name, defines)))
    except OSError as error:
        raise LibraryError(f"a library can't be kept or loaded ({error})") from error


def _find(folder: Path, name: str) -> Path | None:
    """The entry's library; None if there is no such entry, or a damaged one, of which a line tells.

    Raises _ForeignError, OSError.
    """
    _refuse_foreign(folder)
    record_path = folder / f"{name}.json"
    if not record_path.exists():
        return None
    _refuse_foreign(record_path)
    try:
        record = json.loads(record_path.read_bytes())
        library = folder / Path(record["library"]).name
        _refuse_foreign(library)
        if hashlib.sha256(library.read_bytes()).hexdigest() == record["sha256"]:
            return library
        damage = "is not what was compiled"
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        library, damage = record_path, f"is of no use ({error!r:.80})"
    logger.warning("%s %s: it is made again.", library, damage)
    return None


def _refuse_foreign(path: Path) -> None:
    problem = others_may_write(path)
    if problem is not None:
        raise _ForeignError(problem)


def _fingerprint(compiler: tuple[str, ...], defines: tuple[str, ...]) -> str:
    """Changes with the source, the flags, the compiler's command and version, and the processor: a cache folder may
    serve many machines."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    made_with = (FLAGS, defines, compiler, compiler_version(compiler))
    digest.update(repr((made_with, platform.machine(), platform.system(), _cpu_features())).encode())
    return digest.hexdigest()[:16]


def _cpu_features() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def _compile(compiler: tuple[str, ...], folder: Path, name: str, defines: tuple[str, ...]) -> Path:
    """Make the entry: first the library, under a name with its sha256, then the record. Two may do so at once.

    Raises LibraryError with the compiler's words, OSError if the folder can't be written.
    """
    native = FOR_THIS_CPU[0] if platform.machine().lower() in ("x86_64", "amd64", "i686") else FOR_THIS_CPU[1]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".compile-") as temporary:
        made = Path(temporary) / "library.so"
        for extra in ((native, "-fopenmp"), (native,), ()):  # the best flags that this compiler takes
            command = [*compiler, *FLAGS, *extra, *defines, "-o", str(made), str(SOURCE), "-lm"]
            said = _run(command)
            if said is None and made.is_file():
                break
        else:
            raise LibraryError(f"{' '.join(compiler)} made no library of {SOURCE.name} ({said or 'no word'})")
        try:
            ctypes.CDLL(str(made))
        except OSError as error:
            raise LibraryError(f"{' '.join(compiler)} made no library of {SOURCE.name} ({error})") from error
        sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
        library = folder / f"{name}-{sha256[:16]}.so"
        record = Path(temporary) / "record.json"
        facts = {"library": library.name, "sha256": sha256, "compiler": " ".join(compiler)}
        facts |= {"version": compiler_version(compiler), "flags": [*FLAGS, *extra, *defines]}
        record.write_text(json.dumps(facts, indent=1))
        for path in (made, record):
            path.chmod(0o600)
        made.rename(library)  # at once whole, whoever else is compiling
        record.rename(folder / f"{name}.json")
        return library


def _run(command: list[str]) -> str | None:
    """None if it went well, or the first line of what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    except subprocess.SubprocessError as error:
        return str(error)[:200]
    except OSError as error:
        return f"{os.strerror(error.errno) if error.errno else error}"
    if done.returncode == 0:
        return None
    return ((done.stderr or done.stdout).strip() or f"exit status {done.returncode}").splitlines()[0][:200]
