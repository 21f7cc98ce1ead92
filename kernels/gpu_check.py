"""One command for a GPU: are the kernels right, and how fast are they? `python kernels/gpu_check.py`

Needs torch >= 2.11 and triton >= 3.6, nothing else; not even this project installed. Takes less than 4 minutes on an
H100 or H200. Correctness: all kernels against reference.py over the whole grid of shapes (cases.py), pairwise cover
first, so that what time allows is spread out. Speed: bytes a second of decode against a device copy, TFLOP/s of
prefill, each beside torch's SDPA and flex attention on the same data. Writes a JSON file and prints tables. Correctness
comes first and stops when its share of the time is used up; how far it came is in the result.

--device cpu runs what a CPU can, in Triton's interpreter: a few shapes, no speed.
"""

import argparse
import json
import os
import statistics
import sys
import time
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

if "minivllm_kernels" not in sys.modules:
    try:
        import minivllm_kernels
    except ModuleNotFoundError:  # a checkout that is not installed: this folder is the package
        minivllm_kernels = types.ModuleType("minivllm_kernels")
        minivllm_kernels.__path__ = [str(Path(__file__).resolve().parent)]
        sys.modules["minivllm_kernels"] = minivllm_kernels

BUDGET_SECONDS = 225
SPEED_SECONDS = 75  # of these, for measuring; correctness gets the rest
COMPILE_WORKERS = 16
# sequences, tokens of each, query heads, KV heads, head size
DECODE_SHAPES = ((64, 8192, 32, 8, 128), (4, 8192, 32, 8, 128), (64, 2048, 32, 8, 64))
PREFILL_SHAPES = ((1, 8192, 32, 8, 128), (8, 2048, 32, 8, 128), (1, 8192, 32, 8, 64))
TARGETS = {"decode": 0.85, "prefill": 0.60}  # of a device copy; of torch's best SDPA


def main(argv: list[str] | None = None) -> int:
    """Run all checks; the exit status is 1 if a kernel is wrong. Speed below its target is reported, not an error.

    vLLM: none, vLLM's benchmarks are elsewhere
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"), help="the result (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=BUDGET_SECONDS, help="for everything (default: %(default)s)")
    parser.add_argument("--cases", type=int, help="at most this many shapes")
    parser.add_argument("--no-speed", action="store_true", help="correctness alone")
    parser.add_argument("--tune", action="store_true", help="also try other tile sizes, to improve tuning.py")
    arguments = parser.parse_args(argv)
    if arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no CUDA GPU. In the interpreter: --device cpu", file=sys.stderr)
        return 2
    started = time.monotonic()
    result: dict[str, Any] = {"environment": environment(arguments.device)}
    print(json.dumps(result["environment"], indent=1))
    speed = arguments.device == "cuda" and not arguments.no_speed
    seconds = arguments.seconds - (SPEED_SECONDS if speed else 0)
    result["correctness"] = check_correctness(arguments.device, seconds, arguments.cases)
    print(correctness_summary(result["correctness"]))
    if speed:
        try:
            result["speed"] = measure_speed(arguments.tune)
            print(speed_table(result["speed"]))
        except Exception as error:  # what was found before is worth keeping
            result["speed_error"] = f"{type(error).__name__}: {error}"
            print(f"speed was not measured: {result['speed_error']}", file=sys.stderr)
    result["seconds"] = round(time.monotonic() - started, 1)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['seconds']} s; written to {arguments.out}")
    return 1 if result["correctness"]["failures"] else 0


def environment(device: str) -> dict[str, Any]:
    """What the numbers hold for.

    vLLM: none, see `main`
    """
    import torch
    import triton

    found: dict[str, Any] = {"device": device, "torch": torch.__version__, "triton": triton.__version__}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": properties.name,
            "capability": f"sm_{properties.major}{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory_gib": round(properties.total_memory / 2**30),
            "cuda": torch.version.cuda,
        }
    return found


# ---------------------------------------------------------------------- correctness


def check_correctness(device: str, seconds: float, limit: int | None) -> dict[str, Any]:
    """All kernels on every shape, as far as time allows; on a CPU with the sizes of the interpreter's tuning.

    On a GPU most of the time goes into compiling, so processes compile ahead of the one that runs.

    vLLM: none, see `main`
    """
    import torch

    from minivllm_kernels import cases, interpreter
    from minivllm_kernels.tuning import TUNINGS, tuning_for

    interpreter.speed_up()
    everything = list(cases.product())
    cover = cases.pairwise(cases.HEADS, cases.HEAD_SIZES, cases.BLOCK_SIZES, cases.DTYPES)
    first = set(cover)
    everything.sort(key=lambda case: (case.heads, case.head_size, case.block_size, case.dtype) not in first)
    planned = everything[:limit]
    tuning = tuning_for(torch.device(device, 0) if device == "cuda" else torch.device(device))
    end = time.monotonic() + seconds
    pool = None
    if device == "cuda":
        pool = ProcessPoolExecutor(min(COMPILE_WORKERS, os.cpu_count() or 1), mp_context=get_context("spawn"))
        target = next(name for name, choices in TUNINGS.items() if choices is tuning)
        ahead = [pool.submit(_compile_ahead, case, target) for case in planned]
    worst: dict[str, dict[str, float]] = {}
    failures: list[str] = []
    done = 0
    for index, case in enumerate(planned):
        if time.monotonic() > end:
            break
        if pool:
            ahead[index].exception()  # compiled, or we will see the error ourselves
        rows = cases.lengths(case.block_size, case.seed, num_seqs=33 if device == "cuda" else 8)
        try:
            differences = cases.run_case(case, rows, device, tuning)
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {str(error)[:500]}")
        else:
            for kernel, difference in differences.items():
                largest = worst.setdefault(str(case.dtype).removeprefix("torch."), {})
                largest[kernel] = max(largest.get(kernel, 0.0), difference)
        done += 1
    if pool:
        pool.shutdown(wait=False, cancel_futures=True)
    return {
        "shapes": len(everything),
        "checked": done,
        "pairwise_cover": len(first),
        "largest_difference": worst,
        "failures": failures,
    }


def _compile_ahead(case: Any, target: str) -> None:
    """In a process of its own: let Triton put the machine code of a case's kernels into its cache on disk."""
    from minivllm_kernels.compile import launches

    query_heads, kv_heads = case.heads
    shape = (query_heads, kv_heads, case.head_size)
    for kernel, arguments in launches(target, *shape, case.dtype, case.block_size, num_segments=4):
        if kernel.__name__ != "flash_attention_kernel":
            kernel.warmup(grid=(1,), **arguments)


