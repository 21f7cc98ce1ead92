"""Traps 32 to 40 of docs/traps.md: the rows of the batch, and what the worker remembers."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from proof.lockstep.tools import Core
from tiny_models import tiny_model

from minivllm import LLM, SamplingParams
from minivllm.core.sched_output import SchedulerOutput
from minivllm.worker.batch import FlatBatch, flatten
from minivllm.worker.input_batch import InputBatch


class CoreAndBatch(Core):
    """A core whose plans go through an input batch, and whose tokens go into it."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.batch = InputBatch(
            max_num_reqs=self.settings["max_num_seqs"],
            max_model_len=self.settings["max_model_len"],
            block_size=self.settings["block_size"],
            vocab_size=1000,
            device=torch.device("cpu"),
        )
        self.flat: FlatBatch | None = None

    def step(self, **tokens: int) -> SchedulerOutput:
        plan = self.scheduler.schedule()
        self.batch.update_states(plan)
        if plan.num_scheduled_tokens:
            self.flat = self.batch.flatten(plan)
        outputs = self.update(plan, **tokens)
        sampled = {output.request_id: output.new_token_ids for output in outputs}
        self.batch.append_sampled_tokens([sampled.get(req_id, []) for req_id in self.batch.req_ids])
        return plan


def test_rows_keep_neither_arrival_nor_scheduling_order() -> None:
    core = CoreAndBatch()
    for name in "abcd":
        core.add(name, 4)
    core.step()
    assert core.batch.req_ids == ["a", "b", "c", "d"]
    core.abort("a")
    core.step()
    assert core.batch.req_ids == ["d", "b", "c"], "the last row moves into the hole"
    core.abort("b")
    core.add("e", 4)
    plan = core.step()
    assert core.batch.req_ids == ["d", "e", "c"], "a new request takes the lowest hole"
    assert list(plan.num_scheduled_tokens) == ["c", "d", "e"]
    assert core.batch.req_id_to_index == {"d": 0, "e": 1, "c": 2}


def test_a_moved_row_takes_everything_along() -> None:
    core = CoreAndBatch()
    core.add("a", 4)
    moved = core.add("b", 7)
    core.step()
    core.abort("a")
    core.step()
    row = core.batch.req_id_to_index["b"]
    assert row == 0
    assert core.batch.token_ids_cpu[row, : moved.num_tokens].tolist() == moved.all_token_ids
    assert core.batch.block_table.get_row(row) == core.blocks("b")
    assert core.flat.input_ids.tolist() == moved.all_token_ids[7:8]
    assert core.flat.positions.tolist() == [7]


def preempted() -> CoreAndBatch:
    """ "b" has lost its blocks, and "a" goes on."""
    core = CoreAndBatch(num_blocks=9, max_model_len=32, enable_prefix_caching=False)
    core.add("a", 16)
    core.add("b", 13)
    core.step()
    assert core.step().preempted_req_ids == {"b"}
    return core


def test_a_preempted_request_loses_its_row_and_is_remembered() -> None:
    core = preempted()
    assert core.batch.req_ids == ["a"]
    assert core.batch.requests["b"].output_token_ids == core.requests["b"].output_token_ids
    core.abort("b")
    core.step()
    assert set(core.batch.requests) == {"a"}


def test_the_blocks_of_a_resumed_request_replace_its_old_ones() -> None:
    core = preempted()
    before = list(core.batch.requests["b"].block_ids)
    core.abort("a")
    plan = core.step()
    assert plan.scheduled_cached_reqs.resumed_req_ids == {"b"}
    assert core.batch.requests["b"].block_ids == core.blocks("b") != before
    row = core.batch.req_id_to_index["b"]
    assert core.batch.block_table.get_row(row) == core.blocks("b")


def test_the_new_blocks_of_a_running_request_extend_its_old_ones() -> None:
    core = CoreAndBatch()
    core.add("a", 4)
    core.step()
    first = core.blocks("a")
    core.step()
    assert core.batch.block_table.get_row(0) == core.blocks("a")
    assert core.blocks("a")[:1] == first and len(core.blocks("a")) == 2


def test_sampled_tokens_are_remembered_below_and_never_sent_back() -> None:
    core = CoreAndBatch()
    request = core.add("a", 4)
    core.step(a=77)
    core.step()
    assert core.flat.input_ids.tolist() == [77]
    assert core.batch.requests["a"].output_token_ids == request.output_token_ids


