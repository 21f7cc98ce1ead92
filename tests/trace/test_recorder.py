"""The recorder: what it replaces, what it leaves alone, and that nothing it does can harm what it watches."""

import inspect
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_models import tiny_model
from traced_runs import generate, llm_of, record

from minivllm.boundary import boundaries, boundary
from minivllm.core.block_pool import BlockPool
from minivllm.trace import MemorySink, Recorder
from minivllm.trace.clock import LogicalClock
from minivllm.trace.events import Call, Event
from minivllm.trace.events_cache import GetNewBlocks
from minivllm.trace.schema import EVENTS


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(MemorySink(), clock=LogicalClock())


def events_of(recorder: Recorder) -> list[Event]:
    recorder.flush()
    return [line for line in recorder.sink.lines if isinstance(line, Event)]


def live_objects(llm: Any) -> Iterator[Any]:
    """Every object of an in-process engine that has marked methods."""
    engine, core = llm.llm_engine, llm.llm_engine.engine_core.engine_core
    manager, worker = core.scheduler.kv_cache_manager, core.model_executor.driver_worker
    runner = worker.model_runner
    yield from (llm, engine, engine.input_processor, engine.output_processor, engine.engine_core, core)
    yield from (core.scheduler, manager, manager.block_pool, core.model_executor, worker)
    yield from (runner, runner.input_batch, runner.backend, runner.model, runner.sampler)


# ---------------------------------------------------------------------- off and on


def test_off_means_that_no_method_is_replaced() -> None:
    with llm_of("plain", multiprocess=False) as llm:
        for owner in live_objects(llm):
            marked = boundaries(type(owner))
            assert marked, f"{type(owner).__name__} has no marked method"
            assert not set(marked) & set(vars(owner)), f"something of {type(owner).__name__} is replaced"


def test_on_replaces_every_marked_method_of_every_object(tmp_path: Any) -> None:
    with llm_of("plain", multiprocess=False, trace=str(tmp_path / "t.jsonl")) as llm:
        for owner in live_objects(llm):
            assert set(boundaries(type(owner))) <= set(vars(owner))
            for name in boundaries(type(owner)):
                assert inspect.unwrap(getattr(owner, name)).__name__ == name  # a debugger finds the source


def test_off_never_imports_the_trace() -> None:
    code = (
        "import sys; from minivllm import LLM\n"
        "with LLM(sys.argv[1], multiprocess=False) as llm: llm.generate('fox', use_tqdm=False)\n"
        "assert not [n for n in sys.modules if n.startswith('minivllm.trace')]"
    )
    command = [sys.executable, "-c", code, str(tiny_model())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["three", "chunked", "preempt", "stop", "samples", "logprobs"])
def test_the_same_tokens_with_and_without(name: str) -> None:
    with llm_of(name, multiprocess=False) as llm:
        plain = [list(c.token_ids) for output in generate(llm, name) for c in output.outputs]
    for detail in (0, 2):
        assert record(name, multiprocess=False, trace_detail=detail).token_ids == plain


# ---------------------------------------------------------------------- one method


def test_only_this_instance_is_watched(recorder: Recorder) -> None:
    watched, other = BlockPool(8, True), BlockPool(8, True)
    recorder.observe(watched)
    watched.get_new_blocks(2)
    other.get_new_blocks(2)
    (event,) = events_of(recorder)
    assert isinstance(event, GetNewBlocks)
    assert (event.block_ids, event.num_free_blocks) == ([1, 2], (7, 5))
    assert isinstance(watched, BlockPool)


def test_a_call_that_fails_is_an_event_and_fails_as_before(recorder: Recorder) -> None:
    pool = BlockPool(4, True)
    recorder.observe(pool)
    with pytest.raises(ValueError, match="Cannot take 5"):
        pool.get_new_blocks(5)
    (event,) = events_of(recorder)
    assert event.error == "ValueError: Cannot take 5 of 3 free blocks"
    assert event.block_ids == []


def test_children_know_their_parent_and_lie_inside_it(recorder: Recorder) -> None:
    trace = record("chunked", multiprocess=False).trace
    for event in trace:
        parent = trace.parent(event)
        if parent is not None:
            assert parent.seq < event.seq
            assert (parent.proc, parent.thread) == (event.proc, event.thread)
            assert parent.t0 < event.t0 <= event.t1 < parent.t1