def correctness_summary(found: dict[str, Any]) -> str:
    """For the terminal.

    vLLM: none, see `main`
    """
    lines = [
        f"\ncorrectness: {found['checked']} of {found['shapes']} shapes, {len(found['failures'])} failed "
        f"(the first {found['pairwise_cover']} are a pairwise cover)"
    ]
    for dtype, largest in found["largest_difference"].items():
        lines.append(f"  {dtype:9} " + "  ".join(f"{kernel} {value:.1e}" for kernel, value in largest.items()))
    return "\n".join(lines + [f"  FAILED {failure}" for failure in found["failures"][:20]])


# ---------------------------------------------------------------------- speed


def measure_speed(tune: bool) -> dict[str, Any]:
    """Decode and prefill beside torch on the same data, and a device copy.

    vLLM: none, see `main`
    """
    result: dict[str, Any] = {"copy_gb_s": round(_copy_bandwidth() / 1e9, 1), "decode": [], "prefill": []}
    # flex attention takes some seconds to compile, so for the first shape alone
    for shape, first in zip(DECODE_SHAPES, (True, False, False), strict=True):
        result["decode"].append(_measure_decode(*shape, copy=result["copy_gb_s"], flex=first, tune=tune and first))
    for shape, first in zip(PREFILL_SHAPES, (True, False, False), strict=True):
        result["prefill"].append(_measure_prefill(*shape, flex=first, tune=tune and first))
    result["new_compilations_in_steady_state"] = _count_compilations()
    return result


def _milliseconds(run: Callable[[], Any], repeat: int = 20) -> float:
    """Median of `repeat` runs on the device, after three to warm up; what the last run left in the cache is removed."""
    import torch

    flush = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        run()
    times = []
    for _ in range(repeat):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def _copy_bandwidth() -> float:
    """Bytes a second, read and written, of the largest plain copy."""
    import torch

    source = torch.empty(2 * 2**30, dtype=torch.uint8, device="cuda").fill_(1)
    target = torch.empty_like(source)
    return 2 * source.numel() / (_milliseconds(lambda: target.copy_(source)) / 1000)


