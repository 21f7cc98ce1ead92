"""Lab 03: what is asked about the token budget, and what is expected."""

from minivllm.course.grader import evidence, words
from minivllm.course.grader.judge import Ask, Check, Outcome

# threshold (0: none), missing tokens, budget
CASES = (
    *((0, missing, budget) for missing in (1, 5, 16) for budget in (1, 5, 100)),
    *((4, missing, budget) for missing in (1, 3, 4, 5, 7, 8, 9) for budget in (2, 100)),
    (16, 100, 16),
)
FAMILIES = ("chunked", "prefix", "preempt", "priority", "nocache", "nochunk", "stops", "mixed", "hard")


def check_numbers(ask: Ask) -> Outcome:
    """Threshold, then budget, for 24 combinations."""
    outcome = Outcome()
    inputs = [{"threshold": threshold, "missing": missing, "budget": budget} for threshold, missing, budget in CASES]
    for asked, answer in zip(inputs, ask.student_many("observe:num_new_tokens", inputs), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        limit = f"threshold {asked['threshold']}" if asked["threshold"] else "no threshold"
        failure = evidence.unit_failure(
            answer,
            ask.engine("observe:num_new_tokens", asked),
            case="one request",
            told=f"{asked['missing']} tokens are missing, {asked['budget']} are left of the budget, {limit}",
            size=1,
            tell=lambda expected, got: ("", words.count(expected, "token"), str(got)),
        )
        outcome.add(answer.mark, failure)
    return outcome


LADDER = evidence.ladder_check()

CHECKS = {
    "3.1": (Check("numbers", "24 combinations", 10, check_numbers),),
    "3.2": (
        Check("ladder", "smallest workloads of vLLM", 8, LADDER),
        Check("families", "recorded decisions", 7, evidence.recorded_check("chunked", "hard")),
    ),
    "3.3": (
        Check("ladder", "smallest workloads of vLLM", 8, LADDER),
        Check("families", "recorded decisions", 12, evidence.recorded_check("nochunk", "prefix", "nocache", "stops")),
    ),
    "3.4": (
        Check("ladder", "smallest workloads of vLLM", 1, LADDER),
        Check("families", "recorded decisions", 9, evidence.recorded_check(*FAMILIES)),
        Check("invariants", "rules on every step", 5, evidence.invariant_check("hard")),
    ),
}