def test_a_failed_child_leaves_the_parents_of_later_calls_right(recorder: Recorder) -> None:
    class Outer:
        def __init__(self, pool: BlockPool) -> None:
            self.pool = pool

        @boundary("touch")
        def touch(self, blocks: list[Any]) -> None:
            with pytest.raises(ValueError):
                self.pool.get_new_blocks(99)
            self.pool.get_new_blocks(1)

        def get_num_free_blocks(self) -> int:
            return self.pool.get_num_free_blocks()

    pool = BlockPool(4, True)
    outer = Outer(pool)
    recorder.observe(outer, pool)
    outer.touch([])
    pool.get_new_blocks(1)
    found = {event.seq: event for event in events_of(recorder)}
    assert [event.parent for event in map(found.get, range(4))] == [None, 0, 0, None]


def test_threads_have_parents_of_their_own(recorder: Recorder) -> None:
    pools = [BlockPool(50, True) for _ in range(4)]
    recorder.observe(*pools)

    def take(pool: BlockPool) -> None:
        for _ in range(40):
            pool.get_new_blocks(1)

    threads = [threading.Thread(target=take, args=(pool,), name=f"t{i}") for i, pool in enumerate(pools)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = events_of(recorder)
    assert len(events) == 160
    assert len({event.seq for event in events}) == 160
    assert {event.thread for event in events} == {"t0", "t1", "t2", "t3"}
    assert all(event.parent is None for event in events)


# ---------------------------------------------------------------------- a view that fails


@pytest.mark.parametrize("part", ["before", "view"])
def test_a_view_that_fails_harms_nothing_and_warns_once(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    def broken(call: Call) -> Any:
        raise KeyError("gone")

    monkeypatch.setattr(GetNewBlocks, part, staticmethod(broken))
    pool = BlockPool(8, True)
    recorder.observe(pool)
    with caplog.at_level(logging.WARNING):
        assert [block.block_id for block in pool.get_new_blocks(2)] == [1, 2]
        pool.get_new_blocks(2)
    assert [event.view_error for event in events_of(recorder)] == ["KeyError: 'gone'"] * 2
    assert len(caplog.records) == 1
    assert "GetNewBlocks" in caplog.text


def test_a_mark_that_no_event_belongs_to_is_left_alone(recorder: Recorder) -> None:
    class Stranger:
        @boundary("somebody.else")
        def method(self) -> int:
            return 1

    stranger = Stranger()
    recorder.observe(stranger)
    assert not vars(stranger)
    assert "somebody.else" not in EVENTS


# ---------------------------------------------------------------------- once a layer


def test_layers_are_summed_up_at_detail_0_and_apart_from_detail_1() -> None:
    summed = record("three", multiprocess=False).trace
    apart = record("three", multiprocess=False, trace_detail=1).trace
    num_layers = summed.header.model["num_layers"]
    for kind in ("do_kv_cache_update", "attention"):
        for forward in summed.filter(kind="model_forward"):
            (event,) = [child for child in summed.children(forward) if child.kind == kind]
            assert (event.calls, event.layer) == (num_layers, None)
            assert event.num_tokens == forward.num_tokens
            assert 0 < event.total_ns <= event.duration < forward.duration
        for forward in apart.filter(kind="model_forward"):
            layers = [child for child in apart.children(forward) if child.kind == kind]
            assert [event.layer for event in layers] == list(range(num_layers))
            assert all(event.calls is None and event.tensors for event in layers)
    key = apart.filter(kind="do_kv_cache_update")[0].tensors["key"]
    assert (key.dtype, key.shape[1:]) == ("float32", [2, 16])


def test_detail_2_has_the_candidates_of_each_row() -> None:
    run = record("logprobs", multiprocess=False, trace_detail=2)
    chosen = run.token_ids
    for step, event in enumerate(run.trace.filter(kind="sampler.forward")):
        assert len(event.candidates) == event.logits_shape[0]
        for row, candidates in enumerate(event.candidates):
            assert candidates[0].token_id == chosen[row][step]
            logprobs = [candidate.processed_logprob for candidate in candidates]
            assert logprobs == sorted(logprobs, reverse=True)
    expected = run.outputs[0].outputs[0].logprobs[0][chosen[0][0]].logprob
    assert run.trace.filter(kind="sampler.forward")[0].candidates[0][0].logprob == pytest.approx(expected, abs=1e-3)
    assert all(e.hidden_states_norms for e in run.trace.filter(kind="model_forward"))
    assert not any(e.candidates for e in record("logprobs", multiprocess=False).trace.filter(kind="sampler.forward"))
