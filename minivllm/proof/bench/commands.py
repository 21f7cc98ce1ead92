"""The arguments of `minivllm bench …`.

Owns: which options each benchmark has.
Interface: add_NAME_arguments and run_NAME for each benchmark; importing this is cheap.
Must not know: what a benchmark runs (benches.py).
"""

import argparse
import os
from pathlib import Path

from minivllm.proof.bench.benches import (
    run_kernels,
    run_latency,
    run_memory,
    run_page,
    run_scheduler,
    run_startup,
    run_throughput,
    run_tracing,
)

__all__ = [
    "run_kernels",
    "run_latency",
    "run_memory",
    "run_page",
    "run_scheduler",
    "run_startup",
    "run_throughput",
    "run_tracing",
]

PEERS = ("transformers", "vllm")


def add_throughput_arguments(parser: argparse.ArgumentParser) -> None:
    """vLLM: benchmarks/throughput.py::add_cli_args"""
    _add_common(parser, rounds=3, peers=PEERS)


def add_latency_arguments(parser: argparse.ArgumentParser) -> None:
    """vLLM: benchmarks/latency.py::add_cli_args"""
    _add_common(parser, rounds=3, peers=PEERS)


def add_scheduler_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, rounds=5, peers=("vllm",))


def add_tracing_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, rounds=5)


def add_startup_arguments(parser: argparse.ArgumentParser) -> None:
    """vLLM: benchmarks/startup.py::add_cli_args"""
    _add_common(parser, rounds=5, peers=PEERS)


def add_kernels_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, rounds=3)


def add_memory_arguments(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, rounds=1, peers=PEERS)
    parser.add_argument("--requests", type=int, default=2000, metavar="N", help="for growth (default: %(default)s)")


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("traces/bench"), metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"), metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the page is not fresh")


def _add_common(parser: argparse.ArgumentParser, rounds: int, peers: tuple[str, ...] = ()) -> None:
    parser.add_argument("--model", help="a Hugging Face folder or hub id (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=_cores(), metavar="N", help="default: all cores, %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--quick", action="store_true", help="a small workload, to see that it runs")
    parser.set_defaults(peer=[], peer_python=None)
    if peers:
        parser.add_argument("--peer", choices=peers, action="append", default=[], help="run it beside; may be repeated")
    if "vllm" in peers:
        parser.add_argument("--peer-python", metavar="PATH", help="a Python that has vllm 0.22.0 for CPU")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
