"""The account of a first difference: what differs, in which state it came about, and in which event.

Owns: how a difference is told.
Interface: account.
Must not know: how differences are found.

The workload is replayed once more, up to the step that differs; the marks of minivllm.boundary show what is called
in that step.
"""

from collections.abc import Callable, Iterator
from typing import Any

from minivllm.boundary import boundaries
from minivllm.core.request import Request
from minivllm.core.scheduler import Scheduler
from minivllm.proof.lockstep.compare import BREAKDOWN, Difference
from minivllm.proof.lockstep.engine import replay_engine, request_name
from minivllm.proof.lockstep.recording import Workload
from minivllm.proof.lockstep.scheduler import (
    PoisonedScheduler,
    build_core,
    free_block_ids,
    iterate_steps,
    replay_scheduler,
)

MAX_ITEMS = 24  # of a list, before it is cut
MAX_CALLS = 40


def account(level: str, workload: Workload, name: str, difference: Difference, model: str | None = None) -> str:
    """Several lines for a person: where the two part, ours against theirs, the state before, the calls in it."""
    ours, theirs = shorten(difference.ours, difference.theirs)
    lines = [
        f"The first difference is in {name}, {difference.what} {difference.index}, event {difference.phase}:",
        f"  {difference.field or difference.what}",
        f"    ours   {ours}",
        f"    vLLM   {theirs}",
    ]
    if level == "scheduler":
        lines += _scheduler_state(workload, difference)
        if difference.phase != BREAKDOWN:
            lines += _known_difference(workload)
    elif level == "sampler":
        lines += _row_state(workload, difference)
    elif difference.phase == BREAKDOWN:
        lines.append(f"Settings: {workload['engine_args']}")
    elif difference.what == "step":
        lines += _engine_state(workload, difference, model)
    else:
        lines += _request_state(workload, difference)
    return "\n".join(lines)


def shorten(ours: Any, theirs: Any) -> tuple[str, str]:
    """Both sides as text. Of long lists, only the part around the first place where they differ."""
    if isinstance(ours, list) and isinstance(theirs, list) and max(len(ours), len(theirs)) > MAX_ITEMS:
        pairs = enumerate(zip(ours, theirs, strict=False))
        place = next((i for i, (mine, other) in pairs if mine != other), min(len(ours), len(theirs)))
        return _around(ours, place), _around(theirs, place)
    return repr(ours), repr(theirs)


def _around(items: list[Any], place: int) -> str:
    start = max(place - 4, 0)
    shown = ", ".join(map(repr, items[start : start + MAX_ITEMS]))
    before = "…, " if start else ""
    after = ", …" if start + MAX_ITEMS < len(items) else ""
    return f"[{before}{shown}{after}] (from place {start} of {len(items)}, different from place {place})"


# ---------------------------------------------------------------------- scheduler level


def _scheduler_state(workload: Workload, difference: Difference) -> list[str]:
    core = build_core(workload)
    scheduler, steps = core.scheduler, iterate_steps(workload, core)
    for _ in range(difference.index):
        next(steps)
    settings = ", ".join(f"{name}={value}" for name, value in workload["config"].items())
    lines = [f"Settings: {settings}", *describe_state(scheduler)]
    calls: list[str] = []
    for component in (scheduler, scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool):
        _note_calls(component, calls)
    try:
        next(steps, None)
    except Exception as error:  # whatever it is, it belongs in the account
        calls.append(f"  {type(error).__name__}: {error}")
    cut = [f"  … and {len(calls) - MAX_CALLS} more"] if len(calls) > MAX_CALLS else []
    return [*lines, "What our engine did in this step, innermost first:", *calls[:MAX_CALLS], *cut]


def describe_state(scheduler: Scheduler) -> list[str]:
    """Queues with every request's counters, and the free blocks in the order of their next use."""
    free = free_block_ids(scheduler)
    rest = f" … ({len(free)} in all)" if len(free) > MAX_ITEMS else ""
    return [
        "The state before it:",
        *_queue("running", scheduler.running, scheduler),
        *_queue("waiting", scheduler.waiting, scheduler),
        f"  free blocks, the next first: {' '.join(map(str, free[:MAX_ITEMS])) or 'none'}{rest}",
        f"  ended, not told to the worker yet: {' '.join(sorted(scheduler.finished_req_ids)) or 'none'}",
    ]


