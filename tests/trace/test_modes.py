"""A trace of a run: every boundary is there, in one process and in two, in an order that can have happened."""

import pytest
from traced_runs import Run, record

from minivllm.trace.events import KINDS
from minivllm.trace.merge import message_pairs

BOUNDARIES = {row.boundary for row in KINDS.values() if row.boundary}
ACROSS = {"B7", "B22"}
EARLY_END = {"B26"}


def boundaries_of(run: Run, request: str) -> set[str]:
    return {event.boundary for event in run.trace.path(request)} - {None}


@pytest.mark.parametrize("request_id", ["0", "1", "2"])
def test_in_process_a_finished_request_has_been_everywhere_but_at_the_process_boundary(request_id: str) -> None:
    assert boundaries_of(record("three", multiprocess=False), request_id) == BOUNDARIES - ACROSS - EARLY_END


@pytest.mark.parametrize("request_id", ["0", "1", "2"])
def test_across_processes_a_finished_request_has_been_everywhere(request_id: str) -> None:
    assert boundaries_of(record("three", multiprocess=True), request_id) == BOUNDARIES - EARLY_END


def test_a_stop_string_adds_the_last_boundary() -> None:
    run = record("stop", multiprocess=True)
    stopped = run.outputs[0]
    assert stopped.outputs[0].stop_reason == "333"
    assert boundaries_of(run, "0") == BOUNDARIES
    first, *ends = [event for event in run.trace.path("0") if event.boundary == "B26"]
    assert first.kind == "abort_requests"
    # an ABORT is looked at in mid-step and again between steps; it acts once
    assert [request_id for event in ends for request_id in event.finished] == run.trace.internal_ids("0")
    types = [event.message_type for event in run.trace.path("0") if event.kind == "core_client.send"]
    assert types == ["ADD", "ABORT"]


def test_the_first_step_comes_in_the_order_of_the_boundaries() -> None:
    trace = record("plain", multiprocess=False).trace
    first_seen: dict[str, int] = {}
    for event in trace:
        first_seen.setdefault(event.kind, event.seq)
    core = ["scheduler.add_request", "schedule", "allocate_slots", "get_new_blocks", "executor.execute_model"]
    core += ["worker.execute_model", "update_states", "prepare_inputs", "get_slot_mappings"]
    core += ["build_attention_metadata", "model_forward", "do_kv_cache_update", "attention", "compute_logits"]
    core += ["sample_tokens", "sampler.forward", "update_from_output", "process_outputs", "detokenize"]
    caller = ["generate", "render_cmpl", "llm_engine.add_request", "process_inputs", "assign_request_id"]
    caller += ["output_processor.add_request", "core_client.add_request", "preprocess_add_request"]
    order = [first_seen[kind] for kind in caller + core]
    assert order == sorted(order)


@pytest.mark.parametrize("across", [False, True])
def test_parents_contain_their_children(across: bool) -> None:
    trace = record("three", multiprocess=across).trace
    assert [event.seq for event in trace] == list(range(len(trace)))
    entries = [event.t0 for event in trace]
    assert entries == sorted(entries)
    for event in trace:
        parent = trace.parent(event)
        if parent is not None:
            assert (parent.proc, parent.thread) == (event.proc, event.thread)
            assert parent.t0 < event.t0 <= event.t1 < parent.t1


def test_no_message_arrives_before_it_is_sent_and_none_is_lost() -> None:
    trace = record("stop", multiprocess=True).trace
    pairs = list(message_pairs(trace))
    assert all(receive.t0 >= send.t0 for send, receive in pairs)
    assert all(receive.num_bytes == send.num_bytes for send, receive in pairs)
    assert all(receive.reqs == send.reqs and receive.step == send.step for send, receive in pairs)
    sent = trace.filter(kind=("core_client.send", "core.send"))
    assert len(pairs) == len(sent) == len(trace.filter(kind=("core.receive", "core_client.receive")))


def test_the_callers_events_know_the_step_that_they_come_from() -> None:
    for across in (False, True):
        trace = record("stop", multiprocess=across).trace
        for detokenize in trace.filter(kind="detokenize"):
            updates = [
                update
                for event in trace.filter(step=detokenize.step, kind="update_from_output")
                for update in event.updates
                if update.req_id == detokenize.reqs[0]
            ]
            assert [update.new_token_ids for update in updates] == [detokenize.new_token_ids]


def test_both_modes_make_the_same_decisions_about_one_request_at_a_time() -> None:
    plans = [
        [
            (list(event.num_scheduled_tokens.values()), event.token_budget, event.num_free_blocks)
            for event in record("seats", multiprocess=across).trace.filter(kind="schedule")
            if event.num_scheduled_tokens
        ]
        for across in (False, True)
    ]
    assert plans[0] == plans[1]


def test_where_events_happen() -> None:
    trace = record("three", multiprocess=True).trace
    for event in trace:
        assert event.proc == KINDS[event.kind].process
    threads = {kind: {event.thread for event in trace.filter(kind=kind)} for kind in KINDS}
    assert threads["core.receive"] == threads["preprocess_add_request"] == {"input"}
    assert threads["core.send"] == threads["core_client.receive"] == {"output"}
    assert threads["schedule"] == threads["generate"] == {"main"}
    assert {event.proc for event in record("three", multiprocess=False).trace} == {"caller"}


def test_the_header_says_what_ran() -> None:
    for across, names in ((False, ["caller"]), (True, ["caller", "core"])):
        header = record("three", multiprocess=across).trace.header
        assert [process.name for process in header.processes] == names
        assert all(process.complete for process in header.processes)
        assert header.vllm == "0.22.0"
        assert header.num_gpu_blocks == 41
        assert (header.config["block_size"], header.config["max_num_batched_tokens"]) == (4, 64)
        assert header.config["dtype"] == "float32"
        assert header.model["num_layers"] == 2
        assert set(header.environment["pids"]) == set(names)
        assert header.boundaries["schedule"] == "B10"
    core = record("three", multiprocess=True).trace.header.processes[1]
    assert core.error_bound_ns > 0


def test_counters_go_on_where_they_were_left() -> None:
    """What is free after one event of the pool is free before the next."""
    trace = record("preempt", multiprocess=False).trace
    pool = sorted(trace.filter(kind=("get_new_blocks", "touch", "free_blocks")), key=lambda event: event.t1)
    free = [event.num_free_blocks for event in pool]
    assert [before for before, _ in free[1:]] == [after for _, after in free[:-1]]
    assert any(event.preemptions for event in trace.filter(kind="schedule"))


def test_samples_of_one_prompt_are_requests_of_their_own() -> None:
    run = record("samples", multiprocess=False)
    assert len(run.trace.internal_ids("0")) == 3
    assert len(run.trace.path("0")) > len(run.trace.path(run.trace.request_ids[0]))
    texts = [run.trace.final_state().requests[i].output_text for i in run.trace.internal_ids("0")]
    assert texts == [completion.text for completion in run.outputs[0].outputs]
