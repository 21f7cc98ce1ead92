"""The rows of the batch against a simple model, under plans of every kind, and under those that a scheduler makes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from core.watched_scheduler import WatchedScheduler
from core.workloads import Workload, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from minivllm.core.sched_output import CachedRequestData, ModelRunnerOutput, NewRequestData, SchedulerOutput
from minivllm.proof.lockstep import build_core, iterate_steps
from minivllm.sampling_params import SamplingParams
from minivllm.worker.block_table import BlockTable
from minivllm.worker.input_batch import InputBatch

SEATS, LENGTH, BLOCK_SIZE, VOCAB = 5, 40, 3, 50


def make_batch(seats: int = SEATS, length: int = LENGTH, block_size: int = BLOCK_SIZE) -> InputBatch:
    return InputBatch(seats, length, block_size, VOCAB, torch.device("cpu"))


def make_plan(**fields: Any) -> SchedulerOutput:
    plan = {
        "scheduled_new_reqs": [],
        "scheduled_cached_reqs": CachedRequestData(),
        "num_scheduled_tokens": {},
        "total_num_scheduled_tokens": sum(fields.get("num_scheduled_tokens", {}).values()),
        "num_common_prefix_blocks": 0,
        "finished_req_ids": set(),
        "preempted_req_ids": set(),
        "token_budget_left": 0,
    }
    return SchedulerOutput(**plan | fields)


def new_request(req_id: str, prompt: list[int], blocks: list[int], **params: Any) -> NewRequestData:
    return NewRequestData(req_id, prompt, SamplingParams(temperature=0, **params), blocks, num_computed_tokens=0)


@dataclass
class Known:
    """What the model knows of a request."""

    tokens: list[int]
    blocks: list[int]
    computed: int = 0
    fresh: bool = True  # not sent to the worker yet


@dataclass
class Rows:
    """The model of the rows: a list with holes, a new request takes the lowest hole, the end fills what is left."""

    ids: list[str | None] = field(default_factory=list)

    def remove(self, req_id: str) -> None:
        if req_id in self.ids:
            self.ids[self.ids.index(req_id)] = None

    def add(self, req_id: str) -> None:
        if None in self.ids:
            self.ids[self.ids.index(None)] = req_id
        else:
            self.ids.append(req_id)

    def condense(self) -> None:
        while None in self.ids:
            last = self.ids.pop()
            if last is not None:
                self.add(last)


def check_rows(batch: InputBatch, rows: Rows, known: dict[str, Known]) -> None:
    assert batch.req_ids == rows.ids
    assert batch.req_id_to_index == {req_id: row for row, req_id in enumerate(rows.ids)}
    assert batch.num_reqs == len(rows.ids)
    table = batch.block_table
    for row, req_id in enumerate(rows.ids):
        request = known[req_id]
        assert batch.token_ids_cpu[row, : len(request.tokens)].tolist() == request.tokens, req_id
        assert batch.num_computed_tokens_cpu[row] == request.computed, req_id
        assert table.get_row(row) == request.blocks, req_id
    used = np.arange(table.block_table.shape[1]) < table.num_blocks_per_row[:, None]
    assert not table.block_table[~used].any(), "an entry beyond a row's blocks is not 0"
    assert not table.num_blocks_per_row[len(rows.ids) :].any()


class BatchMachine(RuleBasedStateMachine):
    """Plans that no scheduler need ever make: any of the known requests scheduled, resumed, or left out."""

    @initialize()
    def start(self) -> None:
        self.batch, self.rows = make_batch(), Rows()
        self.known: dict[str, Known] = {}
        self.count = 0
        self.next_block = 1

    def take_blocks(self, computed: int, held: int) -> list[int]:
        needed = -(-computed // BLOCK_SIZE) - held
        taken = list(range(self.next_block, self.next_block + max(needed, 0)))
        self.next_block += len(taken)
        return taken

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        draw = data.draw
        finished = [req_id for req_id in self.known if draw(st.integers(0, 5)) == 0]
        for req_id in finished:
            del self.known[req_id]
        kept = [i for i, known in self.known.items() if len(known.tokens) < LENGTH - 1 and draw(st.integers(0, 3))]
        kept = draw(st.permutations(kept))[:SEATS]
        in_rows = [req_id for req_id in kept if req_id in self.rows.ids]
        others = [req_id for req_id in kept if req_id not in self.rows.ids]
        resumed = {req_id for req_id in kept if draw(st.integers(0, 4)) == 0}
        plan = make_plan(finished_req_ids=set(finished))
        plan.scheduled_cached_reqs.resumed_req_ids = resumed
        for req_id in in_rows + others:
            self.schedule_known(plan, req_id, resumed, draw)
        for _ in range(draw(st.integers(0, SEATS - len(kept)))):
            self.schedule_new(plan, draw)

        for req_id in finished:
            self.rows.remove(req_id)
        for req_id in [i for i in self.rows.ids if i is not None]:
            if req_id not in plan.num_scheduled_tokens or req_id in resumed:
                self.rows.remove(req_id)
        joining = [new.req_id for new in plan.scheduled_new_reqs]
        joining += [req_id for req_id in in_rows + others if req_id not in self.rows.ids]
        for req_id in joining:
            self.rows.add(req_id)
        self.rows.condense()
        self.batch.update_states(plan)
        check_rows(self.batch, self.rows, self.known)
        assert set(self.batch.requests) == set(self.known)
        self.run_and_sample(plan)

    def schedule_known(self, plan: SchedulerOutput, req_id: str, resumed: set[str], draw: Any) -> None:
        request, cached = self.known[req_id], plan.scheduled_cached_reqs
        if req_id in resumed:
            request.computed, request.blocks = 0, []
        n = draw(st.integers(1, max(len(request.tokens) - request.computed, 1)))
        blocks = self.take_blocks(request.computed + n, len(request.blocks))
        request.blocks = request.blocks + blocks
        cached.req_ids.append(req_id)
        cached.new_block_ids.append(list(request.blocks) if req_id in resumed else (blocks or None))
        cached.num_computed_tokens.append(request.computed)
        cached.num_output_tokens.append(0)
        plan.num_scheduled_tokens[req_id] = n

    def schedule_new(self, plan: SchedulerOutput, draw: Any) -> None:
        req_id = f"r{self.count}"
        self.count += 1
        prompt = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8))
        n = draw(st.integers(1, len(prompt)))
        blocks = self.take_blocks(n, 0)
        self.known[req_id] = Known(list(prompt), list(blocks))
        plan.scheduled_new_reqs.append(new_request(req_id, prompt, blocks))
        plan.num_scheduled_tokens[req_id] = n

    def run_and_sample(self, plan: SchedulerOutput) -> None:
        """The flat batch, and what is remembered of the tokens that come of it."""
        flat = self.batch.flatten(plan)
        ids: list[int] = []
        for req_id in self.rows.ids:
            request = self.known[req_id]
            ids += request.tokens[request.computed : request.computed + plan.num_scheduled_tokens[req_id]]
        assert flat.input_ids.tolist() == ids
        incomplete = self.batch.rows_with_incomplete_prompt(flat.seq_lens)
        sampled: list[list[int]] = []
        for row, req_id in enumerate(self.rows.ids):
            request = self.known[req_id]
            request.computed += plan.num_scheduled_tokens[req_id]
            assert (row in incomplete) is (request.computed < len(request.tokens))
            sampled.append([] if row in incomplete else [(7 * row + len(request.tokens)) % VOCAB])
            request.tokens += sampled[-1]
        self.batch.append_sampled_tokens(sampled)
        for req_id, request in self.known.items():
            state = self.batch.requests[req_id]
            assert state.prompt_token_ids + state.output_token_ids == request.tokens


TestBatch = BatchMachine.TestCase
TestBatch.settings = settings(max_examples=80, stateful_step_count=15)


class WithWorker(WatchedScheduler):
    """A scheduler whose plans go to a batch as well; what the batch makes of them is checked from the requests."""

    def __init__(self, *args: Any, **parts: Any) -> None:
        super().__init__(*args, **parts)
        self.batch = make_batch(self.max_num_running_reqs, self.max_model_len, self.block_size)

    def schedule(self) -> SchedulerOutput:
        plan = super().schedule()
        self.batch.update_states(plan)
        self.check_batch(plan)
        return plan

    def check_batch(self, plan: SchedulerOutput) -> None:
        batch = self.batch
        assert set(batch.req_ids) == set(plan.num_scheduled_tokens)
        flat = batch.flatten(plan)
        assert len(set(flat.slot_mapping.tolist())) == flat.num_actual_tokens, "a slot is written twice"
        incomplete = batch.rows_with_incomplete_prompt(flat.seq_lens)
        for row, req_id in enumerate(batch.req_ids):
            request = self.requests[req_id]
            tokens = slice(*flat.query_start_loc[row : row + 2].tolist())
            positions = range(
                request.num_computed_tokens - plan.num_scheduled_tokens[req_id], request.num_computed_tokens
            )
            assert flat.positions[tokens].tolist() == list(positions)
            assert flat.input_ids[tokens].tolist() == [request.all_token_ids[p] for p in positions]
            assert flat.slot_mapping[tokens].tolist() == [self.slot(req_id, p) for p in positions]
            assert flat.seq_lens[row] == request.num_computed_tokens
            assert flat.logits_indices[row] == tokens.stop - 1
            assert (row in incomplete) is (request.num_computed_tokens < request.num_tokens)
            assert batch.block_table.get_row(row) == self.kv_cache_manager.get_block_ids(req_id)

    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[Any]:
        by_id = dict(zip(result.req_ids, result.sampled_token_ids, strict=True))
        self.batch.append_sampled_tokens([by_id[req_id] for req_id in self.batch.req_ids])
        return super().update_from_output(plan, result)


@settings(max_examples=100)
@given(workloads())
def test_scheduler_and_batch_agree_at_every_step(workload: Workload) -> None:
    core = build_core(workload, {"scheduler": WithWorker})
    for _ in iterate_steps(workload, core):
        pass
    assert not core.scheduler.batch.requests


# ---------------------------------------------------------------------- rows by example


def start(batch: InputBatch, *names: str) -> None:
    news = [new_request(name, [1, 2], [index + 1]) for index, name in enumerate(names)]
    batch.update_states(make_plan(scheduled_new_reqs=news, num_scheduled_tokens=dict.fromkeys(names, 2)))


def go_on(batch: InputBatch, *names: str, finished: tuple[str, ...] = (), new: tuple[str, ...] = ()) -> list[str]:
    """One decode step of `names`, while `finished` leave and `new` join; returns the rows."""
    cached = CachedRequestData(
        req_ids=list(names),
        new_block_ids=[None] * len(names),
        num_computed_tokens=[2] * len(names),
        num_output_tokens=[1] * len(names),
    )
    batch.update_states(
        make_plan(
            scheduled_new_reqs=[new_request(name, [1], [9]) for name in new],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=dict.fromkeys([*names, *new], 1),
            finished_req_ids=set(finished),
        )
    )
    return batch.req_ids


def test_the_last_row_fills_the_lowest_hole() -> None:
    batch = make_batch()
    start(batch, "a", "b", "c", "d", "e")
    assert go_on(batch, "b", "d", "e", finished=("a", "c")) == ["e", "b", "d"]


def test_a_new_request_takes_the_lowest_hole_before_rows_are_moved() -> None:
    batch = make_batch()
    start(batch, "a", "b", "c", "d", "e")
    assert go_on(batch, "b", "d", "e", finished=("a", "c"), new=("f",)) == ["f", "b", "e", "d"]


def test_a_skipped_request_loses_its_row_and_keeps_its_state() -> None:
    batch = make_batch()
    start(batch, "a", "b")
    batch.append_sampled_tokens([[5], [6]])
    assert go_on(batch, "b") == ["b"]
    assert batch.requests["a"].output_token_ids == [5]
    assert go_on(batch, "b", "a") == ["b", "a"]
    assert batch.token_ids_cpu[1, :3].tolist() == [1, 2, 5]


def test_sampling_metadata_is_made_anew_only_when_rows_change() -> None:
    batch = make_batch()
    start(batch, "a", "b")
    first = batch.make_sampling_metadata()
    batch.append_sampled_tokens([[5], [6]])
    go_on(batch, "a", "b")
    assert batch.make_sampling_metadata() is first
    assert first.output_token_ids == [[5], [6]]  # live lists
    go_on(batch, "b", finished=("a",))
    assert batch.make_sampling_metadata() is not first


def test_a_generator_follows_its_request() -> None:
    batch = make_batch()
    news = [
        NewRequestData(name, [1], SamplingParams(seed=seed), [1], 0)
        for name, seed in (("a", None), ("b", 3), ("c", None))
    ]
    batch.update_states(make_plan(scheduled_new_reqs=news, num_scheduled_tokens={"a": 1, "b": 1, "c": 1}))
    assert set(batch.make_sampling_metadata().generators) == {1}
    generator = batch.requests["b"].generator
    go_on(batch, "b", "c", finished=("a",))
    assert batch.make_sampling_metadata().generators == {batch.req_id_to_index["b"]: generator}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "append", "clear", "move")),
            st.integers(0, 3),
            st.lists(st.integers(1, 9), max_size=3),
        )
    )
)
def test_block_table_is_a_list_of_lists(program: list[tuple[str, int, list[int]]]) -> None:
    table, model = BlockTable(4, 6), [[] for _ in range(4)]
    for operation, row, ids in program:
        if operation == "add":
            table.add_row(ids, row)
            model[row] = list(ids)
        elif operation == "append" and len(model[row]) + len(ids) <= 6:
            table.append_row(ids, row)
            model[row] = model[row] + ids
        elif operation == "clear":
            table.clear_row(row)
            model[row] = []
        elif operation == "move" and model[row] and not model[(row + 1) % 4]:
            table.move_row(row, (row + 1) % 4)
            model[(row + 1) % 4], model[row] = model[row], []
        assert [table.get_row(r) for r in range(4)] == model
        assert [table.block_table[r].tolist() for r in range(4)] == [ids + [0] * (6 - len(ids)) for ids in model]
