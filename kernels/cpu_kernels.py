"""The kernels of cpu_kernels.c on torch tensors: compiled once with the machine's C compiler, then loaded by ctypes.

Owns: the shared libraries in a cache folder, one for each number type.
Interface: `load_kernels` gives a CpuKernels, or says why there is none.
Must not know: requests, or anything of the engine.

Plain C and ctypes, not a torch extension: no headers, no build system, and a compilation takes a second.
"""

import ctypes
import functools
import hashlib
import platform
import subprocess
import tempfile
from pathlib import Path

import torch

from minivllm_kernels.compiler import find_compiler

SOURCE = Path(__file__).with_name("cpu_kernels.c")
DTYPES = {torch.float32: "", torch.bfloat16: "-DBFLOAT16"}
MAX_HEAD_SIZE = 256
MAX_GROUP = 64  # query heads that share a KV head
# The order of a sum may change, so that it can be vectorised; infinities and NaN keep their meaning.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")
FLAGS += ("-fassociative-math",)
FOR_THIS_CPU = ("-march=native", "-mcpu=native")  # x86 has the one, Arm the other
COMPILE_SECONDS = 120

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
SIGNATURES = {
    "rms_norm": [_POINTER] * 4 + [_INT] * 2 + [_FLOAT],
    "rotary_embedding": [_POINTER, _INT] + [_POINTER] * 3 + [_INT] * 3,
    "silu_and_mul": [_POINTER] * 2 + [_INT] * 2,
    "reshape_and_cache": [_POINTER, _POINTER, _INT, _POINTER, _INT, _POINTER] + [_INT] * 4,
    "paged_attention": [_POINTER, _INT] * 2 + [_POINTER] * 2 + [_INT] + [_POINTER] * 2 + [_INT] * 5 + [_FLOAT],
}


class CpuKernels:
    """The functions of one library. Tensors are on the CPU and of its dtype; rows may lie apart, numbers of a row not.

    vLLM: _custom_ops.py::rms_norm (role; vLLM registers its C++ kernels as torch operators)
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, types in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, None
        self._library = library

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x / rms(x) * weight over rows [R, size]. With a residual [R, size]: residual += x, and that is normed.

        vLLM: _custom_ops.py::fused_add_rms_norm
        """
        out = torch.empty_like(x)
        added = None if residual is None else residual.data_ptr()
        self._library.rms_norm(out.data_ptr(), added, x.data_ptr(), weight.data_ptr(), *x.shape, eps)
        return out

    def rotary_embedding(
        self, x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, head_size: int
    ) -> None:
        """Turn the first `heads` heads of each row of x [T, width], in place. cos, sin: [max_positions, head_size / 2].

        vLLM: _custom_ops.py::rotary_embedding
        """
        self._library.rotary_embedding(
            x.data_ptr(),
            x.stride(0),
            positions.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            x.shape[0],
            heads,
            head_size,
        )

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """silu(first half of a row) * second half: [R, 2 * size] -> [R, size].

        vLLM: model_executor/layers/activation.py::SiluAndMul
        """
        rows, size = x.shape[0], x.shape[1] // 2
        out = x.new_empty(rows, size)
        self._library.silu_and_mul(out.data_ptr(), x.data_ptr(), rows, size)
        return out

    def reshape_and_cache(
        self, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """K and V [T, Hkv, D] to slots int64[T] of a cache [blocks, 2, block_size, Hkv, D]; slot -1 is skipped.

        vLLM: _custom_ops.py::reshape_and_cache
        """
        _, _, block_size, heads, size = kv_cache.shape
        self._library.reshape_and_cache(
            kv_cache.data_ptr(),
            key.data_ptr(),
            key.stride(0),
            value.data_ptr(),
            value.stride(0),
            slots.data_ptr(),
            slots.shape[0],
            block_size,
            heads,
            size,
        )

    def paged_attention(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        starts: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        scale: float,
        out: torch.Tensor,
    ) -> None:
        """Causal attention of query [T, Hq, D] into out [T, Hq, D]. starts int32[R + 1], seq_lens int32[R] and
        block_table int32[R, W] as in CommonAttentionMetadata. What belongs to no row, or to one of length 0, stays.

        vLLM: _custom_ops.py::cpu_attention_with_kv_cache
        """
        _, _, block_size, kv_heads, size = kv_cache.shape
        self._library.paged_attention(
            out.data_ptr(),
            out.stride(0),
            query.data_ptr(),
            query.stride(0),
            kv_cache.data_ptr(),
            block_table.data_ptr(),
            block_table.stride(0),
            seq_lens.data_ptr(),
            starts.data_ptr(),
            seq_lens.shape[0],
            block_size,
            query.shape[1],
            kv_heads,
            size,
            scale,
        )


def load_kernels(cache: Path, dtype: torch.dtype) -> CpuKernels | str:
    """The kernels for `dtype`, compiled into the folder `cache` if they are not there; or why they can't be had.

    vLLM: none, vLLM's wheel brings its kernels compiled
    """
    if dtype not in DTYPES:
        return f"the kernels know {' and '.join(str(known).removeprefix('torch.') for known in DTYPES)}, not {dtype}"
    compiler = find_compiler()
    if compiler is None:
        return "there is no C compiler (looked for $CC, cc, gcc, clang)"
    name = f"cpu-kernels-{str(dtype).removeprefix('torch.')}-{_fingerprint(compiler)}.so"
    path = cache / name
    try:
        if not path.is_file():
            _compile(compiler, path, DTYPES[dtype])
        return CpuKernels(ctypes.CDLL(str(path)))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return f"{compiler} made no library of {SOURCE.name} ({(said.strip() or 'no word').splitlines()[0][:200]})"


@functools.cache
def _fingerprint(compiler: str) -> str:
    """Changes with the source, the flags, the compiler and the processor: a cache folder may serve many machines."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(repr((FLAGS, compiler, platform.machine(), platform.system(), _cpu_features())).encode())
    return digest.hexdigest()[:16]


def _cpu_features() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def _compile(compiler: str, path: Path, define: str) -> None:
    """Compile with the best flags that this compiler takes. Raises what the last attempt raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    native = FOR_THIS_CPU[0] if platform.machine().lower() in ("x86_64", "amd64", "i686") else FOR_THIS_CPU[1]
    attempts = [(native, "-fopenmp"), (native,), ()]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".compile-") as folder:
        made = Path(folder) / path.name
        for attempt, extra in enumerate(attempts):
            command = [compiler, *FLAGS, *extra, *filter(None, [define]), "-o", str(made), str(SOURCE), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
            if done.returncode == 0:
                made.rename(path)  # at once whole, whoever else is compiling
                return
            if attempt == len(attempts) - 1:
                done.check_returncode()