def _paged(num_seqs: int, length: int, heads: int, kv_heads: int, head_size: int, new: int) -> dict[str, Any]:
    """`num_seqs` sequences of `length` tokens in shuffled blocks of 16; the last `new` of each are the queries."""
    import torch

    torch.manual_seed(0)
    width = length // 16
    blocks = torch.randperm(num_seqs * width, device="cuda").to(torch.int32).view(num_seqs, width)
    cache = torch.randn(num_seqs * width, 2, 16, kv_heads, head_size, device="cuda", dtype=torch.bfloat16)
    query = torch.randn(num_seqs * new, heads, head_size, device="cuda", dtype=torch.bfloat16)
    # the same numbers as torch wants them: [sequences, heads, tokens, head size]
    gathered = cache[blocks.long()].transpose(1, 2).flatten(2, 3)
    keys, values = (gathered[:, kv].transpose(1, 2).contiguous() for kv in range(2))
    return {
        "q": query,
        "k_cache": cache[:, 0],
        "v_cache": cache[:, 1],
        "query_start_loc": torch.arange(num_seqs + 1, device="cuda", dtype=torch.int32) * new,
        "seq_lens": torch.full((num_seqs,), length, device="cuda", dtype=torch.int32),
        "block_table": blocks,
        "scale": head_size**-0.5,
        "dense": (query.view(num_seqs, new, heads, head_size).transpose(1, 2), keys, values),
    }


def _measure_decode(
    num_seqs: int, length: int, heads: int, kv_heads: int, head_size: int, copy: float, flex: bool, tune: bool
) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
    from minivllm_kernels.tuning import NUM_SEGMENTS, ReadTuning, choose_form

    data = _paged(num_seqs, length, heads, kv_heads, head_size, new=1)
    out = torch.empty_like(data["q"])
    shared = [data[name] for name in ("q", "k_cache", "v_cache", "block_table", "seq_lens", "scale")]
    moved = 2 * num_seqs * length * kv_heads * head_size * 2  # K and V, bfloat16
    form = choose_form(num_seqs, num_seqs, 1, kv_heads)
    ways: dict[str, Callable[[], Any]] = {
        "decode": lambda: paged_decode(*shared, out),
        "split": lambda: paged_decode_split(*shared, out, NUM_SEGMENTS),
        "sdpa": lambda: F.scaled_dot_product_attention(*data["dense"], enable_gqa=True),
    }
    if flex:
        ways["flex"] = _flex(data["dense"], causal=False)
    if tune:
        for tile, warps, stages in ((32, 4, 5), (64, 4, 3), (64, 4, 5), (64, 8, 5), (128, 4, 3), (128, 8, 5)):
            tuning = ReadTuning(tile=tile, num_warps=warps, num_stages=stages)
            ways[f"decode tile {tile} warps {warps} stages {stages}"] = lambda tuning=tuning: paged_decode(
                *shared, out, tuning=tuning
            )
    measured = {name: _try(run, lambda ms: round(moved / ms / 1e6, 1)) for name, run in ways.items()}
    ours = measured[form]
    return {
        "shape": f"{num_seqs} x {length} tokens, {heads}/{kv_heads} heads, D {head_size}, bfloat16",
        "form": form,
        "gb_s": measured,
        "of_copy": round(ours / copy, 3) if isinstance(ours, float) else ours,
    }


