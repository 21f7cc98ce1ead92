"""Benchmarks: `minivllm bench throughput | latency | scheduler | tracing | startup | kernels | memory | gpu`.

A benchmark has sides: this engine, and peers where they are asked for (`--peer transformers`, `--peer vllm
--peer-python PATH`). Each side runs in a process of its own, with the same job and the same threads; the sides take
turns, round by round, so that what else the machine does hits all of them. A result is the median over the rounds.

Owns: the jobs, how sides are run and watched, the results as JSON, and docs/performance.md made of them.
Must not know: how any engine does it.

Modules: commands (arguments), benches (sides and figures of each), jobs (what is run), sides (run and watch), result
(medians, ratios, table), page (the docs), machine (facts). own_*.py and peer_*.py are what the sides run; a
peer's file imports nothing of ours, since the peer's Python need not have it.

vLLM: benchmarks/throughput.py::main (role)
"""
