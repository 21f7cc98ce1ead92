"""Lab 06: what is asked about preemption, and what is expected."""

from minivllm.labs import evidence
from minivllm.labs.judge import Check

LADDER = evidence.ladder_check()

CHECKS = {
    "6.1": (Check("ladder", "smallest workloads of vLLM", 10, LADDER),),
    "6.2": (
        Check("ladder", "smallest workloads of vLLM", 10, LADDER),
        Check("families", "recorded decisions", 5, evidence.recorded_check("preempt")),
    ),
    "6.3": (
        Check("ladder", "smallest workloads of vLLM", 12, LADDER),
        Check("families", "recorded decisions", 8, evidence.recorded_check("preempt", "priority")),
    ),
    "6.4": (
        Check("families", "recorded decisions", 10, evidence.recorded_check("preempt", "priority", "nocache", "hard")),
        Check("invariants", "rules on every step", 5, evidence.invariant_check("preempt", "hard")),
    ),
}
