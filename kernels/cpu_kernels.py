"""The kernels of cpu_kernels.c on torch tensors: compiled once with the machine's C compiler, then loaded by ctypes.

Owns: nothing; the shared libraries are library.py's.
Interface: `load_kernels` gives a CpuKernels, or says why there is none.
Must not know: requests, or anything of the engine.

Plain C and ctypes, not a torch extension: no headers, no build system, and a compilation takes a second.
"""

import ctypes
from pathlib import Path

import torch
import torch.nn.functional as F

from minivllm_kernels import reference
from minivllm_kernels.library import LibraryError, load_library

DTYPES = {torch.float32: (), torch.bfloat16: ("-DBFLOAT16",)}  # what the source is compiled with for each
MAX_HEAD_SIZE = 256
MAX_GROUP = 64  # query heads that share a KV head
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # of the self-test, relative

_POINTER, _INT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
SIGNATURES = {
    "rms_norm": [_POINTER] * 4 + [_INT] * 2 + [_FLOAT],
    "rotary_embedding": [_POINTER, _INT] + [_POINTER] * 3 + [_INT] * 3,
    "silu_and_mul": [_POINTER] * 2 + [_INT] * 2,
    "reshape_and_cache": [_POINTER, _POINTER, _INT, _POINTER, _INT, _POINTER] + [_INT] * 4,
    "paged_attention": [_POINTER, _INT] * 2 + [_POINTER] * 2 + [_INT] + [_POINTER] * 2 + [_INT] * 5 + [_FLOAT],
}


class CpuKernels:
    """The functions of one library, for tensors on the CPU of its dtype. C believes what it is told: so type, place and
    gaps of every tensor are checked in each call (TypeError). What slots, positions and block tables point at is not.

    vLLM: _custom_ops.py::rms_norm (role; vLLM registers its C++ kernels as torch operators)
    """

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        for name, types in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, None
        self._library = library
        self.dtype = dtype

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x / rms(x) * weight over rows [R, size]. With a residual [R, size]: residual += x, and that is normed. All
        without gaps.

        vLLM: _custom_ops.py::fused_add_rms_norm
        """
        rows, size = x.shape
        if residual is None:
            _check(self.dtype, x=x, weight=weight)
        else:
            _check(self.dtype, x=x, weight=weight, residual=residual)
        if weight.numel() != size or (residual is not None and residual.numel() != rows * size):
            raise TypeError(f"x {_shape(x)}, weight {_shape(weight)} and residual {_shape(residual)} don't fit.")
        out = torch.empty_like(x)
        added = None if residual is None else residual.data_ptr()
        self._library.rms_norm(out.data_ptr(), added, x.data_ptr(), weight.data_ptr(), rows, size, eps)
        return out

    def rotary_embedding(
        self, x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, head_size: int
    ) -> None:
        """Turn the first `heads` heads of each row of x [T, width], in place; rows may lie apart.

        positions: int64[T], each below max_positions. cos, sin: [max_positions, head_size / 2].

        vLLM: _custom_ops.py::rotary_embedding
        """
        tokens, width = x.shape
        _check(self.dtype, 1, x=x, cos=cos, sin=sin)
        _check(torch.int64, positions=positions)
        if heads * head_size > width or positions.numel() != tokens or cos.shape[1] * 2 != head_size:
            raise TypeError(
                f"x {_shape(x)}, positions {_shape(positions)} and cos {_shape(cos)} don't fit {heads} heads of "
                f"{head_size}."
            )
        self._library.rotary_embedding(
            x.data_ptr(),
            x.stride(0),
            positions.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            tokens,
            heads,
            head_size,
        )

    def silu_and_mul(self, x: torch.Tensor) -> torch.Tensor:
        """silu(first half of a row) * second half: [R, 2 * size] -> [R, size]. Without gaps; size: a multiple of 16.

        vLLM: model_executor/layers/activation.py::SiluAndMul
        """
        _check(self.dtype, x=x)
        rows, size = x.shape[0], x.shape[1] // 2
        out = x.new_empty(rows, size)
        self._library.silu_and_mul(out.data_ptr(), x.data_ptr(), rows, size)
        return out

    def reshape_and_cache(
        self, key: torch.Tensor, value: torch.Tensor, kv_cache: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """K and V [T, Hkv, D] to slots int64[T] of a cache [blocks, 2, block_size, Hkv, D]; slot -1 is skipped. Tokens
        of K and V may lie apart.

        vLLM: _custom_ops.py::reshape_and_cache
        """
        _check(self.dtype, kv_cache=kv_cache)
        _check(self.dtype, 2, key=key, value=value)
        _check(torch.int64, slots=slots)
        _, _, block_size, heads, size = kv_cache.shape
        tokens = slots.numel()
        if len(key) < tokens or key.shape[1:] != (heads, size) or value.shape != key.shape:
            raise TypeError(
                f"key {_shape(key)}, value {_shape(value)} and slots {_shape(slots)} don't fit a cache "
                f"{_shape(kv_cache)}."
            )
        self._library.reshape_and_cache(
            kv_cache.data_ptr(),
            key.data_ptr(),
            key.stride(0),
            value.data_ptr(),
            value.stride(0),
            slots.data_ptr(),
            tokens,
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
        Tokens of query and out, and rows of block_table, may lie apart.

        vLLM: _custom_ops.py::cpu_attention_with_kv_cache
        """
        _check(self.dtype, kv_cache=kv_cache)
        _check(self.dtype, 2, query=query, out=out)
        _check(torch.int32, starts=starts, seq_lens=seq_lens)
        _check(torch.int32, 1, block_table=block_table)
        _, _, block_size, kv_heads, size = kv_cache.shape
        rows = seq_lens.numel()
        if query.shape[2] != size or out.numel() != query.numel() or not starts.numel() - 1 == rows == len(block_table):
            raise TypeError(
                f"query {_shape(query)}, out {_shape(out)}, starts {_shape(starts)}, seq_lens {_shape(seq_lens)} and "
                f"block_table {_shape(block_table)} don't fit a cache {_shape(kv_cache)}."
            )
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
            rows,
            block_size,
            query.shape[1],
            kv_heads,
            size,
            scale,
        )