def _queue(name: str, requests: Any, scheduler: Scheduler) -> Iterator[str]:
    if not requests:
        yield f"  {name}: none"
    for place, request in enumerate(requests):
        blocks = scheduler.kv_cache_manager.get_block_ids(request.request_id)
        yield (
            f"  {name}[{place}] {request.request_id}: {request.num_computed_tokens} of {request.num_tokens} tokens "
            f"computed, {request.num_output_tokens} output, preempted {request.num_preemptions} times, priority "
            f"{request.priority}, blocks {blocks}"
        )


def _note_calls(component: Any, calls: list[str]) -> None:
    """From now on, write down what is called on one component and what it returns."""
    for method_name, kind in boundaries(type(component)).items():
        setattr(component, method_name, _noting(getattr(component, method_name), kind, calls))


def _noting(method: Callable[..., Any], kind: str, calls: list[str]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        shown = [_brief(argument) for argument in args] + [f"{name}={_brief(value)}" for name, value in kwargs.items()]
        if kind not in ("schedule", "update_from_output", "get_cached_block"):
            calls.append(f"  {kind}({', '.join(shown)}) -> {_brief(result)}")
        return result

    return noted


def _brief(value: Any) -> str:
    """A value in a few words: a request by its id, a block by its number."""
    if isinstance(value, Request):
        return value.request_id
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_brief, value))}]"
    if hasattr(value, "block_id"):
        return str(value.block_id)
    return repr(value)


def _known_difference(workload: Workload) -> list[str]:
    """Whether it is the deliberate difference that this level can show."""
    if replay_scheduler(workload, PoisonedScheduler) != workload["steps"]:
        return []
    return [
        "This is a deliberate difference: vLLM lets a preempted request's uncomputed blocks be hit, ours forgets them. "
        "Without that one rule our engine gives exactly vLLM's steps. See docs/differences.md."
    ]


# ---------------------------------------------------------------------- sampler and engine level


def _row_state(case: Workload, difference: Difference) -> list[str]:
    rows = case["rows"]
    lines = [f"The batch has {len(rows)} rows:"]
    for index, row in enumerate(rows):
        mark = "  ← this one" if index == difference.index else ""
        lines.append(f"  row {index}: {row['sampling']}{mark}")
    row = rows[difference.index]
    lines.append(f"Its prompt {row['prompt_token_ids']}, output {row['output_token_ids']}")
    lines.append(f"Its bad words {row['bad_words_token_ids']}")
    if isinstance(difference.ours, list) and isinstance(difference.theirs, list):
        lines.append("Tokens that differ (id: logit, ours, vLLM's):")
        values = zip(row["logits"], difference.ours, difference.theirs, strict=False)
        unequal = [f"  {token}: {', '.join(map(str, v))}" for token, v in enumerate(values) if v[1] != v[2]]
        lines += unequal[:MAX_ITEMS]
    return lines


def _engine_state(scenario: Workload, difference: Difference, model: str | None) -> list[str]:
    """The scheduler's state before the step that differs, and the plan that was made in it."""
    told: list[list[str]] = []  # of each step that computes something

    def observe(core: Any) -> None:
        schedule = core.scheduler.schedule

        def noted() -> Any:
            lines = describe_state(core.scheduler)
            plan = schedule()
            if plan.total_num_scheduled_tokens:
                told.append([*lines, "The plan, tokens of each request: " + _describe_plan(plan)])
            return plan

        core.scheduler.schedule = noted

    replay_engine(scenario, model, observe)
    lines = told[difference.index] if difference.index < len(told) else ["Our engine had no such step."]
    return [f"Settings: {scenario['engine_args']}", *lines]


def _describe_plan(plan: Any) -> str:
    tokens = [f"{request_name(req_id)}: {n}" for req_id, n in plan.num_scheduled_tokens.items()]
    preempted = [request_name(req_id) for req_id in sorted(plan.preempted_req_ids)]
    return ", ".join(tokens) + (f"; preempted: {', '.join(preempted)}" if preempted else "")


def _request_state(scenario: Workload, difference: Difference) -> list[str]:
    request = scenario["requests"][difference.index]
    lines = [
        f"Settings: {scenario['engine_args']}",
        f"Its prompt: {request['prompt']!r}, {len(request['prompt_token_ids'])} tokens",
        f"Its parameters: {request['sampling']}",
        f"The scenario has {len(scenario['requests'])} requests; all flat batches were equal.",
    ]
    if difference.field.endswith(".text") and str(difference.theirs).endswith(str(difference.ours)):
        lines.append(
            "If the prompt ends within a character, this is a deliberate difference: vLLM's text then begins with the "
            "prompt, ours with that character. See docs/differences.md."
        )
    return lines
