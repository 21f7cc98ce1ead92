"""Lab 02: what is asked about the ends of requests, and what is expected."""

from itertools import product
from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Outcome
from minivllm.course.grader.words import count, tell_list, tell_state

# what is sampled at once: 10 is an ordinary token, 2 the end of text, 7 a stop id
NEW = (
    *([token] for token in (10, 2, 7)),
    *([first, second] for first in (10, 2, 7) for second in (10, 2, 7)),
    *([10, 10, 10], [10, 10, 2], [10, 2, 10], [2, 10, 10], [10, 7, 10], [7, 2, 10], [7, 10, 10], [10, 10, 7]),
    *([10, 10, 10, 10], [10, 10, 10, 2], [10, 10, 2, 10], [10, 2, 10, 10], [2, 10, 10, 10]),
    *([10, 7, 10, 2], [7, 7, 7, 7], [10, 10, 7, 10], [7, 10, 10, 10], [10, 10, 10, 7]),
)
RULES = (
    {"max_tokens": 5},
    {"max_tokens": 1},
    {"max_tokens": 2},
    {"max_tokens": 5, "stop_token_ids": [7]},
    {"max_tokens": 5, "stop_token_ids": [2, 7]},
    {"max_tokens": 5, "ignore_eos": True},
    {"max_tokens": 5, "ignore_eos": True, "stop_token_ids": [2]},
    {"max_tokens": 5, "min_tokens": 1},
    {"max_tokens": 5, "min_tokens": 2, "stop_token_ids": [7]},
    {"max_tokens": 5, "max_model_len": 3},
)
ACTS: tuple[list[Any], ...] = (
    ["plan", "update"],
    ["plan", "update", ["r0"]],
    [["r0"]],
    [["nobody"]],
    [["r0", "r0"]],
    [["r1"], ["r1"]],
    ["plan", ["r0"], "update"],
    ["plan", ["r0", "r2"], "update", "plan"],
    ["plan", ["r0", "nobody", "r1"], "update"],
    ["plan", "update", "plan", ["r1"], "update"],
    ["plan", "update", ["r0", "r1", "r2"]],
    ["plan", "update", "plan", "update", ["r0"], "plan"],
    ["plan", "update", ["r2"], "plan", "update", "plan", "update"],
    ["plan", ["r0"], ["r0"], "update", "plan", "update", ["r1", "r2"], "plan"],
)


def check_tokens_at_once(ask: Ask) -> Outcome:
    """U1: lists of one to four tokens, under ten sets of rules."""
    outcome = Outcome()
    inputs = [{"max_model_len": 8, **rules, "new": new} for new, rules in product(NEW, RULES)]
    inputs.sort(key=lambda asked: len(asked["new"]))
    for asked, answer in zip(inputs, ask.student_many("observe:update_with_output", inputs), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        rules = ", ".join(f"{name} {value}" for name, value in asked.items() if name != "new")
        failure = evidence.unit_failure(
            answer,
            ask.engine("observe:update_with_output", asked),
            case="U1",
            told=f"prompt [10], {rules}; sampled at once: {tell_list(asked['new'])} (2 is the end of text)",
            size=len(asked["new"]) + len(asked),
            tell=lambda expected, got: ("", _tell_end(expected), _tell_end(got)),
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_end(end: dict[str, Any]) -> str:
    counted = f"counted {tell_list(end['counted'])}, outputs of the request {tell_list(end['outputs'])}"
    if not end["ended"]:
        return f"{counted}, goes on"
    return f"{counted}, ends ({end['status']}, stop_reason {end['stop_reason']})"


def check_aborts(ask: Ask) -> Outcome:
    """U2: aborts before, between and after planning and update; twice; of nobody."""
    outcome = Outcome()
    inputs = [{"acts": acts} for acts in ACTS]
    for asked, answer in zip(inputs, ask.student_many("observe:abort_program", inputs), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        acts = asked["acts"]
        expected = ask.engine("observe:abort_program", asked)
        failure = evidence.unit_failure(
            answer,
            expected,
            case=f"U2, {count(len(acts), 'act')}",
            told=f"3 requests with prompts of 2, 3 and 1 tokens, 2 seats, budget 3: {', '.join(map(_tell_act, acts))}",
            size=3 * len(acts),
            tell=_tell_acts,
        )
        if failure is not None and failure.kind in ("crash", "hang") and len(answer.seen) < len(acts):
            failure.where = f"act {len(answer.seen)}, {_tell_act(acts[len(answer.seen)])}"
            failure.expected = _tell_state_of(expected[len(answer.seen)])
        outcome.add(answer.mark, failure)
    return outcome


def _tell_act(act: Any) -> str:
    return act if isinstance(act, str) else f"abort {' and '.join(act)}"


def _tell_acts(expected: list[Any], got: list[Any]) -> tuple[str, str, str]:
    for index, (wanted, found) in enumerate(zip(expected, got, strict=False)):
        if wanted != found:
            if wanted[0] != found[0]:
                return f"act {index}", f"returns {wanted[0]}", f"returns {found[0]}"
            return f"after act {index}", _tell_state_of(wanted), _tell_state_of(found)
    return "", count(len(expected), "act"), count(len(got), "act")


def _tell_state_of(entry: list[Any]) -> str:
    return f"{tell_state(entry[2])} · told with the last plan {tell_list(entry[1])} · to be told {tell_list(entry[3])}"


LADDER = evidence.ladder_check()

CHECKS = {
    "2.1": (
        Check("ladder", "smallest workloads of vLLM", 12, LADDER),
        Check("families", "recorded decisions", 8, evidence.recorded_check("stops", "mixed")),
    ),
    "2.2": (Check("U1", "tokens at once", 10, check_tokens_at_once),),
    "2.3": (
        Check("U2", "aborts at any moment", 6, check_aborts),
        Check("ladder", "smallest workloads of vLLM", 6, LADDER),
        Check("families", "recorded decisions", 8, evidence.recorded_check("chunked", "stops", "mixed", "hard")),
    ),
    "2.4": (
        Check("U2", "aborts at any moment", 2, check_aborts),
        Check("ladder", "smallest workloads of vLLM", 4, LADDER),
        Check("families", "recorded decisions", 4, evidence.recorded_check("stops", "mixed")),
    ),
}
