"""The command `minivllm record`: write the traces of named scenarios, or compare them with those that are there."""

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from minivllm.paths import OUT_FOLDER


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which scenarios, and where to."""
    parser.add_argument("scenario", nargs="*", help="names; without one, the list of them")
    parser.add_argument("--all", action="store_true", help="every scenario")
    parser.add_argument("--check", action="store_true", help="compare with the traces that are there; write nothing")
    parser.add_argument("--out", type=Path, default=OUT_FOLDER, help=f"the folder (default: {OUT_FOLDER})")
    parser.add_argument("--model", help="a Hugging Face folder or hub id (default: SmolLM2-135M-Instruct)")


def run(arguments: argparse.Namespace) -> int:
    """Write the traces of named scenarios, or compare them with those that are there; status 1 if one differs."""
    from minivllm.attention.triton_mode import prepare_triton
    from minivllm.course.scenarios import SCENARIOS, get_scenario, run_scenario, write_table_of_traces

    names = list(SCENARIOS) if arguments.all else arguments.scenario
    if not names:
        width = max(map(len, SCENARIOS))
        for scenario in SCENARIOS.values():
            print(f"{scenario.name:<{width}}  {scenario.shows}")
        return 0
    if any(get_scenario(name).needs_triton for name in names):
        prepare_triton("triton", "cpu")  # before the first engine imports triton
    different = 0
    for place, name in enumerate(names, start=1):
        path = arguments.out / f"{get_scenario(name).name}.jsonl.gz"
        reason = _why_left_alone(SCENARIOS[name], path, arguments)
        if reason is not None:
            print(f"[{place}/{len(names)}] {name}: {reason}", flush=True)
        elif arguments.check:
            difference = _compare_with_new(path, get_scenario(name), arguments.model)
            different += difference is not None
            print(f"[{place}/{len(names)}] {name}: {difference or 'the same'}", flush=True)
        else:
            run_scenario(get_scenario(name), arguments.model, str(path))
            print(f"[{place}/{len(names)}] {path}", flush=True)
    if not arguments.check:
        write_table_of_traces(arguments.out)
    return 1 if different else 0


def _why_left_alone(scenario: Any, path: Path, arguments: argparse.Namespace) -> str | None:
    if scenario.once and (arguments.check or (arguments.all and path.exists())):
        return "recorded once, and kept"
    if scenario.needs_triton and arguments.all and importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed here"
    return None


def _compare_with_new(path: Path, scenario: Any, model: str | None) -> str | None:
    from minivllm.course.scenarios import run_scenario
    from minivllm.proof.rerecord import first_difference
    from minivllm.trace import load

    committed = load(path)
    with tempfile.TemporaryDirectory(prefix="minivllm-") as folder:
        again = Path(folder) / path.name
        run_scenario(scenario, model, str(again))
        return first_difference(committed, load(again))
