"""assemble: the one place where a core is put together, of names or of symbols, with any executor."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.core.scheduler import Scheduler
from minivllm.engine.assemble import assemble
from minivllm.errors import InputError
from minivllm.proof.lockstep import build_core, iterate_steps
from minivllm.proof.lockstep.scheduler import PoisonedScheduler, make_config
from minivllm.proof.lockstep.workloads import generate_workloads
from minivllm.worker.recorded_executor import RecordedExecutor

ROOT = Path(__file__).parents[2]
PIECES = {"Scheduler", "KVCacheManager", "EngineCore", "EngineCoreProc"}
# vLLM's own Scheduler, with our step around it
VLLM = {"minivllm/proof/lockstep/record_vllm.py", "minivllm/proof/bench/peer_vllm_scheduler.py"}
WITHOUT_TORCH = """
import sys
from minivllm.proof.lockstep import build_core, iterate_steps
from minivllm.proof.lockstep.workloads import generate_workloads
workload = generate_workloads(5, 1).workloads[0]
print(len(list(iterate_steps(workload, build_core(workload)))) > 1, {"torch", "zmq"} & set(sys.modules))
"""


def test_nobody_else_makes_a_scheduler_or_a_core() -> None:
    made = set()
    for folder in ("minivllm", "notebooks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PIECES:
                    made.add(path.relative_to(ROOT).as_posix())
    assert made == VLLM


def test_a_core_with_recorded_tokens_needs_no_torch() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=120)
    assert said.stdout.split(maxsplit=1) == ["True", "set()\n"], said.stderr


def test_a_part_is_a_name_or_the_symbol_itself() -> None:
    workload = generate_workloads(5, 1).workloads[0]
    named = {"scheduler": "minivllm.proof.lockstep.scheduler:PoisonedScheduler"}
    cores = [build_core(workload, parts) for parts in (named, {"scheduler": PoisonedScheduler})]
    assert [type(core.scheduler) for core in cores] == [PoisonedScheduler] * 2
    first, second = (list(iterate_steps(workload, core)) for core in cores)
    assert first == second


def test_a_symbol_with_other_arguments_is_refused() -> None:
    class Other(Scheduler):
        def __init__(self, config: object) -> None:
            """Takes no cache."""

    config = make_config(generate_workloads(5, 1).workloads[0]["config"])
    with pytest.raises(InputError, match=r"takes \(config\), but the engine hands it"):
        assemble(config, RecordedExecutor({}), {"scheduler": Other})
