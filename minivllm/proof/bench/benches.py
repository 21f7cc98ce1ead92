"""The benchmarks: the sides of each, and which figures are made of what the sides print.

Owns: nothing while nothing runs. Interface: run_NAME for each benchmark; importing this is cheap.
Must not know: how a side is run (sides.py), or how a job is done (own_*.py, peer_*.py).
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minivllm.errors import InputError

OWN = "minivllm"
PEER_DTYPES = ("bfloat16", "float32")  # transformers is faster now in one, now in the other
TRACED_TURNS, TRACED_BLOCKS = 6, 1500
QUICK_SCHEDULER = {
    "running": [1, 4],
    "waiting": [0, 20],
    "beside_waiting": 4,
    "steps": 5,
    "prompt_len": 20,
    "output_len": 60,
    "num_blocks": 100,
}
Figures = dict[str, float]


def run_throughput(arguments: argparse.Namespace) -> int:
    """vLLM: benchmarks/throughput.py::main"""
    from minivllm.proof.bench.jobs import throughput_job

    job = _model_job(arguments, throughput_job())
    sides = [_own(arguments, OWN, job), *_peers(arguments, job, PEER_DTYPES)]

    def figures(side: str, found: Figures) -> Figures:
        return {
            f"{part['name']}_output_tokens_per_s": sum(part["max_tokens"]) / found[part["name"]]
            for part in job["parts"]
        } | {"batch_s": found["batch"], "cpu_s": found["cpu_s"]}

    return _measure(arguments, "throughput", sides, figures, job)


def run_latency(arguments: argparse.Namespace) -> int:
    """vLLM: benchmarks/latency.py::main"""
    from minivllm.proof.bench.jobs import latency_job

    job = _model_job(arguments, latency_job())
    sides = [_own(arguments, OWN, job), *_peers(arguments, job, PEER_DTYPES)]
    steps = [part["max_tokens"][0] for part in job["parts"]]

    def figures(side: str, found: Figures) -> Figures:
        pairs = zip(job["parts"][::2], job["parts"][1::2], strict=True)
        made = {}
        for one, many in pairs:
            shape = one["name"].rpartition(",")[0]
            made[f"{shape}: first_token_ms"] = found[one["name"]] * 1e3
            made[f"{shape}: step_ms"] = (found[many["name"]] - found[one["name"]]) / (max(steps) - min(steps)) * 1e3
        return made

    return _measure(arguments, "latency", sides, figures, job)


def run_scheduler(arguments: argparse.Namespace) -> int:
    from minivllm.proof.bench.own_scheduler import SETTINGS
    from minivllm.proof.bench.sides import Side, own_side

    settings = SETTINGS | (QUICK_SCHEDULER if arguments.quick else {})
    sides = [own_side(OWN, "own_scheduler", settings, threads=1)]
    if "vllm" in arguments.peer:
        script = str(Path(__file__).with_name("peer_vllm_scheduler.py"))
        command = [_peer_python(arguments), script, _model_folder(arguments), "{job}"]
        sides.append(Side("vllm", command, settings))

    def figures(side: str, found: Figures) -> Figures:
        return {name: value for name, value in found.items() if name.endswith("_us")}

    return _measure(arguments, "scheduler", sides, figures, settings)


def run_tracing(arguments: argparse.Namespace) -> int:
    from minivllm.proof.bench.jobs import throughput_job
    from minivllm.proof.bench.sides import own_side

    job = _model_job(arguments, throughput_job())
    job["turns"] = 1 if arguments.quick else TRACED_TURNS
    # a pool that is small enough to be used again and again
    job["sides"] = {OWN: {"num_gpu_blocks_override": TRACED_BLOCKS}}
    for detail in (0, 1):
        trace = {"trace": f"detail-{detail}.jsonl", "trace_detail": detail}
        job["sides"][f"detail {detail}"] = job["sides"][OWN] | trace
    side = own_side(OWN, "own_tracing", job, arguments.threads)

    def split(measured: dict[str, Figures]) -> dict[str, Figures]:
        return {name: measured[OWN][name] for name in job["sides"]}

    return _measure(arguments, "tracing", [side], lambda side, found: found, job, split)


def run_startup(arguments: argparse.Namespace) -> int:
    """vLLM: benchmarks/startup.py::main"""
    from minivllm.proof.bench.jobs import SINGLE_PROMPT, tiny
    from minivllm.proof.bench.sides import Side, own_environment

    part = {"name": "first", "prompts": [SINGLE_PROMPT], "max_tokens": [1], "temperature": 0.0}
    job = _model_job(arguments, {"dtype": "bfloat16", "max_model_len": 2048, "parts": [part]}, quick=tiny)
    own = own_environment(arguments.threads)
    generate = [sys.executable, "-m", "minivllm", "generate", "Hello", "--raw", "--max-tokens", "1"]
    generate += ["--model", job["model"]]
    reader = [sys.executable, "-c", "import minivllm.trace, sys; print('torch' in sys.modules)"]
    sides = [
        Side(OWN, generate, None, own, prints_json=False),
        Side("import minivllm.trace", reader, None, own, prints_json=False, compared=False),
        *_peers(arguments, job, PEER_DTYPES[:1]),
    ]

    def figures(side: str, found: Figures) -> Figures:
        return {"first_token_s": found["first_output_s"], "cpu_s": found["cpu_s"]}

    return _measure(arguments, "startup", sides, figures, job)


def run_kernels(arguments: argparse.Namespace) -> int:
    from minivllm.proof.bench.own_kernels import COPY_BYTES
    from minivllm.proof.bench.sides import own_side

    job = {
        "model": _model_folder(arguments),
        "rows": [1, 16, 64, 512],
        "times": 15,
        "gemm_size": 2048,
        "copy_bytes": COPY_BYTES,
        "attention_rows": 64,
    }
    if arguments.quick:
        job |= {"rows": [1, 4], "times": 2, "gemm_size": 64, "copy_bytes": 1 << 16, "attention_rows": 2}
    side = own_side(OWN, "own_kernels", job, arguments.threads)

    def figures(side: str, found: Figures) -> Figures:
        return {name: value for name, value in found.items() if name.endswith(("_us", "_per_s", "_parameters"))}

    return _measure(arguments, "kernels", [side], figures, job)


def run_memory(arguments: argparse.Namespace) -> int:
    from minivllm.proof.bench.jobs import memory_job
    from minivllm.proof.bench.own_scheduler import SETTINGS
    from minivllm.proof.bench.sides import own_side

    job = _model_job(arguments, memory_job())
    sides = [_own(arguments, OWN, job), *_peers(arguments, job, PEER_DTYPES[:1])]
    for side in sides:
        side.watch_memory = True
    growth = {"model": job["model"], "max_model_len": 64}
    growth["checkpoints"] = [max(1, arguments.requests * tenths // 10) for tenths in (2, 4, 6, 8, 10)]
    growing = own_side("growth", "own_memory", growth, arguments.threads)
    scheduler = SETTINGS | (QUICK_SCHEDULER if arguments.quick else {})
    scheduler |= {"running": [4] if arguments.quick else [64], "waiting": []}
    pools = {"pool of 2k blocks": 2_000, "pool of 100k blocks": 100_000}
    alone = [growing]
    alone += [own_side(name, "own_scheduler", {**scheduler, "num_blocks": blocks}, 1) for name, blocks in pools.items()]
    for side in alone:
        side.compared = False
    sides += alone

    def figures(side: str, found: Figures) -> Figures:
        if side == "growth":
            return {name: value for name, value in found.items() if "_after_" in name}
        if side in pools:
            return {name: value for name, value in found.items() if name.endswith("_us")}
        return {name: found[name] for name in ("peak_mb",) if name in found}

    return _measure(arguments, "memory", sides, figures, job)


def run_page(arguments: argparse.Namespace) -> int:
    """Write docs/performance.md anew, or say that it is not fresh."""
    from minivllm.proof.bench.page import make_page

    text = make_page(arguments.results)
    if arguments.check:
        fresh = arguments.page.is_file() and arguments.page.read_text(encoding="utf-8") == text
        print(f"{arguments.page} is {'fresh' if fresh else 'not fresh: minivllm bench page'}")
        return 0 if fresh else 1
    arguments.page.write_text(text, encoding="utf-8")
    print(arguments.page)
    return 0


# ---------------------------------------------------------------------- what they share


def _measure(
    arguments: argparse.Namespace,
    bench: str,
    sides: list[Any],
    figures: Callable[[str, Figures], Figures],
    job: dict[str, Any],
    split: Callable[[dict[str, Figures]], dict[str, Figures]] | None = None,
) -> int:
    """Run the rounds, print the table, write the record. split: makes several sides of what one process measured."""
    from minivllm.proof.bench.result import make_result, table
    from minivllm.proof.bench.sides import run_rounds

    if arguments.rounds < 1 or arguments.threads < 1:
        raise InputError(f"--rounds {arguments.rounds} and --threads {arguments.threads} must be at least 1.")
    measured = run_rounds(sides, arguments.rounds, progress=lambda line: print(line, file=sys.stderr, flush=True))
    others = [side.name for side in sides[1:] if side.compared]
    if split is not None:
        measured = [split(one) for one in measured]
        others = list(measured[0])[1:]
    rounds = [
        {side: {name: round(value, 4) for name, value in figures(side, found).items()} for side, found in one.items()}
        for one in measured
    ]
    settings = {"threads": arguments.threads, "rounds": arguments.rounds, "quick": arguments.quick}
    settings |= {name: value for name, value in job.items() if name not in ("parts", "model", "sides")}
    for part in job.get("parts", ()):
        if part["name"] == "batch":
            settings["batch"] = {
                "requests": len(part["prompts"]),
                "prompt_tokens": sum(map(len, part["prompts"])),
                "output_tokens": sum(part["max_tokens"]),
            }
    result = make_result(bench, _command(arguments, bench), settings, rounds, sides[0].name, others)
    print(table(result))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
        print(f"The result: {arguments.out}")
    return 0


def _command(arguments: argparse.Namespace, bench: str) -> str:
    """The command to run it again, without what belongs to one machine."""
    words = ["minivllm", "bench", bench, "--rounds", str(arguments.rounds), "--threads", str(arguments.threads)]
    for peer in arguments.peer:
        words += ["--peer", peer]
    if "vllm" in arguments.peer:
        words += ["--peer-python", "PATH"]
    return shlex.join(words + (["--quick"] if arguments.quick else []))


def _model_folder(arguments: argparse.Namespace) -> str:
    from minivllm.models.model_config import resolve_model_path

    return str(resolve_model_path(arguments.model).absolute())


def _model_job(
    arguments: argparse.Namespace, job: dict[str, Any], quick: Callable[..., dict[str, Any]] | None = None
) -> dict[str, Any]:
    from minivllm.models.model_config import load_model_config
    from minivllm.proof.bench.jobs import tiny

    folder = _model_folder(arguments)
    if arguments.quick:
        job = (quick or tiny)(job, load_model_config(folder).vocab_size)
    return {**job, "model": folder}


def _own(arguments: argparse.Namespace, name: str, job: dict[str, Any]) -> Any:
    from minivllm.proof.bench.sides import own_side

    return own_side(name, "own_generate", job, arguments.threads)


def _peers(arguments: argparse.Namespace, job: dict[str, Any], dtypes: tuple[str, ...]) -> list[Any]:
    """The sides of the peers that were asked for; transformers once for each dtype."""
    from minivllm.proof.bench.sides import python_side

    sides = []
    if "vllm" in arguments.peer:
        python = _peer_python(arguments)
        sides.append(python_side("vllm", python, "peer_vllm_generate.py", job, arguments.threads))
    if "transformers" in arguments.peer:
        for dtype in dtypes:
            name = "transformers" if len(dtypes) == 1 else f"transformers {dtype}"
            its_job = {**job, "dtype": dtype}
            sides.append(python_side(name, sys.executable, "peer_transformers_generate.py", its_job, arguments.threads))
    return sides


def _peer_python(arguments: argparse.Namespace) -> str:
    if arguments.peer_python is None:
        raise InputError("--peer vllm needs --peer-python PATH, a Python that has vllm 0.22.0 for CPU: make vllm-env.")
    return arguments.peer_python
