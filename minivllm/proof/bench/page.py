"""docs/performance.md, made of the results in traces/bench/. No number in it is typed.

Owns: the page's words. Interface: make_page.
Must not know: how anything was measured.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minivllm.proof.bench.result import STEP

Result = dict[str, Any]
INTRODUCTION = """# Performance

What this engine costs, beside its peers, on one machine in one sitting. Each side ran in a process of its own, with the
same job and the same threads; the sides took turns, and a figure is the median of the rounds. Behind a peer's figure
stands how many times better this engine is: more tokens a second, or less time or memory. The page is made of the
results in [traces/bench/](../traces/bench/README.md) by `minivllm bench page`; each result holds its command, its
rounds and the machine.
"""
FAST = """## What makes it fast

The engine that you read is the engine that runs. In some places it has a second version for a CPU beside the plain one.

- [`kernels/cpu_kernels.c`](../kernels/cpu_kernels.c): attention over the block table, and what lies between two matrix
  products, in C. It is compiled once, in about a second, into the cache folder. Attention reads K and V where they are:
  no gathering, no padding to the longest row.
- [`minivllm/models/fast_llama.py`](../minivllm/models/fast_llama.py): q, k and v as one product, gate and up as one; in
  bfloat16 with weights in oneDNN's own order.
- `sample_from_sums` in [`minivllm/sample/sampler.py`](../minivllm/sample/sampler.py): one random number a row in place
  of one a token of the vocabulary, where no request has a seed.
- For every key that attention of a decoding row looks at, it asks memory for a later one: the blocks of a row lie
  anywhere, so the processor can't guess.
- The threads of the core's process wait awake for some microseconds before they sleep (`ENVIRONMENT` in
  [`minivllm/engine/core_manager.py`](../minivllm/engine/core_manager.py)): a step has some two hundred short products
  and kernels, and waking a sleeping thread takes longer than some of them. Waiting awake for long, as OpenMP does if it
  is not told otherwise, would take the time from whoever else needs the processor.
- The core's process starts before the caller reads the model's files, and neither imports what it does not need.

`attention_backend="torch"` is the plain version of the first two. The notebooks show it, and the committed traces are
recorded with it. `auto` takes the fast one on a CPU that has a C compiler. Every trace names its backend.
"""


def make_page(folder: Path) -> str:
    """The page's text. A benchmark that has no result yet is named with its command."""
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    sections = [INTRODUCTION]
    if results:
        sections.append(_machine(next(iter(results.values()))))
    for name, (title, words, tell) in SECTIONS.items():
        result = results.get(name)
        if result is None:
            command = name.replace("-", " --peer ")
            sections.append(f"## {title}\n\nNot measured yet: `minivllm bench {command}`\n")
            continue
        told = tell(result, results)
        lines = [f"## {title}\n", words + "\n", _table(result), ""]
        sections.append("\n".join(lines + ([told, ""] if told else []) + [f"Command: `{result['command']}`\n"]))
        if name == "throughput":
            sections.append(_step(results.get("tracing")))
    sections.append(FAST)
    return "\n".join(sections)


def _machine(result: Result) -> str:
    facts = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    backend = facts.get("attention_backend", "fast")  # older results don't say: they were looked at
    slow = "" if backend == "fast" else f" Attention: {backend}."
    return (
        "## The machine\n\n"
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_gb']} GB; {', '.join(facts['instructions'])}. "
        f"Python {facts['python']}, {versions}. Threads: {result['settings']['threads']}.{slow}\n"
    )


