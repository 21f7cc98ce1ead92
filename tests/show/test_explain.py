"""`why`: the right reason with the right numbers, for pairs worked out by hand and for whatever a scheduler does."""

from itertools import pairwise
from typing import Any

import pytest
from expected_reasons import EXPECTED, EXPECTED_ENDS
from told_scenarios import scenario_trace
from traced_runs import record

from minivllm.proof.lockstep import build_core, iterate_steps
from minivllm.proof.lockstep.workloads import generate_workloads
from minivllm.show.explain import Explainer, Explanation, explain, explain_all, format_explanation
from minivllm.show.lives import Lives
from minivllm.show.phases import phases
from minivllm.trace import MemorySink, Recorder, Trace, TraceError
from minivllm.trace.clock import LogicalClock
from minivllm.trace.merge import merge
from minivllm.trace.schema import EVENTS, Process, new_header
from minivllm.trace.store import Part

SCENARIO_NAMES = list(dict.fromkeys(row[0] for row in EXPECTED))


def numbers_of(explanation: Explanation, expected: dict[str, Any]) -> dict[str, Any]:
    return {name: explanation.numbers.get(name, False) for name in expected}


# ---------------------------------------------------------------------- worked out by hand


@pytest.mark.parametrize(("scenario", "request_id", "step", "verdict", "numbers"), EXPECTED)
def test_one_step(scenario: str, request_id: str, step: int, verdict: str, numbers: dict[str, Any]) -> None:
    explanation = explain(scenario_trace(scenario), request_id, step)
    assert (explanation.verdict, numbers_of(explanation, numbers)) == (verdict, numbers), explanation.sentence


@pytest.mark.parametrize(("scenario", "request_id", "verdict", "numbers"), EXPECTED_ENDS)
def test_a_whole_life(scenario: str, request_id: str, verdict: str, numbers: dict[str, Any]) -> None:
    explanation = explain(scenario_trace(scenario), request_id)
    assert (explanation.verdict, numbers_of(explanation, numbers)) == (verdict, numbers), explanation.sentence


def test_enough_pairs_were_worked_out() -> None:
    assert len({row[:3] for row in EXPECTED}) >= 40


@pytest.mark.parametrize("scenario", SCENARIO_NAMES)
def test_a_redacted_trace_gives_the_same_reasons(scenario: str) -> None:
    trace = scenario_trace(scenario)
    open_, closed = Explainer(trace), Explainer(trace.redact())
    for request_id in trace.request_ids:
        for step in [None, *trace.steps]:
            one, other = open_.explain(request_id, step), closed.explain(request_id, step)
            assert (one.verdict, one.seqs) == (other.verdict, other.seqs)


def test_a_hit_that_nobody_has_filled_is_named() -> None:
    """Of all scenarios only the one that has vLLM's fault shows it, and there only for the poisoned request."""
    found = set()
    for scenario in SCENARIO_NAMES:
        explainer = Explainer(scenario_trace(scenario))
        for request_id in explainer.lives.lives:
            for step in explainer.lives.steps:
                explanation = explainer.explain(request_id, step)
                if "unfilled_block_ids" in explanation.numbers:
                    found.add((scenario, explanation.name, *explanation.numbers["unfilled_block_ids"]))
    assert found == {("poison-as-vllm", "0", 11)}


# ---------------------------------------------------------------------- whatever a scheduler does


def scheduler_trace(workload: dict[str, Any]) -> Trace:
    """A scheduler without a caller, a worker or a model, driven through a random workload."""
    core = build_core(workload)
    scheduler = core.scheduler
    recorder = Recorder(MemorySink(), proc="core", clock=LogicalClock())
    recorder.observe(scheduler, scheduler.kv_cache_manager, scheduler.kv_cache_manager.block_pool)
    for _ in iterate_steps(workload, core):
        pass
    recorder.flush()
    config = {**workload["config"], "scheduling_policy": workload["config"]["policy"]}
    header = new_header(
        "logical", 0, Process("core"), "test", config=config, num_gpu_blocks=workload["config"]["num_blocks"]
    )
    return Trace(*merge([Part(header, recorder.sink.lines, True, False)]))


def check_a_grant(explanation: Explanation, plan: Any, config: dict[str, Any], running_before: bool) -> None:
    """The numbers that are given are those that the scheduler's rule makes of each other."""
    numbers = explanation.numbers
    limits = [numbers["num_missing"], numbers["token_budget"]]
    if config["long_prefill_token_threshold"]:
        limits.append(config["long_prefill_token_threshold"])
    if running_before:
        limits.append(config["max_model_len"] - 1 - numbers["num_computed_tokens"])
    assert numbers["num_new_tokens"] == min(limits) == plan.num_scheduled_tokens[explanation.request_id]
    assert (numbers["limit"] is None) == (numbers["num_new_tokens"] == numbers["num_missing"])
    assert numbers["token_budget"] == plan.token_budget[0] - sum(numbers["used_by"].values())
    assert numbers["admitted"] != running_before


