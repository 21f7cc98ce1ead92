"""`minivllm lockstep`: compare our engine with recordings of vLLM, make workloads, record them.

Owns: the arguments, progress, what is printed, the exit status.
Interface: add_arguments, run.
Must not know: what is compared, or how.
"""

import argparse
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from minivllm.errors import InputError, ModelError
from minivllm.proof.lockstep.batches import generate_batches
from minivllm.proof.lockstep.compare import BREAKDOWN, Difference, first_difference
from minivllm.proof.lockstep.engine import replay_engine
from minivllm.proof.lockstep.recording import LIST_KEYS, Recording, Workload, has_results, load, save, without_results
from minivllm.proof.lockstep.report import account
from minivllm.proof.lockstep.sampler import replay_sampler
from minivllm.proof.lockstep.scenarios import generate_scenarios
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps
from minivllm.proof.lockstep.workloads import generate_workloads

GENERATORS = {"scheduler": generate_workloads, "sampler": generate_batches, "engine": generate_scenarios}
DEFAULT_COUNT = {"scheduler": 4, "sampler": 100, "engine": 1}

EPILOG = """\
minivllm lockstep FILE                       compare with a recording
minivllm lockstep --generate 7 FILE          write random workloads, without results
minivllm lockstep --record OUT FILE          record the workloads of FILE (needs the real vLLM: make vllm-env)
minivllm lockstep --record OUT --generate 7  make workloads and record them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the subcommand."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a recording, .json or .json.gz")
    parser.add_argument("--only", metavar="NAME", help="only the workload or the family of this name")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N workloads")
    parser.add_argument("--model", metavar="FOLDER", help="engine level: another model than the default one")
    parser.add_argument("--generate", type=int, metavar="SEED", help="make random workloads")
    parser.add_argument("--level", choices=tuple(LIST_KEYS), default="scheduler", help="of --generate: %(default)s")
    parser.add_argument("--count", type=int, metavar="N", help="of --generate: workloads of each family")
    parser.add_argument("--record", type=Path, metavar="OUT", help="run the workloads on the real vLLM, write to OUT")


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status: 0 only when all is equal (or written). Raises InputError for the user's mistakes."""
    if arguments.generate is not None:
        recording = _generate(arguments)
        if arguments.record is None:
            path = arguments.file or Path(f"{arguments.level}-{arguments.generate}.json")
            save(path, recording)
            print(f"{len(recording.workloads)} {LIST_KEYS[recording.level]} without results: {path}")
            return 0
    elif arguments.file is None:
        raise InputError("lockstep needs a FILE. The recordings of vLLM 0.22.0 lie in traces/vllm-0.22.0/.")
    else:
        recording = load(arguments.file).select(arguments.only, arguments.limit)
    if arguments.record is not None:
        return _record(arguments, recording)
    return _compare(arguments, recording)


# ---------------------------------------------------------------------- compare


@dataclass(slots=True)
class Score:
    """Equal and all, of a family's workloads and of their steps (the rows, of sampler batches)."""

    equal_workloads: int = 0
    workloads: int = 0
    equal_steps: int = 0
    steps: int = 0


def _compare(arguments: argparse.Namespace, recording: Recording) -> int:
    scores: dict[str, Score] = defaultdict(Score)
    first: tuple[Workload, str, Difference] | None = None
    print(f"{arguments.file}: {recording.level} level, {recording.source}")
    rows = zip(recording.workloads, recording.names(), recording.families(), strict=True)
    for workload, name, family in tqdm(list(rows), desc="replaying", unit="workload", disable=None, leave=False):
        if not has_results(recording.level, workload):
            raise InputError(f"{name} in {arguments.file} has no results to compare with. Record it with --record.")
        difference = find_difference(recording.level, workload, arguments.model)
        score, steps = scores[family], _count_steps(recording.level, workload)
        score.workloads += 1
        score.steps += steps
        score.equal_workloads += difference is None
        score.equal_steps += steps if difference is None or difference.what == "output" else difference.index
        if first is None and difference is not None:
            first = workload, name, difference
    _print_scores(scores, "rows" if recording.level == "sampler" else "steps")
    if first is None:
        print("All equal.")
        return 0
    print()
    print(account(recording.level, *first, model=arguments.model))
    return 1


def find_difference(level: str, workload: Workload, model: str | None = None) -> Difference | None:
    """Replay a recorded workload and compare; None: equal. An engine that breaks down differs where it does so."""
    asked = without_results(level, workload)
    if level == "scheduler":
        steps: list[Any] = []
        try:
            for step in iterate_steps(asked, build_core(asked)):
                steps.append(step)
        except Exception as error:  # whatever went wrong is the finding
            found = first_difference(level, workload | {"steps": workload["steps"][: len(steps)]}, steps)
            return found or _breakdown("step", len(steps), error)
        return first_difference(level, workload, steps)
    replay: Callable[[Workload], Any] = replay_sampler if level == "sampler" else partial(replay_engine, model=model)
    try:
        replayed = replay(asked)
    except (InputError, ModelError):
        raise  # of this call, not of the engine
    except Exception as error:
        return _breakdown("row" if level == "sampler" else "step", 0, error)
    return first_difference(level, workload, replayed)


def _breakdown(what: str, index: int, error: Exception) -> Difference:
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error} (in {place.name}, {place.filename}:{place.lineno})"
    return Difference(what, index, BREAKDOWN, "", said, f"a {what}")


def _count_steps(level: str, workload: Workload) -> int:
    return len(workload["rows"] if level == "sampler" else workload["steps"])


def _print_scores(scores: dict[str, Score], unit: str) -> None:
    total = Score(*(sum(getattr(score, name) for score in scores.values()) for name in Score.__slots__))
    table = [*scores.items(), *([("all", total)] if len(scores) > 1 else [])]
    width = max(len("family"), *(len(family) for family, _ in table))
    print(f"{'family':<{width}}  {'workloads':>13}  {unit:>13}")
    for family, score in table:
        workloads, steps = f"{score.equal_workloads}/{score.workloads}", f"{score.equal_steps}/{score.steps}"
        print(f"{family:<{width}}  {workloads:>13}  {steps:>13}")


# ---------------------------------------------------------------------- generate and record


def _generate(arguments: argparse.Namespace) -> Recording:
    count = DEFAULT_COUNT[arguments.level] if arguments.count is None else arguments.count
    return GENERATORS[arguments.level](arguments.generate, count).select(arguments.only, arguments.limit)


def _record(arguments: argparse.Namespace, recording: Recording) -> int:
    """Run every workload on the real vLLM. What vLLM refuses is left out, and said."""
    from minivllm.proof.lockstep import record_vllm

    installed = record_vllm.check_environment()
    model = arguments.model
    if model is None:
        from minivllm.models.default_model import default_model_path

        model = str(default_model_path())
    record = getattr(record_vllm, f"record_{recording.level}")
    asked = recording.without_results()
    done = Recording(recording.level, f"vllm {installed}, recorded by minivllm lockstep --record")
    for workload, name in tqdm(list(zip(asked.workloads, asked.names(), strict=True)), "recording", disable=None):
        try:
            done.workloads.append(record(workload, model))
        except Exception as error:  # of any kind: it is vLLM's answer
            print(f"{name} left out: {type(error).__name__}: {error}")
            continue
        if recording.level == "engine":  # each one takes a while: keep what there is
            save(arguments.record, done)
    save(arguments.record, done)
    print(f"{len(done.workloads)} {LIST_KEYS[done.level]} of vllm {installed}: {arguments.record}")
    return 0 if len(done.workloads) == len(asked.workloads) else 1
