"""Build the kernels for GPUs that are not there: PTX, machine code, and what a program needs of the chip.

`python -m minivllm_kernels.compile --target sm_80,sm_90,sm_100` builds every kernel with every choice of tuning.py that
the engine would use for the shapes in SHAPES. The exit status is 1 if one spills registers or needs more shared memory
than the target has.
Interface: choices, compile_choice, report; main.
Must not know: how to run a kernel.

Needs Triton for Linux, and a process in which kernels are not interpreted (TRITON_INTERPRET unset).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from minivllm_kernels.flash_attention.triton_forward import flash_attention
from minivllm_kernels.interpreter import is_interpreting
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.tuning import NUM_SEGMENTS, TUNINGS

# (query heads, KV heads, head size) of the default model, and of models of 1B, 8B and 27B parameters
SHAPES = ((9, 3, 64), (32, 8, 64), (32, 8, 128), (32, 16, 256))
DTYPES = (torch.bfloat16, torch.float32)
SHARED_MEMORY_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}  # bytes a program may use
STAGES = ("ttir", "ttgir", "ptx")
_POINTER = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass(frozen=True)
class Choice:
    """A kernel with constants and types, for one target.

    vLLM: none, vLLM compiles at the first launch
    """

    target: str
    name: str  # the kernel's, without _kernel
    shape: str  # heads, head size, dtype
    kernel: Any
    arguments: dict[str, Any]  # by name; tensors on the meta device stand for pointers
    options: dict[str, int]  # num_warps, num_stages


@dataclass
class Compiled:
    """What came out. Sizes in bytes.

    vLLM: none, see `Choice`
    """

    target: str
    name: str
    shape: str
    constants: dict[str, Any]
    options: dict[str, int]
    registers: int = 0  # of one thread; 255 is the most there are
    spills: int = 0  # bytes of registers of one thread that had to go to memory
    shared_memory: int = 0  # of one program
    stages: dict[str, str] = field(default_factory=dict, repr=False)  # ttir, ttgir, ptx

    @property
    def fits(self) -> bool:
        return self.spills == 0 and self.shared_memory <= SHARED_MEMORY_LIMIT[self.target]


def choices(
    target: str,
    shapes: tuple = SHAPES,
    dtypes: tuple = DTYPES,
    block_size: int = 16,
    num_segments: int = NUM_SEGMENTS,
) -> list[Choice]:
    """Every launch that the engine would make on `target` for these shapes, without repetition.

    vLLM: none, see `Choice`
    """
    found: dict[str, Choice] = {}
    for heads, kv_heads, head_size in shapes:
        for dtype in dtypes:
            shape = f"{heads}/{kv_heads} heads, D {head_size}, {str(dtype).removeprefix('torch.')}"
            for kernel, arguments in launches(target, heads, kv_heads, head_size, dtype, block_size, num_segments):
                options = {name: arguments.pop(name) for name in ("num_warps", "num_stages")}
                name = kernel.__name__.removesuffix("_kernel")
                choice = Choice(target, name, shape, kernel, arguments, options)
                found.setdefault(repr((name, *_types(choice), options)), choice)
    return list(found.values())


def launches(
    target: str,
    heads: int,
    kv_heads: int,
    head_size: int,
    dtype: torch.dtype,
    block_size: int,
    num_segments: int,
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(kernel, arguments) of each launch: the wrappers run on meta tensors, with a launch that only takes notes.

    vLLM: none, see `Choice`
    """
    noted: list[tuple[Any, dict[str, Any]]] = []

    def note(kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        noted.append((kernel, arguments))

    meta = partial(torch.empty, device="meta")
    tuning = TUNINGS[target]
    rows, width, size = 4, 512, torch.empty(0, dtype=dtype).element_size()
    k_cache, v_cache = meta(64, 2, block_size, kv_heads, head_size, dtype=dtype).unbind(1)
    query, out = (meta(64, heads, head_size, dtype=dtype) for _ in range(2))
    key, value = (meta(64, kv_heads, head_size, dtype=dtype) for _ in range(2))
    table, seq_lens = meta(rows, width, dtype=torch.int32), meta(rows, dtype=torch.int32)
    starts, slots = meta(rows + 1, dtype=torch.int32), meta(64, dtype=torch.int64)
    scale = head_size**-0.5
    cache = (k_cache, v_cache)
    reshape_and_cache(key, value, *cache, slots, tuning=tuning.write, launch=note)
    prefill, decode, split = (f(head_size, size) for f in (tuning.prefill, tuning.decode, tuning.split))
    paged_attention(query, *cache, starts, seq_lens, table, scale, out=out, tuning=prefill, launch=note)
    rows_in = (query[:rows], *cache, table, seq_lens, scale, out[:rows])
    paged_decode(*rows_in, tuning=decode, launch=note)
    paged_decode_split(*rows_in, num_segments, tuning=split, launch=note)
    if dtype is torch.bfloat16:
        flash_attention(*(meta(heads, 64, head_size, dtype=dtype) for _ in range(3)), tuning=prefill, launch=note)
    yield from noted


def _types(choice: Choice) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int], list[Any]]]:
    """Signature, constants and attributes as Triton would derive them at a launch: multiples of 16 are marked, and a
    1 becomes a constant."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[Any]] = {}
    for index, parameter in enumerate(choice.kernel.params):
        value = choice.arguments[parameter.name]
        specialize = not parameter.do_not_specialize
        if parameter.is_constexpr or (specialize and type(value) is int and value == 1):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = _POINTER[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32"
            if specialize and value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def compile_choice(choice: Choice) -> Compiled:
    """Build one choice to machine code and measure it.

    vLLM: none, see `Choice`
    """
    triton.knobs.compilation.disable_line_info = True  # else the machine code holds the paths of this machine
    signature, constants, attributes = _types(choice)
    source = ASTSource(choice.kernel, signature, constants, attributes)
    target = GPUTarget("cuda", int(choice.target.removeprefix("sm_")), 32)
    built = triton.compile(source, target=target, options=dict(choice.options))
    usage = _resource_usage(built.asm["cubin"])
    return Compiled(
        target=choice.target,
        name=choice.name,
        shape=choice.shape,
        constants=constants,
        options=choice.options,
        registers=usage["REG"],
        spills=usage["STACK"],
        shared_memory=built.metadata.shared,
        stages={stage: without_paths(built.asm[stage]) for stage in STAGES},
    )


def _resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers (REG) and stack (STACK) of the one kernel in `cubin`, by the cuobjdump that Triton brings."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        result = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    usage = result.stdout[result.stdout.index(" Function ") :]
    return {name: int(number) for name, number in re.findall(r"\b([A-Z]+):(\d+)", usage)}


def without_paths(text: str) -> str:
    """A stage's text without source locations, which are paths of the machine that built it.

    vLLM: none, see `Choice`
    """
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#loc\d*\s*=|\.loc\b|\.file\b|//.*/\w+/)", line)]
    return re.sub(r"\s*loc\((?:#loc\d*|\"[^\"]*\"[^)]*|unknown)\)", "", "\n".join(lines)) + "\n"


# ---------------------------------------------------------------------- the command


def compile_all(targets: list[str], only: str = "", workers: int | None = None) -> list[Compiled]:
    """Build all choices of all targets whose name contains `only`, several at a time.

    vLLM: none, see `Choice`
    """
    jobs = [(target, index) for target in targets for index, c in enumerate(choices(target)) if only in c.name]
    workers = workers or min(len(jobs), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return list(pool.map(_compile_job, jobs))


def _compile_job(job: tuple[str, int]) -> Compiled:
    target, index = job
    return compile_choice(choices(target)[index])


def report(compiled: list[Compiled]) -> str:
    """A table, one line a kernel; lines that don't fit are marked.

    vLLM: none, see `Choice`
    """
    lines = [
        f"{'target':7} {'kernel':22} {'shape':32} {'tile':>9} {'warps':>5} {'regs':>5} {'spills':>6} {'shared':>7}"
    ]
    for one in compiled:
        rows, tile = one.constants.get("BLOCK_M"), one.constants.get("TILE")
        tiles = f"{rows}x{tile}" if rows else str(tile)
        lines.append(
            f"{one.target:7} {one.name:22} {one.shape:32} {tiles:>9} {one.options['num_warps']:>5} "
            f"{one.registers:>5} {one.spills:>6} {one.shared_memory:>7}{'' if one.fits else '  DOES NOT FIT'}"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `minivllm kernels compile`.

    vLLM: none, see `Choice`
    """
    parser.add_argument("--target", default="sm_80,sm_90,sm_100", help="compute capabilities, with commas between")
    parser.add_argument("--kernel", default="", help="only kernels whose name contains this")
    parser.add_argument("--stage", choices=STAGES, action="append", default=[], help="print this stage too")
    parser.add_argument("--json", type=Path, help="write numbers, constants and the chosen stages to this file")