def check_a_refusal(explanation: Explanation, skipped: Any) -> None:
    numbers = explanation.numbers
    assert explanation.verdict == skipped.reason
    if skipped.reason == "blocks":
        assert numbers["blocks_needed"] > numbers["blocks_free"]
        assert numbers["num_new_blocks"] + numbers["num_idle_hits"] == numbers["blocks_needed"]
    elif skipped.reason == "token_budget":
        assert sum(numbers["used_by"].values()) > 0
    elif skipped.reason == "head_of_line":
        assert numbers["blocker_verdict"] in ("blocks", "not_fit_in_budget")


def test_every_family_of_random_workloads() -> None:
    """Every request in every step gets an answer, and its numbers agree with the plan and with each other."""
    seen: set[tuple[str, bool]] = set()
    # the second has one that runs and gets nothing, since a less important one had to go itself
    workloads = [*generate_workloads(7, 1).workloads, *generate_workloads(6, 1, ["priority"]).workloads]
    assert len(workloads) > 10
    for workload in workloads:
        trace = scheduler_trace(workload)
        explainer = Explainer(trace)
        running: list[str] = []
        for step in explainer.lives.plans():
            plan = step.schedule
            for request_id in trace.request_ids:
                explanation = explainer.explain(request_id, step.number)
                assert explanation.verdict != "unknown", explanation.sentence
                assert all(seq in trace for seq in explanation.seqs)
                assert f"Request {request_id} " in explanation.sentence
                assert format_explanation(explanation)
                seen.add((explanation.verdict, request_id in plan.running))
                if request_id in plan.num_scheduled_tokens:
                    check_a_grant(explanation, plan, workload["config"], request_id in running)
                for skipped in plan.skipped:
                    if skipped.req_id == request_id:
                        check_a_refusal(explanation, skipped)
            ended = {u.req_id for u in step.update.updates if u.finish_reason}
            running = [request_id for request_id in plan.running if request_id not in ended]
        for request_id in trace.request_ids:
            assert explainer.explain(request_id).verdict != "error"
    verdicts = {verdict for verdict, _ in seen}
    assert verdicts >= {"scheduled", "in_vain", "token_budget", "seats", "blocks", "not_fit_in_budget", "preemption"}
    assert verdicts >= {"head_of_line", "preempted", "not_arrived", "finished"}
    assert {("preemption", True), ("preemption", False)} <= seen


# ---------------------------------------------------------------------- what only two processes show


def event(kind: str, seq: int, t0: int, t1: int, **fields: Any) -> Any:
    return EVENTS[kind](seq=seq, proc="core", t0=t0, t1=t1, **fields)


def told_late() -> Trace:
    """Two requests whose messages lie in the core's input queue while it plans step 2.

    r0 has found its stop string and its abort waits; r1 has been sent.
    """
    plan = {"num_free_blocks": (8, 8), "num_running": (1, 1), "num_waiting": (0, 0), "running": ["r0"]}
    arrives = {"num_prompt_tokens": 4, "num_tokens": 4, "max_tokens": 9, "priority": 0, "queue_position": 0}
    ended = [
        {"req_id": "r0", "status": "RUNNING", "num_tokens": (4, 5), "num_computed_tokens": 4, "num_blocks": (1, 1)}
    ]
    events = [
        event("output_processor.add_request", 0, 0, 1, reqs=["r0"], external_req_id="0"),
        event("scheduler.add_request", 1, 2, 3, reqs=["r0"], **arrives),
        event(
            "schedule", 2, 4, 5, step=1, reqs=["r0"], num_scheduled_tokens={"r0": 4}, total_num_scheduled_tokens=4,
            token_budget=(16, 12), num_tokens={"r0": 4}, num_computed_tokens={"r0": (0, 4)}, **plan,
        ),
        event("update_from_output", 3, 6, 7, step=1, reqs=["r0"], updates=_updates(ended)),
        event("output_processor.add_request", 4, 8, 9, reqs=["r1"], external_req_id="1"),
        event("core_client.send", 5, 10, 11, reqs=["r1"], msg=1, message_type="ADD"),
        event("detokenize", 6, 12, 13, step=1, reqs=["r0"], stop_string="END"),
        event("process_outputs", 7, 11, 14, step=1, reqs=["r0"], finished={"r0": "stop_string"}),
        event("abort_requests", 8, 15, 16, reqs=["r0"]),
        event(
            "schedule", 9, 20, 21, step=2, reqs=["r0"], num_scheduled_tokens={"r0": 1}, total_num_scheduled_tokens=1,
            token_budget=(16, 15), num_tokens={"r0": 5}, num_computed_tokens={"r0": (4, 5)}, **plan,
        ),
        event("update_from_output", 10, 24, 25, step=2, aborted=["r0"]),
        event("finish_requests", 11, 22, 23, step=2, reqs=["r0"], finished=["r0"], status="FINISHED_ABORTED"),
        event("scheduler.add_request", 12, 26, 27, reqs=["r1"], **arrives),
    ]  # fmt: skip
    header = new_header("monotonic", 0, Process("core"), "test", config={"block_size": 4, "max_num_seqs": 4})
    return Trace(header, events)


