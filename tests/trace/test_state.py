"""State from the trace alone equals the live engine: at the exit of every event that changes something."""

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from told_scenarios import book_in_place_of_the_model
from traced_runs import SnapshotRecorder, generate, llm_of, record

from minivllm import LLM
from minivllm.config import EngineConfig
from minivllm.core.block_hash import get_request_block_hasher, init_none_hash
from minivllm.core.block_pool import BlockPool
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request, RequestStatus
from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.core.scheduler import Scheduler
from minivllm.course.scenarios import S0, SCENARIOS, run_calls
from minivllm.sampling_params import SamplingParams
from minivllm.trace import State, Trace
from minivllm.trace.attach import _observe_core
from minivllm.trace.events_core import short_hash
from minivllm.worker.input_batch import InputBatch

PLAIN = {"multiprocess": False, "attention_backend": "torch", "dtype": "float32"}
POOL = {"get_new_blocks", "touch", "free_blocks", "cache_full_blocks", "reset_prefix_cache"}
TABLES = {"allocate_slots", "cache_blocks", "free", "forget_uncomputed_blocks"}
ALL = {"scheduler.add_request", "schedule", "update_states", "update_from_output", "finish_requests", "step"}


def picture(kind: str, scheduler: Scheduler, batch: InputBatch) -> dict[str, Any] | None:
    """What the live objects hold that may be asked for at the exit of `kind`."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    if kind not in POOL | TABLES | ALL:
        return None
    found: dict[str, Any] = {
        "free_order": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
        "ref_cnts": {block.block_id: block.ref_cnt for block in pool.blocks if block.ref_cnt},
        "block_hashes": {b.block_id: short_hash(b.block_hash) for b in pool.blocks if b.block_hash is not None},
        "cached_blocks": {short_hash(h): list(blocks) for h, blocks in pool.cached_block_hash_to_block.items()},
    }
    if kind in TABLES | ALL and kind != "cache_blocks":  # that is part of allocate_slots, which is not done yet
        found["block_tables"] = {i: [b.block_id for b in blocks] for i, blocks in manager.req_to_blocks.items()}
    if kind in TABLES | ALL:
        found["num_cached_blocks"] = dict(manager.num_cached_block)
    if kind in ALL:
        found["waiting"] = [request.request_id for request in scheduler.waiting]
        found["running"] = [request.request_id for request in scheduler.running]
        found["finished"] = set(scheduler.finished_req_ids)
        found["requests"] = {
            i: (r.status.name, r.num_tokens, r.num_computed_tokens, r.num_preemptions, tuple(r.output_token_ids))
            for i, r in scheduler.requests.items()
        }
    if kind == "update_states":
        rows = range(len(batch.req_ids))
        found["rows"] = [
            (batch.req_ids[r], int(batch.num_computed_tokens_cpu[r]), tuple(batch.block_table.get_row(r))) for r in rows
        ]
    return found


def rebuilt(state: State, like: dict[str, Any]) -> dict[str, Any]:
    """The same, from a state that a trace gave."""
    everything = {
        "free_order": state.free_order,
        "ref_cnts": state.ref_cnts,
        "block_hashes": state.block_hashes,
        "cached_blocks": state.cached_blocks,
        "block_tables": state.block_tables,
        "num_cached_blocks": state.num_cached_blocks,
        "waiting": state.waiting,
        "running": state.running,
        "finished": set(state.finished_req_ids),
        "requests": {
            i: (r.status, r.num_tokens, r.num_computed_tokens, r.num_preemptions, r.output_token_ids)
            for i, r in state.requests.items()
            if r.status != "NEW" and not r.is_finished
        },
        "rows": [(row.req_id, row.num_computed_tokens, row.block_ids) for row in state.rows],
    }
    return {name: everything[name] for name in like}


def assert_rebuilt(trace: Trace, pictures: list[tuple[int, dict[str, Any]]], every: int = 1) -> None:
    """Each picture against the state that goes along, every so many against the state that is asked for."""
    seen_at = dict(pictures)
    assert pictures
    for event, state in trace.states():
        seen = seen_at.get(event.t0)
        if seen is not None:
            assert rebuilt(state, seen) == seen, f"after {event.kind}, event {event.seq}"
    seq_at = {event.t0: event.seq for event in trace}
    for t0, seen in pictures[::every]:
        event = trace[seq_at[t0]]
        assert rebuilt(trace.state_at(event.seq), seen) == seen, f"after {event.kind}, event {event.seq}"


# ---------------------------------------------------------------------- the whole engine


@pytest.mark.parametrize("name", ["three", "chunked", "prefix", "preempt", "priority", "stop", "seats", "samples"])
def test_rebuilt_from_a_run_of_the_engine(name: str) -> None:
    with llm_of(name, multiprocess=False) as llm:
        core = llm.llm_engine.engine_core.engine_core
        batch = core.model_executor.driver_worker.model_runner.input_batch
        recorder = SnapshotRecorder(lambda kind: picture(kind, core.scheduler, batch))
        engine = llm.llm_engine
        recorder.observe(llm, engine, engine.input_processor, engine.output_processor, engine.engine_core)
        _observe_core(recorder, core)
        outputs = generate(llm, name)
        assert core.scheduler.reset_prefix_cache() or core.scheduler.has_requests()
        trace = recorder.trace(core.num_gpu_blocks)
    assert_rebuilt(trace, recorder.pictures)
    end = trace.final_state()
    texts = {output.request_id: [completion.text for completion in output.outputs] for output in outputs}
    for external, expected in texts.items():
        found = [end.requests[i].output_text for i in trace.internal_ids(external)]
        assert found == expected
    assert not any(request.is_open for request in end.requests.values())


# The others decide what one of these decides: they look closer, run in two processes, or on the wall clock.
PLAINLY_RECORDED = [n for n, s in SCENARIOS.items() if not (s.detail or s.once or s.multiprocess)]


@pytest.mark.parametrize("name", PLAINLY_RECORDED)
def test_rebuilt_from_every_scenario(name: str) -> None:
    """Answered from a book: what is checked is who owns what, and not what the model says."""
    scenario = SCENARIOS[name]
    with book_in_place_of_the_model(), LLM(**{**S0, **scenario.settings, **PLAIN}) as llm:
        core = llm.llm_engine.engine_core.engine_core
        batch = core.model_executor.driver_worker.model_runner.input_batch
        recorder = SnapshotRecorder(lambda kind: picture(kind, core.scheduler, batch))
        recorder.observe(llm.llm_engine.engine_core)
        _observe_core(recorder, core)
        run_calls(llm, scenario)
        trace = recorder.trace(core.num_gpu_blocks)
    assert_rebuilt(trace, recorder.pictures, every=10)


def test_before_and_after_of_one_event() -> None:
    trace = record("plain", multiprocess=False).trace
    taken = trace.filter(kind="get_new_blocks")[0]
    before, after = trace.state_at(taken.seq, before=True), trace.state_at(taken.seq)
    assert before.free_order[: len(taken.block_ids)] == taken.block_ids
    assert len(before.free_order) == taken.num_free_blocks[0]
    assert len(after.free_order) == taken.num_free_blocks[1]
    assert all(after.ref_cnts[block_id] == 1 for block_id in taken.block_ids)


def test_every_step_backwards_gives_what_it_gave_forwards() -> None:
    trace = record("preempt", multiprocess=False).trace
    forwards = {event.seq: trace.state_at(event.seq) for event in trace}
    again = Trace(trace.header, trace.events)
    assert all(again.state_at(event.seq) == forwards[event.seq] for event in reversed(trace))


def test_the_state_belongs_to_whoever_asked() -> None:
    trace = record("plain", multiprocess=False).trace
    state = trace.state_at(trace.events[-1].seq)
    state.free_blocks.clear()
    state.requests.clear()
    assert trace.state_at(trace.events[-1].seq).free_blocks
    assert trace.state_at(trace.events[-1].seq).requests


def test_across_processes_nothing_is_left_in_flight() -> None:
    trace = record("stop", multiprocess=True).trace
    for receive in trace.filter(kind=("core.receive", "core_client.receive")):
        send = "core_client.send" if receive.kind == "core.receive" else "core.send"
        assert (send, receive.msg) in trace.state_at(receive.seq, before=True).in_flight
        assert (send, receive.msg) not in trace.state_at(receive.seq).in_flight
    end = trace.final_state()
    assert not end.in_flight
    assert not end.running and not end.waiting and not end.block_tables and not end.ref_cnts
    assert len(end.free_blocks) == trace.header.num_gpu_blocks - 1


def test_owners_are_those_whose_table_holds_the_block() -> None:
    trace = record("prefix", multiprocess=False).trace
    shared = [e for e in trace.filter(kind="touch") if max(e.ref_cnts) > 1]
    assert shared
    allocated = trace.parent(shared[0])
    state = trace.state_at(allocated.seq)
    for block_id, ref_cnt in zip(shared[0].block_ids, shared[0].ref_cnts, strict=True):
        assert len(state.owners(block_id)) == ref_cnt


# ---------------------------------------------------------------------- workloads that nobody thought of


class Workload:
    """A scheduler, its cache and the worker's batch, driven with random tokens in place of a model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random.choice
        self.config = EngineConfig(
            block_size=chance([1, 2, 4]),
            num_gpu_blocks_override=chance([26, 32, 50]),
            max_num_seqs=chance([1, 2, 4, 6]),
            max_num_batched_tokens=chance([6, 12, 40]),
            enable_prefix_caching=chance([True, True, False]),
            long_prefill_token_threshold=chance([0, 0, 3]),
            scheduling_policy=chance(["fcfs", "priority"]),
        ).resolved(max_model_len=24)
        pool = BlockPool(self.config.num_gpu_blocks_override, self.config.enable_prefix_caching)
        self.scheduler = Scheduler(self.config, KVCacheManager(self.config, pool))
        self.batch = InputBatch(self.config.max_num_seqs, 24, self.config.block_size, 4, torch.device("cpu"))
        self.hasher = get_request_block_hasher(self.config.block_size, init_none_hash("x"))
        self.recorder = SnapshotRecorder(lambda kind: picture(kind, self.scheduler, self.batch))
        self.recorder.observe(self.scheduler, self.scheduler.kv_cache_manager, pool, self.batch)
        self.to_come = self.random.randint(1, 8)

    def run(self) -> Trace:
        count = 0
        while self.to_come or self.scheduler.has_requests():
            while self.to_come and self.random.random() < 0.5:
                self.to_come -= 1
                count += 1
                self.scheduler.add_request(self._request(count))
            if self.scheduler.requests and self.random.random() < 0.05:
                victim = self.random.choice(list(self.scheduler.requests))
                self.scheduler.finish_requests([victim, "unknown"], RequestStatus.FINISHED_ABORTED)
            if self.random.random() < 0.1:
                self.scheduler.reset_prefix_cache()
            self._step()
        return self.recorder.trace(self.config.num_gpu_blocks_override)

    def _request(self, number: int) -> Request:
        params = SamplingParams(temperature=0, max_tokens=self.random.randint(1, 10))
        params.set_stop_tokens(3)
        # few tokens, so that prefixes repeat
        prompt = [self.random.choice([0, 0, 0, 1]) for _ in range(self.random.randint(1, 13))]
        return Request(f"r{number}", prompt, params, float(number), self.random.randint(0, 2), block_hasher=self.hasher)

    def _step(self) -> None:
        plan = self.scheduler.schedule()
        self.batch.update_states(plan)
        req_ids = list(self.batch.req_ids)
        sampled = []
        for req_id in req_ids:
            request = self.scheduler.requests[req_id]
            complete = request.num_computed_tokens >= request.num_tokens
            sampled.append([self.random.choice([0, 0, 0, 1, 3])] if complete else [])
        self.batch.append_sampled_tokens(sampled)
        rows = {req_id: row for row, req_id in enumerate(req_ids)}
        self.scheduler.update_from_output(plan, ModelRunnerOutput(req_ids, rows, sampled))


@settings(max_examples=200)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_rebuilt_from_any_workload(seed: int) -> None:
    workload = Workload(seed)
    assert_rebuilt(workload.run(), workload.recorder.pictures, every=20)
