"""Lockstep: the same decisions as the real vLLM 0.22.0, step by step, against recordings of it.

    scheduler, sampler, engine   replay a workload of that level, in the recorded format
    recording                    the files; compare, report: where ours and theirs part, and in what state
    workloads, batches, scenarios   random workloads, made from a seed
    record_vllm                  asks the real vLLM; the only module that imports it
    command                      `minivllm lockstep`

A replay takes what was recorded as input and gives what was recorded as output: key names, order of lists, types.
traces/vllm-0.22.0/README.md describes the format.
"""

from minivllm.proof.lockstep.command import add_arguments, run
from minivllm.proof.lockstep.engine import replay_engine
from minivllm.proof.lockstep.sampler import replay_sampler
from minivllm.proof.lockstep.scheduler import build_core, iterate_steps, replay_scheduler

__all__ = [
    "add_arguments",
    "build_core",
    "iterate_steps",
    "replay_engine",
    "replay_sampler",
    "replay_scheduler",
    "run",
]
