"""On the logical clock two processes take turns: the same file each time, and an order that the rules give."""

from pathlib import Path

import msgspec
import pytest
from traced_runs import PROMPTS, Run, generate, greedy, llm_of, record

from minivllm.errors import EngineDeadError
from minivllm.trace import Event, Trace
from minivllm.trace.merge import message_pairs

TURNS = {"multiprocess": True, "trace_clock": "logical"}


def across(name: str) -> Run:
    return record(name, **TURNS)


@pytest.fixture(scope="module")
def stopped() -> Trace:
    return across("stop").trace


def at(trace: Trace, kind: str, step: int) -> Event:
    return trace.filter(kind=kind, step=step)[0]


@pytest.mark.parametrize("name", ["chunked", "stop"])
def test_two_recordings_are_the_same_bytes(tmp_path: Path, name: str) -> None:
    with llm_of(name, trace=str(tmp_path / "again.jsonl"), **TURNS) as llm:
        generate(llm, name)
    first, second = (_without_environment(path) for path in (across(name).path, tmp_path / "again.jsonl"))
    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == ["again.jsonl"]  # nothing else is left behind


def _without_environment(path: Path) -> tuple[bytes, bytes]:
    header = msgspec.structs.replace(Trace.load(path).header, environment={})
    return msgspec.json.encode(header), path.read_bytes().split(b"\n", 1)[1]


@pytest.mark.parametrize("name", ["chunked", "preempt"])
def test_steps_are_those_of_one_process(name: str) -> None:
    """But for the last, empty one, which one process leaves for the next call."""

    def plans(run: Run) -> list[dict[str, int]]:
        schedules = run.trace.filter(kind="schedule")
        return [{i.split("-")[0]: n for i, n in e.num_scheduled_tokens.items()} for e in schedules]

    alone = record(name, multiprocess=False)
    assert plans(across(name)) == [*plans(alone), {}]
    assert across(name).token_ids == alone.token_ids


def test_the_first_step_comes_after_the_last_add(stopped: Trace) -> None:
    added = stopped.filter(kind="scheduler.add_request")
    assert len(added) == 2
    assert added[-1].t1 < at(stopped, "schedule", 1).t0
    assert len(at(stopped, "schedule", 1).num_scheduled_tokens) == 2


def test_the_core_is_one_step_ahead_of_its_caller(stopped: Trace) -> None:
    for step in (1, 5):
        sent, received = at(stopped, "core.send", step), at(stopped, "core_client.receive", step)
        planned, run = at(stopped, "schedule", step + 1), at(stopped, "executor.execute_model", step + 1)
        assert sent.t1 < planned.t0 < planned.t1 < received.t0 < at(stopped, "process_outputs", step).t1 < run.t0


def test_an_abort_comes_too_late_for_the_step_that_is_planned(stopped: Trace) -> None:
    (abort,) = stopped.filter(kind="abort_requests")
    request_id, late = abort.reqs[0], abort.step + 1
    planned, update = at(stopped, "schedule", late), at(stopped, "update_from_output", late)
    assert request_id in planned.num_scheduled_tokens
    assert planned.t1 < abort.t0 < abort.t1 < at(stopped, "executor.execute_model", late).t0
    assert request_id in update.aborted
    first, second = [event for event in stopped.filter(kind="finish_requests") if request_id in event.reqs]
    assert first.finished and not second.finished
    assert request_id not in at(stopped, "schedule", late + 1).num_scheduled_tokens


def test_every_message_is_sent_before_it_is_received(stopped: Trace) -> None:
    pairs = list(message_pairs(stopped))
    assert len(pairs) > 10
    assert all(send.t1 < receive.t0 for send, receive in pairs)
    stamps = [stamp for event in stopped for stamp in (event.t0, event.t1)]
    assert len(set(stamps)) == len(stamps)


def test_several_calls_a_reset_between_them_and_no_request_at_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", trace=str(path), **TURNS) as llm:
        first = llm.generate(PROMPTS[1], greedy(), use_tqdm=False)[0]
        assert llm.reset_prefix_cache()
        second = llm.generate(PROMPTS[1], greedy(), use_tqdm=False)[0]
        assert llm.generate([], greedy(), use_tqdm=False) == []
    assert first.outputs[0].token_ids == second.outputs[0].token_ids
    trace = Trace.load(path)
    assert [hit.num_hit_tokens for hit in trace.filter(kind="get_computed_blocks")] == [0, 0]
    assert trace.filter(kind="reset_prefix_cache")
    assert all(process.complete for process in trace.header.processes)
    with llm_of("plain", trace=str(path), **TURNS):
        pass  # nobody asks anything
    assert len(Trace.load(path)) == 0


def test_a_core_that_dies_does_not_keep_its_caller_waiting(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", trace=str(path), **TURNS) as llm:
        engine = llm.llm_engine
        engine.add_request("0", engine.input_processor.render_cmpl(PROMPTS[0]), greedy())
        engine.step()
        engine.engine_core.manager.process.kill()
        with pytest.raises(EngineDeadError):
            while engine.has_unfinished_requests():
                engine.step()
    assert Trace.load(path).filter(kind="schedule")