def _measure_prefill(
    num_seqs: int, length: int, heads: int, kv_heads: int, head_size: int, flex: bool, tune: bool
) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from minivllm_kernels.paged_attention import paged_attention
    from minivllm_kernels.tuning import ReadTuning

    data = _paged(num_seqs, length, heads, kv_heads, head_size, new=length)
    dense = data.pop("dense")
    out = torch.empty_like(data["q"])
    flops = 2 * 2 * num_seqs * heads * head_size * length * (length + 1) / 2

    def sdpa(backend: SDPBackend) -> None:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(*dense, is_causal=True, enable_gqa=True)

    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: paged_attention(**data, out=out),
        "sdpa flash": lambda: sdpa(SDPBackend.FLASH_ATTENTION),
        "sdpa cudnn": lambda: sdpa(SDPBackend.CUDNN_ATTENTION),
    }
    if flex:
        ways["flex"] = _flex(dense, causal=True)
    if tune:
        sizes = ((64, 64, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 5), (128, 128, 8, 3), (128, 32, 4, 3))
        for block_m, tile, warps, stages in sizes:
            tuning = ReadTuning(block_m=block_m, tile=tile, num_warps=warps, num_stages=stages, longest_first=True)
            ways[f"{block_m}x{tile} warps {warps} stages {stages}"] = lambda tuning=tuning: paged_attention(
                **data, out=out, tuning=tuning
            )
    measured = {name: _try(run, lambda ms: round(flops / ms / 1e9, 1)) for name, run in ways.items()}
    torchs = [value for name, value in measured.items() if name.startswith("sdpa") and isinstance(value, float)]
    comparable = torchs and isinstance(measured["ours"], float)
    return {
        "shape": f"{num_seqs} x {length} tokens, {heads}/{kv_heads} heads, D {head_size}, bfloat16, causal",
        "tflop_s": measured,
        "of_best_sdpa": round(measured["ours"] / max(torchs), 3) if comparable else None,
    }


def _flex(dense: tuple, causal: bool) -> Callable[[], Any]:
    """torch's flex attention, compiled at the first call."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    state: dict[str, Any] = {}

    def run() -> Any:
        if causal and "mask" not in state:
            length = dense[0].shape[2]
            state["mask"] = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cuda")
        return compiled(*dense, block_mask=state.get("mask"), enable_gqa=True)

    return run


def _try(run: Callable[[], Any], rate: Callable[[float], float]) -> float | str:
    """The rate, or why there is none: a backend of torch may refuse a shape."""
    try:
        return rate(_milliseconds(run))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"


def _count_compilations() -> int:
    """How often Triton compiles while batches of many sizes run, after the first of each kind: should be 0."""
    import torch
    import triton

    from minivllm_kernels.paged_attention import paged_attention
    from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
    from minivllm_kernels.reshape_and_cache import reshape_and_cache

    compiled: list[str] = []

    def step(rows: int, tokens: int) -> None:
        query, key, value = (torch.zeros(tokens, h, 64, device="cuda", dtype=torch.bfloat16) for h in (9, 3, 3))
        starts = torch.full((rows + 1,), tokens, dtype=torch.int32, device="cuda")
        starts[:rows] = torch.arange(rows)
        lens = torch.full((rows,), 16, dtype=torch.int32, device="cuda")
        reshape_and_cache(key, value, *caches, torch.zeros(tokens, dtype=torch.int64, device="cuda"))
        paged_attention(query, *caches, starts, lens, table[:rows], 0.125)
        paged_decode(query[:rows], *caches, table[:rows], lens, 0.125, query[:rows])
        paged_decode_split(query[:rows], *caches, table[:rows], lens, 0.125, query[:rows], 16)

    caches = torch.zeros(64, 2, 16, 3, 64, device="cuda", dtype=torch.bfloat16).unbind(1)
    table = torch.zeros(256, 32, dtype=torch.int32, device="cuda")
    step(3, 8)
    triton.knobs.runtime.jit_post_compile_hook = lambda *_, **details: compiled.append(str(details.get("repr")))
    try:
        for rows in (1, 2, 7, 16, 33, 64, 256):
            for extra in (0, 1, 15):
                step(rows, rows + extra)
    finally:
        triton.knobs.runtime.jit_post_compile_hook = None
    torch.cuda.synchronize()
    return len(compiled)


def speed_table(speed: dict[str, Any]) -> str:
    """For the terminal, with the targets.

    vLLM: none, see `main`
    """
    lines = [f"\ndevice copy: {speed['copy_gb_s']} GB/s (read and written)"]
    for kind, unit, share in (("decode", "gb_s", "of_copy"), ("prefill", "tflop_s", "of_best_sdpa")):
        lines.append(f"{kind}, {'GB/s of K and V' if kind == 'decode' else 'TFLOP/s'} (target {TARGETS[kind]:.0%})")
        for row in speed[kind]:
            value = row[share]
            lines.append(f"  {row['shape']}: {value:.1%}" if isinstance(value, float) else f"  {row['shape']}: {value}")
            lines += [f"    {name:36} {number}" for name, number in row[unit].items()]
    lines.append(f"compilations in steady state: {speed['new_compilations_in_steady_state']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