def _check(dtype: torch.dtype, packed: int | None = None, **tensors: torch.Tensor) -> None:
    """packed: the last dimensions that must have no gaps; None: all."""
    for tensor in tensors.values():
        if tensor.dtype is dtype and tensor.is_cpu and (tensor.is_contiguous() or _is_packed(tensor, packed)):
            continue
        name = next(name for name, given in tensors.items() if given is tensor)
        found = f"{tensor.dtype} on {tensor.device}, {_shape(tensor)} with strides {list(tensor.stride())}"
        gaps = "it" if packed is None else f"its last {packed} dimensions"
        raise TypeError(f"{name} is {found}. The kernel reads {dtype} on the CPU, with no gaps in {gaps}.")


def _is_packed(tensor: torch.Tensor, dimensions: int | None) -> bool:
    if dimensions is None:
        return False
    strides, size = tensor.stride(), tensor.shape[-1]
    return strides[-1] == 1 and (dimensions == 1 or strides[-2] == size)


def _shape(tensor: torch.Tensor | None) -> list[int] | None:
    return None if tensor is None else list(tensor.shape)


def load_kernels(cache: Path, dtype: torch.dtype) -> CpuKernels | str:
    """The kernels for `dtype`, compiled into the folder `cache` if they are not there; or why they can't be had.

    They are tried before they are handed out: a compiler may be wrong.
    """
    if dtype not in DTYPES:
        return f"the kernels know {' and '.join(str(known).removeprefix('torch.') for known in DTYPES)}, not {dtype}"
    try:
        library = load_library(cache, f"cpu-kernels-{str(dtype).removeprefix('torch.')}", DTYPES[dtype])
        kernels = CpuKernels(library, dtype)
    except (LibraryError, AttributeError) as error:  # AttributeError: a function that the library lacks
        return str(error)
    wrong = self_test(kernels)
    return kernels if wrong is None else f"{wrong} of the compiled kernels gives other numbers than torch"


@torch.inference_mode()
def self_test(kernels: CpuKernels) -> str | None:
    """Two rows through every kernel and through plain torch: the first that gives something else, or None."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(kernels.dtype)

    def equal(found: torch.Tensor, expected: torch.Tensor) -> bool:
        expected = expected.double()
        return bool((found.double() - expected).norm() <= TOLERANCE[kernels.dtype] * expected.norm())

    x, weight, residual = draw(2, 64), draw(64), draw(2, 64)
    added = residual + x
    normed = weight * (added.float() * torch.rsqrt(added.float().pow(2).mean(-1, keepdim=True) + 1e-5))
    if not equal(kernels.rms_norm(x, weight, 1e-5, residual), normed) or not equal(residual, added):
        return "rms_norm"
    gate, up = x.float().chunk(2, dim=1)
    if not equal(kernels.silu_and_mul(x), F.silu(gate) * up):
        return "silu_and_mul"
    cos, sin, positions = draw(8, 16), draw(8, 16), torch.tensor([7, 2])
    first, second = x[:, :32].float().chunk(2, dim=1)
    c, s = cos[positions].float(), sin[positions].float()
    turned = torch.cat((first * c - second * s, second * c + first * s, x[:, 32:].float()), dim=1)
    kernels.rotary_embedding(x, positions, cos, sin, heads=1, head_size=32)
    if not equal(x, turned):
        return "rotary_embedding"

    # Two sequences of 5 and 3 tokens, of which 2 and 1 are new, in blocks of 4.
    slots, table = torch.tensor([11, 4, 14]), torch.tensor([[2, 1], [3, 0]], dtype=torch.int32)
    starts, seq_lens = torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([5, 3], dtype=torch.int32)
    cache, key, value, query = draw(4, 2, 4, 2, 32), draw(3, 2, 32), draw(3, 2, 32), draw(3, 4, 32)
    expected = cache.clone()
    reference.reshape_and_cache(key, value, expected[:, 0], expected[:, 1], slots)
    kernels.reshape_and_cache(key, value, cache, slots)
    if not torch.equal(cache, expected):
        return "reshape_and_cache"
    out = torch.zeros_like(query)
    kernels.paged_attention(query, cache, starts, seq_lens, table, 32**-0.5, out)
    if not equal(out, reference.paged_attention(query, cache[:, 0], cache[:, 1], starts, seq_lens, table, 32**-0.5)):
        return "paged_attention"
    return None