def run(arguments: argparse.Namespace) -> int:
    """`minivllm kernels compile`; gives the exit status.

    vLLM: none, see `Choice`
    """
    if is_interpreting():
        print("Kernels are interpreted in this process. Unset TRITON_INTERPRET and start again.", file=sys.stderr)
        return 2
    targets = arguments.target.split(",")
    if unknown := set(targets) - set(SHARED_MEMORY_LIMIT):
        print(f"Unknown target {', '.join(sorted(unknown))}. Known: {', '.join(SHARED_MEMORY_LIMIT)}.", file=sys.stderr)
        return 2
    compiled = compile_all(targets, arguments.kernel)
    print(report(compiled))
    for one in compiled:
        for stage in arguments.stage:
            print(f"\n==== {one.target} {one.name} ({one.shape}): {stage}\n{one.stages[stage]}")
    if arguments.json:
        shown = [asdict(one) | {"stages": {stage: one.stages[stage] for stage in arguments.stage}} for one in compiled]
        arguments.json.write_text(json.dumps(shown, indent=1) + "\n")
    return 0 if all(one.fits for one in compiled) else 1


def main(argv: list[str] | None = None) -> int:
    """`python -m minivllm_kernels.compile`

    vLLM: none, see `Choice`
    """
    parser = argparse.ArgumentParser(prog="python -m minivllm_kernels.compile", description=__doc__.splitlines()[0])
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