def test_positions_go_on_after_a_cache_hit() -> None:
    core = CoreAndBatch()
    tokens = core.new_tokens(8)
    core.add("a", tokens)
    core.step()
    core.add("b", [*tokens, 1, 1])
    core.step()
    assert core.flat.positions.tolist() == [8, 8, 9]  # the decode of "a", then what "b" misses
    assert core.flat.seq_lens.tolist() == [9, 10]
    (*_, last) = core.blocks("b")
    assert core.flat.slot_mapping.tolist()[1:] == [4 * last, 4 * last + 1]


def test_padding_belongs_to_no_row_and_writes_nowhere() -> None:
    numbers = {"num_computed": [3, 0], "num_scheduled": [1, 2], "block_table": [[5, 0], [6, 0]]}
    arrays = {name: np.array(values, dtype=np.int32) for name, values in numbers.items()}
    flat = flatten(token_ids=np.arange(1, 17, dtype=np.int32).reshape(2, 8), block_size=4, pad_to=6, **arrays)
    assert flat.query_start_loc.tolist() == [0, 1, 3]
    assert flat.slot_mapping.tolist() == [23, 24, 25, -1, -1, -1]
    assert flat.positions.tolist() == [3, 0, 1, 0, 0, 0]
    assert flat.logits_indices.tolist() == [0, 2]
    assert flat.num_actual_tokens == 3


def test_a_row_that_is_given_up_is_zeroed() -> None:
    core = CoreAndBatch()
    core.add("long", 30)
    core.add("short", 4)
    core.step()
    core.abort("long")
    core.step()
    width = len(core.blocks("short"))
    assert core.batch.block_table.block_table[0, width:].sum() == 0
    assert core.batch.block_table.block_table[1].sum() == 0


def test_sampling_parameters_are_laid_out_again_only_when_rows_change() -> None:
    core = CoreAndBatch()
    request = core.add("a", 4)
    core.step()
    metadata = core.batch.make_sampling_metadata()
    core.step()
    assert core.batch.make_sampling_metadata() is metadata
    assert metadata.output_token_ids == [request.output_token_ids], "outputs are seen through the same list"
    core.add("b", 4)
    core.step()
    assert core.batch.make_sampling_metadata() is not metadata


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(str(tiny_model()), dtype="float32", multiprocess=False, device="cpu", max_num_batched_tokens=16) as llm:
        yield llm


def test_a_step_is_executed_once_and_then_sampled(llm: LLM) -> None:
    core = llm.llm_engine.engine_core.engine_core
    llm.llm_engine.add_request(
        "once", llm.llm_engine.input_processor.render_cmpl([5, 6]), SamplingParams(temperature=0, max_tokens=1)
    )
    plan = core.scheduler.schedule()
    executor = core.model_executor
    assert executor.execute_model(plan) is None
    with pytest.raises(RuntimeError, match="sample_tokens"):
        executor.execute_model(plan)
    core.scheduler.update_from_output(plan, executor.sample_tokens())
    flush = core.scheduler.schedule()
    assert executor.execute_model(flush).req_ids == [], "without tokens there is nothing to sample"
    with pytest.raises(RuntimeError, match="execute_model"):
        executor.sample_tokens()
    llm.llm_engine.output_processor.abort_requests(["once"])


def test_a_chunk_draws_nothing_from_a_seeded_request(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=8)
    (chunked,) = llm.generate([list(range(10, 50))], params, use_tqdm=False)
    with LLM(str(tiny_model()), dtype="float32", multiprocess=False, device="cpu") as unchunked_llm:
        (whole,) = unchunked_llm.generate([list(range(10, 50))], params, use_tqdm=False)
    assert chunked.outputs[0].token_ids == whole.outputs[0].token_ids


def test_a_seeded_request_goes_on_with_its_draws_after_a_preemption() -> None:
    params = SamplingParams(temperature=1.5, seed=5, max_tokens=24, ignore_eos=True)
    prompts = [list(range(10, 22)), list(range(30, 42))]
    small_pool = {"block_size": 4, "num_gpu_blocks_override": 14, "max_model_len": 40}
    with LLM(str(tiny_model()), dtype="float32", multiprocess=False, device="cpu", **small_pool) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        assert outputs[1].metrics.num_preemptions > 0
        (alone,) = llm.generate(prompts[1:], params, use_tqdm=False)
        assert alone.metrics.num_preemptions == 0
    assert outputs[1].outputs[0].token_ids == alone.outputs[0].token_ids
