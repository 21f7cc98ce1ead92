"""Evidence: recorded decisions of vLLM, and the comparison of a student's run with them.

Owns: which recordings count, the order of cases, and how a difference becomes a Failure.
Interface: ladder, families, recorded_check, ladder_check, invariant_check, known_bug_check, unit_failure,
error_failure.
Must not know: labs, points, students.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from minivllm.course.grader import observe, words
from minivllm.course.grader.invariants import Broken, first_broken
from minivllm.course.grader.judge import Ask, Failure, Observation, Outcome
from minivllm.course.places import repo_path
from minivllm.proof.lockstep.compare import Difference, first_difference
from minivllm.proof.lockstep.recording import Workload, load, without_results

LADDER = Path("traces/labs/ladder.json.gz")
LADDER_MORE = Path("traces/labs/ladder-more.json.gz")
SCHEDULER = Path("traces/vllm-0.22.0/vllm-0.22.0-scheduler.json.gz")
HARD = Path("traces/vllm-0.22.0/vllm-0.22.0-scheduler-hard.json.gz")
KNOWN_BUG = Path("traces/vllm-0.22.0/vllm-0.22.0-known-bug.json.gz")
RECORDED = "recorded from vLLM 0.22.0"
ENGINE = "the engine, and the docstring"
EXTRA_STEPS = 20  # a run may take so many steps more than vLLM did, before it counts as endless
BOUNDARIES = {
    "scheduler.add_request": "B9 add_request",
    "schedule": "B10 schedule",
    "update_from_output": "B21 update_from_output",
    "finish_requests": "B26 finish_requests",
}


@cache
def ladder() -> tuple[Workload, ...]:
    """The smallest workloads: 61 that were found first, in order of size, then those that came later."""
    return tuple(workload for path in (LADDER, LADDER_MORE) for workload in load(repo_path(path)).workloads)


@cache
def families() -> dict[str, tuple[Workload, ...]]:
    """Family -> its recorded workloads; `hard` is one family."""
    found: dict[str, list[Workload]] = {}
    recording = load(repo_path(SCHEDULER))
    for workload, family in zip(recording.workloads, recording.families(), strict=True):
        found.setdefault(family, []).append(workload)
    found["hard"] = load(repo_path(HARD)).workloads
    return {family: tuple(workloads) for family, workloads in found.items()}


# ---------------------------------------------------------------------- recorded workloads


def ladder_check(rungs: Sequence[str] | None = None) -> Callable[[Ask], Outcome]:
    """A check: every rung of the ladder, or those named, decided as vLLM did, with all invariants on every step."""

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        chosen = [workload for workload in ladder() if rungs is None or workload["name"] in rungs]
        inputs = [asked_of(workload, state=True) for workload in chosen]
        answers = ask.student_many("observe:run_workload", inputs)
        for workload, observation in zip(chosen, answers, strict=False):
            if ends_the_check(observation, outcome):
                return outcome
            outcome.add(observation.mark, judge_workload(workload, observation, f"ladder {workload['name']}"))
        return outcome

    return run


def recorded_check(*names: str, invariants: Sequence[str] = ()) -> Callable[[Ask], Outcome]:
    """A check: whole families, each right when all its workloads are decided as vLLM did.

    invariants: the families whose states are looked at too, step by step.
    """

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        for name in names:
            outcome.families[name] = True
            for workload in families()[name]:
                observation = ask.student("observe:run_workload", asked_of(workload, state=name in invariants))
                if ends_the_check(observation, outcome):
                    outcome.families = dict.fromkeys(names, False)
                    return outcome
                failure = judge_workload(workload, observation, f"{name}, workload {workload['name']}")
                outcome.add(None, failure)
                if failure is not None:
                    outcome.families[name] = False
                    if not ask.thorough or failure.kind == "hang":
                        break
        return outcome

    run.leaves_no_marks = True
    return run


def invariant_check(*names: str) -> Callable[[Ask], Outcome]:
    """A check: no invariant is broken, whatever was decided. On the ladder, and on families."""

    def run(ask: Ask) -> Outcome:
        outcome = Outcome()
        for workload in [*ladder(), *(workload for name in names for workload in families()[name])]:
            observation = ask.student("observe:run_workload", asked_of(workload, state=True))
            if ends_the_check(observation, outcome):
                return outcome
            failure = None
            broken = first_broken(workload, states_of(observation), ended=observation.error is None)
            if broken is not None or observation.error is not None:
                failure = judge_workload(workload, observation, f"invariants, workload {workload['name']}")
            outcome.add(None, failure)
            if failure is not None and (not ask.thorough or failure.kind == "hang"):
                break
        return outcome

    run.leaves_no_marks = True
    return run


def known_bug_check(ask: Ask) -> Outcome:
    """A check for the stretch: every rule holds on the workloads in which vLLM 0.22.0 itself breaks K2 (trap 62)."""
    outcome = Outcome()
    workloads = load(repo_path(KNOWN_BUG)).workloads
    answers = ask.student_many("observe:run_workload", [asked_of(workload, state=True) for workload in workloads])
    for workload, observation in zip(workloads, answers, strict=False):
        if ends_the_check(observation, outcome):
            return outcome
        failure, case = None, f"workload {workload['name']}"
        broken = first_broken(workload, states_of(observation), ended=observation.error is None)
        if broken is not None:
            told = words.tell_workload(workload)
            failure = Failure("invariant", case, size_of(workload), told, "the rule holds", broken.tell())
            failure.rule, failure.step, failure.where = broken.rule, broken.step, f"step {broken.step}"
        elif observation.error is not None:
            failure = error_failure(observation.error, case, words.tell_workload(workload), size_of(workload))
        outcome.add(None, failure)
    return outcome


def ends_the_check(observation: Observation, outcome: Outcome) -> bool:
    """Whether the task is not written yet; then there is nothing more to check."""
    if observation.error is not None and observation.error["kind"] == "not_written":
        outcome.not_written = observation.error["message"]
        return True
    return False


def asked_of(workload: Workload, state: bool) -> dict[str, Any]:
    """The input of observe.run_workload: the workload without what vLLM decided."""
    return {
        "workload": without_results("scheduler", workload),
        "max_steps": len(workload["steps"]) + EXTRA_STEPS,
        "state": state,
    }


def states_of(observation: Observation) -> list[dict[str, Any]]:
    """What observe.run_workload saw, also when it crashed."""
    return observation.seen if observation.error else observation.value


def judge_workload(workload: Workload, observation: Observation, case: str) -> Failure | None:
    """Compare a run with the recording; None: equal in every field of every step, and no invariant is broken."""
    seen = states_of(observation)
    recorded = workload if observation.error is None else workload | {"steps": workload["steps"][: len(seen)]}
    steps = [entry["step"] for entry in seen]
    difference = None if steps == recorded["steps"] else first_difference("scheduler", recorded, steps)
    broken = None
    if seen and "planned" in seen[0]:
        broken = first_broken(workload, seen, ended=observation.error is None)
    if broken is not None and (difference is None or broken.step <= difference.index):
        return _failure(workload, seen, case, "invariant", broken.step, difference, broken)
    if difference is not None:
        return _failure(workload, seen, case, "decision", difference.index, difference, None)
    if observation.error is None:
        return None
    failure = error_failure(observation.error, case, words.tell_workload(workload), size_of(workload))
    if len(seen) < len(workload["steps"]):
        failure.expected = _expected_step(workload["steps"][len(seen)])
        failure.says = RECORDED
    else:
        failure.expected = f"the end, after {len(workload['steps'])} steps"
        failure.says = RECORDED
    failure.where, failure.step = f"step {len(seen)}", len(seen)
    failure.before = words.tell_state(_state_before(workload, len(seen)))
    failure.trace_of = {"workload": workload, "step": len(seen)}
    return failure


def size_of(workload: Workload) -> int:
    """Requests, tokens and steps: what a reader has to keep in mind."""
    tokens = sum(len(request["prompt_token_ids"]) for request in workload["requests"])
    return tokens + 3 * len(workload["requests"]) + len(workload["steps"])


def _failure(
    workload: Workload,
    seen: list[dict[str, Any]],
    case: str,
    kind: str,
    step: int,
    difference: Difference | None,
    broken: Broken | None,
) -> Failure:
    phase = difference.phase if difference is not None and difference.index == step else "schedule"
    failure = Failure(
        kind=kind,
        case=case,
        size=size_of(workload),
        input=words.tell_workload(workload),
        where=f"step {step} ({BOUNDARIES.get(phase, phase)})",
        before=words.tell_state(_state_before(workload, step)),
        expected="",
        got="",
        says=RECORDED,
        trace_of={"workload": workload, "step": step},
        step=step,
    )
    if difference is not None and difference.index == step:
        field = difference.field.partition("[")[0].partition(".")[0]
        theirs = workload["steps"][step] if step < len(workload["steps"]) else None
        ours = seen[step]["step"] if step < len(seen) else None
        if theirs is None or ours is None or not field:
            failure.expected = f"{len(workload['steps'])} steps"
            failure.got = "one step more" if theirs is None else f"the end after {len(seen)} steps"
        else:
            failure.expected, failure.got = _both(field, theirs.get(field), ours.get(field))
    else:
        failure.expected = "the rule holds"
        failure.got = "the decisions of this step are vLLM's"
    if broken is not None:
        failure.rule = broken.rule
        failure.got += f" ({broken.tell()})"
    return failure


def _both(field: str, theirs: Any, ours: Any) -> tuple[str, str]:
    if isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = words.shorten(theirs, ours)
    if any(item == "…" for items in (theirs, ours) if isinstance(items, list) for item in items):
        label = words.FIELDS.get(field, field)
        return f"{label} {theirs}", f"{label} {ours}"
    return words.tell_field(field, theirs), words.tell_field(field, ours)


def _expected_step(step: dict[str, Any]) -> str:
    parts = [words.tell_field("num_scheduled_tokens", step["num_scheduled_tokens"])]
    if step["new"]:
        parts.append(words.tell_field("new", step["new"]))
    parts.append(words.tell_field("free_blocks_after_schedule", step["free_blocks_after_schedule"][: words.LONGEST]))
    return " · ".join(parts)


def _state_before(workload: Workload, step: int) -> dict[str, Any] | None:
    """The engine's state after the step before: up to there it is the student's too."""
    if step == 0:
        return None
    key = workload.get("notation", workload["name"])
    if key not in _engine_runs:
        _engine_runs[key] = observe.run_workload({}, asked_of(workload, state=True), [])
    seen = _engine_runs[key]
    return seen[min(step, len(seen)) - 1]["updated"]


_engine_runs: dict[str, list[dict[str, Any]]] = {}  # notation or name of a workload -> the engine's own run of it


# ---------------------------------------------------------------------- other cases


def error_failure(error: dict[str, Any], case: str, told: str, size: int) -> Failure:
    """A Failure for code that crashed, hung or ended before it answered."""
    kind = "hang" if error["kind"] in ("hang", "endless") else "crash"
    line = f"starter.py:{error['line']}   {error['text']}" if error["line"] else ""
    if error["kind"] == "hang":
        got = f"stopped after {error['message']}: it did not come back"
        if error["state"]:
            got += f". State then: {error['state']}"
    elif error["kind"] == "endless":
        got = f"{error['message']}: nothing gets done any more"
    elif error["kind"] in ("exit", "killed"):
        got = f"ended before it answered: {error['message']}"
    else:
        got = f"{error['type']}: {error['message']}" + (f" (in {error['function']})" if error["function"] else "")
    return Failure(kind=kind, case=case, size=size, input=told, expected="an answer", got=got, line=line, says=ENGINE)


def unit_failure(
    observation: Observation,
    expected: Any,
    *,
    case: str,
    told: str,
    size: int,
    tell: Callable[[Any, Any], tuple[str, str, str]] | None = None,
    says: str = ENGINE,
) -> Failure | None:
    """Compare an observation with what is expected; None: equal.

    tell(expected, got) gives the words for where, expected and got; got may be shorter when the code crashed.
    """
    if observation.error is None and observation.value == expected:
        return None
    if observation.error is not None and observation.error["kind"] != "endless":
        failure = error_failure(observation.error, case, told, size)
        failure.expected = _brief(expected)
        if tell is not None and observation.seen:
            failure.where = f"after {len(observation.seen)} of {len(expected)} observations"
        return failure
    got = observation.seen if observation.error else observation.value
    if tell is not None:
        where, wanted, found = tell(expected, got)
    else:
        if isinstance(expected, list) and isinstance(got, list):
            expected, got = words.shorten(expected, got)
        where, wanted, found = "", _brief(expected), _brief(got)
    return Failure("structure", case, size, told, wanted, found, where=where, says=says)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:159] + "…"