def _table(result: Result) -> str:
    """Medians as a Markdown table."""
    medians, ratios = result["medians"], result["ratios"]
    names = dict.fromkeys(name for figures in medians.values() for name in figures if not name.startswith(STEP))
    lines = ["| | " + " | ".join(medians) + " |", "|---|" + "---:|" * len(medians)]
    for name in names:
        cells = []
        for side, figures in medians.items():
            ratio = ratios.get(side, {}).get(name)
            cells.append("" if name not in figures else _number(figures[name]) + (f" ({ratio:.2f} ×)" if ratio else ""))
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _step(tracing: Result | None) -> str:
    """What a step of the batch is made of."""
    figures = {} if tracing is None else tracing["medians"].get("detail 0", {})
    parts = {name[len(STEP) :].removesuffix("_ms"): value for name, value in figures.items() if name.startswith(STEP)}
    title = "## What a step costs\n"
    if not parts:
        return f"{title}\nNot measured yet: `minivllm bench tracing`\n"
    whole = parts.pop("whole")
    ordered = sorted(parts.items(), key=lambda part: part[0] != "the rest" and part[1], reverse=True)
    rows = [f"| {name} | {_number(value)} | {value / whole:.1%} |" for name, value in ordered]
    return "\n".join(
        [
            title,
            "The mean step of the batch, prompts included, from the events of its trace.\n",
            "| | ms | share |",
            "|---|---:|---:|",
            *rows,
            f"| a step | {_number(whole)} | |",
            "",
            f"Command: `{tracing['command']}`\n",
        ]
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


# ---------------------------------------------------------------------- what the figures say


def _throughput(result: Result, results: dict[str, Result]) -> str:
    mine, batch = result["medians"][result["own"]], result["settings"].get("batch")
    kernels = results.get("kernels")
    told = (
        f"{batch['requests']} requests of {batch['prompt_tokens']:,} prompt tokens together, and "
        f"{batch['output_tokens']:,} tokens of output. Together they come "
        f"{mine['batch_output_tokens_per_s'] / mine['alone_output_tokens_per_s']:.1f} times as fast as one alone: that "
        "is what continuous batching pays."
    )
    if kernels is None:
        return told
    limit = kernels["medians"][kernels["own"]]
    flop = 2 * limit["layer_parameters"] * (batch["prompt_tokens"] + batch["output_tokens"])
    flop += 2 * limit["head_parameters"] * batch["output_tokens"]
    floor = flop / limit["gemm_gflop_per_s"] / 1e9
    return (
        f"{told} The products of all these tokens, {flop / 1e12:.2f} TFLOP, take {floor:.1f} s at the rate of a large "
        f"product on this machine; the batch took {mine['batch_s']:.1f} s, {floor / mine['batch_s']:.0%} of that rate. "
        "The rest is products with few rows, attention, which reads K and V from memory, and the sampler."
    )


def _beside_transformers(result: Result, results: dict[str, Result]) -> str:
    peers = {side: figures for side, figures in result["medians"].items() if side != result["own"]}
    better = {
        part: max(peers, key=lambda side: peers[side][f"{part}_output_tokens_per_s"]) for part in ("alone", "batch")
    }
    types = {part: side.split()[-1] for part, side in better.items()}
    which = " alone, ".join(dict.fromkeys(types.values())) + (" in a batch" if len(set(types.values())) > 1 else "")
    return (
        "transformers fills every prompt up to the longest one, and runs until the longest answer is complete. "
        f"Its better number type here: {which}."
    )


def _latency(result: Result, results: dict[str, Result]) -> str:
    mine = result["medians"][result["own"]]
    steps = {name.removesuffix(": step_ms"): value for name, value in mine.items() if name.endswith(": step_ms")}
    shapes = list(steps)
    first, last = shapes[0], [shape for shape in shapes if shape.endswith(shapes[0].rpartition(",")[2])][-1]
    told = (
        f"A step of {last} takes {steps[last] / steps[first]:.1f} times as long as one of {first}: the weights are "
        f"read once for all rows. A step of {shapes[-1]} takes {steps[shapes[-1]] / steps[first]:.2f} times as long: "
        "it reads more K and V."
    )
    kernels = results.get("kernels")
    if kernels is None:
        return told
    limit = kernels["medians"][kernels["own"]]
    num_bytes = 2 * (limit["layer_parameters"] + limit["head_parameters"])
    floor = num_bytes / limit["read_gb_per_s"] / 1e6
    return (
        f"{told} One request alone has to read all weights for every token, {num_bytes / 1e6:.0f} MB: {floor:.1f} ms "
        f"at the bandwidth measured below, {floor / steps[first]:.0%} of the step. The rest is attention, the "
        "sampler, and the calls between the products."
    )


def _scheduler(result: Result, results: dict[str, Result]) -> str:
    mine = result["medians"][result["own"]]
    running, waiting = (
        {int(name.partition("_")[0]): value for name, value in mine.items() if name.endswith(f"_{kind}_us")}
        for kind in ("running", "waiting")
    )
    few, many, crowd = min(running), max(running), max(waiting)
    return (
        "Microseconds of the processor for schedule and update_from_output together, without the model. From "
        f"{few} to {many} running requests a step grows from {running[few]:.0f} to {running[many]:.0f} µs: "
        f"{running[many] / many:.1f} µs for each. Beside {result['settings']['beside_waiting']} running ones, "
        f"{crowd:,} that wait for a seat make a step {waiting[crowd] / waiting[min(waiting)]:.2f} times as long."
    )


def _tracing(result: Result, results: dict[str, Result]) -> str:
    own = result["own"]
    costs = []
    for side in result["medians"]:
        if side != own:
            cost = statistics.median(one[side]["batch_s"] / one[own]["batch_s"] - 1 for one in result["rounds"])
            costs.append(f"{side} costs {cost:+.1%} of the batch's time")
    return (
        f"{'; '.join(costs)}. The engines lived side by side and took turns, {result['settings']['turns']} times in "
        "each round. Off costs nothing by structure: no method is replaced, and no recorder exists."
    )


def _startup(result: Result, results: dict[str, Result]) -> str:
    return (
        "Seconds from the start of a process to its first output: the first token, or for the reader of traces its "
        "first line. The files lay in the system's cache, for every side."
    )


def _memory(result: Result, results: dict[str, Result]) -> str:
    medians = result["medians"]
    growth = {name: value for name, value in medians["growth"].items() if name.startswith("resident")}
    pools = [figures for side, figures in medians.items() if side.startswith("pool")]
    told = "Peak memory of all processes of a side together; a page that they share counts once."
    if growth:
        (first, small), *_, (last, large) = growth.items()
        told += (
            f" From {first.rpartition('_')[2]} to {last.rpartition('_')[2]} requests the resident size of one engine "
            f"went from {small:.0f} to {large:.0f} MB."
        )
    names = list(pools[0])
    ratio = pools[1][names[0]] / pools[0][names[0]]
    return f"{told} A step of the scheduler over a pool of 100k blocks takes {ratio:.2f} times that over 2k blocks."


def _kernels(result: Result, results: dict[str, Result]) -> str:
    mine = result["medians"][result["own"]]
    attention = [value for name, value in mine.items() if name.startswith("attention_") and name.endswith("_us")]
    fast, plain = attention[0], attention[-1]
    return (
        "Copy bandwidth counts bytes read and bytes written. A layer's products with one row are bound by reading the "
        "weights; with hundreds of rows they are bound by arithmetic. Attention of decoding rows is bound by reading K "
        f"and V at any number of rows; gathering and padding in torch takes {plain / fast:.1f} times the time of the C "
        "kernel."
    )


SECTIONS: dict[str, tuple[str, str, Callable[[Result, dict[str, Result]], str]]] = {
    "throughput": ("Throughput", "Tokens of output a second, of one request alone and of many together.", _throughput),
    "throughput-transformers": (
        "Beside transformers",
        "The same job as a padded batch of transformers' own `generate`.",
        _beside_transformers,
    ),
    "latency": ("Latency", "Milliseconds to the first token and of a step, by batch and by context.", _latency),
    "scheduler": ("The scheduler", "What a step costs before the model has done anything.", _scheduler),
    "tracing": ("Tracing", "The workload of the throughput, without a trace and with one.", _tracing),
    "startup": ("Start-up", "From nothing to the first token.", _startup),
    "memory": ("Memory", "Peak, growth, and the size of the pool.", _memory),
    "kernels": ("This machine's limits", "What memory and cores can do, and what the model's parts get.", _kernels),
}