def _updates(rows: list[dict[str, Any]]) -> list[Any]:
    from minivllm.trace.events_core import RequestUpdate

    return [RequestUpdate(**row) for row in rows]


def test_an_abort_that_has_not_been_read_yet() -> None:
    explanation = explain(told_late(), "0", 2)
    assert explanation.verdict == "in_vain"
    assert "“END”" in explanation.reason("abort").sentence
    assert "had not read the abort" in explanation.reason("abort").sentence
    assert set(explanation.reason("abort").seqs) == {6, 8, 11}
    assert explain(told_late(), "0").verdict == "stop_string"


def test_a_request_on_its_way() -> None:
    explanation = explain(told_late(), "1", 2)
    assert (explanation.verdict, explanation.numbers) == ("on_its_way", {"arrives_before_step": None})
    assert explain(told_late(), "1", 1).verdict == "not_arrived"
    assert explain(told_late(), "1").verdict == "not_finished"


# ---------------------------------------------------------------------- where the time went


@pytest.mark.parametrize("scenario", [*SCENARIO_NAMES, "stop-string", "n2"])
def test_phases_follow_each_other_without_a_gap(scenario: str) -> None:
    lives = Lives(scenario_trace(scenario))
    for request_id, life in lives.lives.items():
        stretches = phases(lives, request_id)
        assert stretches[0].t0 == life.start
        assert stretches[-1].t1 == life.closed.t1
        for before, after in pairwise(stretches):
            assert before.t1 == after.t0
            assert before.name != after.name
        assert all(phase.t0 <= phase.t1 for phase in stretches)
        told = [step for phase in stretches for step in phase.steps]
        assert told == [role.step for role in lives.roles(request_id)]
        assert {phase.name for phase in stretches} <= {
            "input", "queue", "prefill", "decode", "preempted", "recompute", "between", "detokenize",
        }  # fmt: skip


@pytest.mark.parametrize("across", [False, True])
def test_time_of_a_real_run(across: bool) -> None:
    trace = record("three", multiprocess=across).trace
    lives = Lives(trace)
    for request_id in trace.request_ids:
        names = [phase.name for phase in phases(lives, request_id)]
        assert names[0] == "input"
        assert names[-1] == "detokenize"
        assert ("ipc" in names) == across
        assert {"queue", "prefill", "decode"} <= set(names)
        explanation = explain(trace, request_id)
        spent = explanation.numbers["time_ns"]
        life = lives.lives[request_id]
        assert sum(spent.values()) == life.closed.t1 - life.start
        assert spent["decode"] > 0
        assert sum(reason.code == "time" for reason in explanation.reasons) == 1 + len(spent)


def test_a_logical_clock_gives_no_durations() -> None:
    explanation = explain(scenario_trace("pool-8"), "2")
    (time,) = [reason.sentence for reason in explanation.reasons if reason.code == "time"]
    assert time == (
        "The clock is logical: it has an order and no durations. In steps: prefill 2, decode 22, preempted 7, "
        "recompute 1."
    )


# ---------------------------------------------------------------------- asking, and the words


def test_a_request_or_step_that_is_not_there() -> None:
    trace = scenario_trace("one")
    with pytest.raises(TraceError, match=r"no request '7'. Its requests: 0\."):
        explain(trace, "7")
    with pytest.raises(TraceError, match=r"no step 16. It has steps 1 to 15\."):
        explain(trace, "0", 16)


def test_several_answers_to_one_prompt() -> None:
    trace = scenario_trace("n2")
    with pytest.raises(TraceError, match=r"2 answers .* 0_0-\w+ or 1_0-\w+"):
        explain(trace, "0")
    first, second = explain_all(trace, "0", 1)
    assert (first.numbers["num_new_tokens"], second.numbers["num_new_tokens"]) == (41, 9)
    assert second.name == second.request_id


def test_in_plain_words() -> None:
    text = format_explanation(explain(scenario_trace("pool-8"), "2", 10))
    assert text == (
        "Request 2, step 10: blocks\n"
        "  Request 2 waits for blocks: it needs 2 and 1 is free.\n"
        "    turn    It is the first in the queue; a seat is free and the budget is not used up.\n"
        "    cache   32 of its 43 tokens are found in blocks 1 and 5 (block 1 held by requests 0 and 1, the\n"
        "            other by nobody).\n"
        "  ✗ blocks  Its 43 tokens take 3 blocks of 16: 2 are found (1 held by others and free of charge, 1\n"
        "            held by nobody, and so taken from the free ones), 1 is new. 2 > 1. Now request 0 holds 4\n"
        "            and request 1 holds 4.\n"
        "    events  264 269 272"
    )


def test_the_story_of_a_life() -> None:
    reasons = explain(scenario_trace("queue-LC"), "2").reasons
    assert [(reason.label, reason.sentence) for reason in reasons[:3]] == [
        ("steps 2 to 15", "It waits behind request 1, which can't be admitted (blocks)."),
        ("step 16", "It waits: the budget is used up by others."),
        ("steps 17 to 20", "It waits for blocks: it needs 3, and at most 1 is free."),
    ]
