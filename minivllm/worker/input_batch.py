"""InputBatch: the rows of the batch, kept from step to step, and what the worker remembers of each request.

Owns: a CachedRequestState for every live request, also for those without a row (preempted, or not scheduled); the rows
of this step's requests, without holes: token ids, counters, block table.
Interface: update_states (from the scheduler's plan), flatten, append_sampled_tokens, make_sampling_metadata.
Must not know: why a request is scheduled, or what the model does.

Row order is neither arrival order nor scheduling order: a new request takes the lowest hole, and holes that remain are
filled from the end.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from minivllm.boundary import boundary
from minivllm.config import cdiv
from minivllm.core.sched_output import CachedRequestData, NewRequestData, SchedulerOutput
from minivllm.engine.messages import LogprobsLists
from minivllm.sample.metadata import SamplingMetadata
from minivllm.sampling_params import SamplingParams, SamplingType
from minivllm.worker.batch import FlatBatch, flatten
from minivllm.worker.block_table import BlockTable


@dataclass(slots=True)
class CachedRequestState:
    """All that the worker knows of a request. The scheduler never sends sampled tokens back: they are kept here.

    vLLM: v1/worker/gpu_input_batch.py::CachedRequestState
    """

    req_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    block_ids: list[int]
    num_computed_tokens: int
    generator: torch.Generator | None = None  # of a request with a seed; follows it through rows and preemption
    output_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: LogprobsLists | None = None  # of a prompt that is still being computed
    prompt_logprobs_sent: bool = False
    num_prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + len(self.output_token_ids)


class InputBatch:
    """vLLM: v1/worker/gpu_input_batch.py::InputBatch (with GPUModelRunner.requests and ._update_states)"""

    def __init__(
        self,
        max_num_reqs: int,
        max_model_len: int,
        block_size: int,
        vocab_size: int,
        device: torch.device,
        flatten_rows: Callable[..., FlatBatch] = flatten,
    ) -> None:
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.device = device
        self._flatten_rows = flatten_rows
        self.requests: dict[str, CachedRequestState] = {}
        self.req_ids: list[str | None] = []  # by row; None is a hole, and only inside update_states
        self.req_id_to_index: dict[str, int] = {}
        self.token_ids_cpu = np.zeros((max_num_reqs, max_model_len), dtype=np.int32)
        self.num_computed_tokens_cpu = np.zeros(max_num_reqs, dtype=np.int32)
        self.block_table = BlockTable(max_num_reqs, cdiv(max_model_len, block_size))
        self._holes: list[int] = []  # heap: the lowest first
        self._sampling_metadata: SamplingMetadata | None = None  # None: rows have changed

    @property
    def num_reqs(self) -> int:
        return len(self.req_id_to_index)

    # ------------------------------------------------------------------ rows

    @boundary("update_states")
    def update_states(self, plan: SchedulerOutput) -> None:
        """Take the scheduler's plan in. The order decides who gets which row.

        Drop the ended; take the rows of those that get no tokens, or resume; remember the new; update the known; give
        rows to the new, in the plan's order, then to the known without one; close the holes.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._update_states
        """
        for req_id in plan.finished_req_ids:
            self.requests.pop(req_id, None)
            self.remove_request(req_id)
        resumed = plan.scheduled_cached_reqs.resumed_req_ids
        for req_id in [i for i in self.req_ids if i is not None]:
            if req_id not in plan.num_scheduled_tokens or req_id in resumed:
                self.remove_request(req_id)  # it keeps its state, and loses its row
        joining = [self._remember(new) for new in plan.scheduled_new_reqs]
        joining += self._update_known(plan.scheduled_cached_reqs)
        for state in joining:
            self.add_request(state)
        self.condense()

    def _remember(self, new: NewRequestData) -> CachedRequestState:
        params = new.sampling_params
        generator = None
        if params.sampling_type is SamplingType.RANDOM_SEED:
            generator = torch.Generator(self.device).manual_seed(params.seed)
        state = CachedRequestState(
            req_id=new.req_id,
            prompt_token_ids=new.prompt_token_ids,
            sampling_params=params,
            block_ids=list(new.block_ids),
            num_computed_tokens=new.num_computed_tokens,
            generator=generator,
        )
        self.requests[new.req_id] = state
        return state

    def _update_known(self, cached: CachedRequestData) -> list[CachedRequestState]:
        """Update the requests that the worker knows, and their rows; returns those that need a row, in this order.

        New blocks go behind a request's others; those of a resumed request replace them: its old ones are gone.
        """
        joining = []
        for req_id, new_block_ids, num_computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            state = self.requests[req_id]
            # >>> lab 07.3 count and blocks, remembered and in the row; who has no row joins
            state.num_computed_tokens = num_computed
            if req_id in cached.resumed_req_ids:
                state.block_ids = list(new_block_ids)  # its old blocks are gone
            elif new_block_ids is not None:
                state.block_ids.extend(new_block_ids)
            row = self.req_id_to_index.get(req_id)
            if row is None:
                joining.append(state)
                continue
            self.num_computed_tokens_cpu[row] = num_computed
            if new_block_ids is not None:
                self.block_table.append_row(new_block_ids, row)
            # <<< lab 07.3
        return joining

    def add_request(self, state: CachedRequestState) -> int:
        """Give a request the lowest hole, or else a new row at the end; returns the row.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.add_request
        """
        # >>> lab 07.3 the lowest hole, or a new row at the end: row, and its place in req_ids
        if self._holes:
            row = heapq.heappop(self._holes)
            self.req_ids[row] = state.req_id
        else:
            row = len(self.req_ids)
            self.req_ids.append(state.req_id)
        # <<< lab 07.3
        self.req_id_to_index[state.req_id] = row
        num_prompt = len(state.prompt_token_ids)
        self.token_ids_cpu[row, :num_prompt] = state.prompt_token_ids
        self.token_ids_cpu[row, num_prompt : state.num_tokens] = state.output_token_ids
        self.num_computed_tokens_cpu[row] = state.num_computed_tokens
        self.block_table.add_row(state.block_ids, row)
        self._sampling_metadata = None
        return row

    def remove_request(self, req_id: str) -> None:
        """Take a request's row, if it has one, and leave a hole.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.remove_request
        """
        row = self.req_id_to_index.pop(req_id, None)
        if row is None:
            return
        self.req_ids[row] = None
        self.block_table.clear_row(row)
        heapq.heappush(self._holes, row)
        self._sampling_metadata = None

    def condense(self) -> None:
        """Fill holes from the end: the last row that is none moves into the lowest hole, until no hole is left.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch.condense
        """
        while self._holes:
            while self.req_ids and self.req_ids[-1] is None:
                self.req_ids.pop()
            hole = heapq.heappop(self._holes)
            if hole < len(self.req_ids):
                self._move_last_row(hole)

    def _move_last_row(self, target: int) -> None:
        """Move the row at the end, which must not be a hole, into the hole `target`."""
        req_id = self.req_ids.pop()
        source = len(self.req_ids)
        self.req_ids[target] = req_id
        self.req_id_to_index[req_id] = target
        num_tokens = self.requests[req_id].num_tokens
        self.token_ids_cpu[target, :num_tokens] = self.token_ids_cpu[source, :num_tokens]
        self.num_computed_tokens_cpu[target] = self.num_computed_tokens_cpu[source]
        self.block_table.move_row(source, target)

    # ------------------------------------------------------------------ the step

    def flatten(self, plan: SchedulerOutput) -> FlatBatch:
        """The plan's tokens as one flat batch, in row order.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs
        """
        num_scheduled = np.array([plan.num_scheduled_tokens[req_id] for req_id in self.req_ids], dtype=np.int32)
        return self._flatten_rows(
            self.num_computed_tokens_cpu[: self.num_reqs],
            num_scheduled,
            self.token_ids_cpu,
            self.block_table.block_table,
            self.block_size,
        )

    def rows_with_incomplete_prompt(self, seq_lens: np.ndarray) -> set[int]:
        """Rows of which tokens are still missing after this step: what is sampled for them is thrown away.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._prepare_inputs (discard_request_mask)
        """
        return {row for row, req_id in enumerate(self.req_ids) if seq_lens[row] < self.requests[req_id].num_tokens}

    def append_sampled_tokens(self, sampled_token_ids: list[list[int]]) -> None:
        """Remember the sampled tokens; the next step reads them from here.

        vLLM: v1/worker/gpu_model_runner.py::GPUModelRunner._bookkeeping_sync
        """
        for row, new_token_ids in enumerate(sampled_token_ids):
            state = self.requests[self.req_ids[row]]
            start = state.num_tokens
            self.token_ids_cpu[row, start : start + len(new_token_ids)] = new_token_ids
            state.output_token_ids.extend(new_token_ids)

    def make_sampling_metadata(self) -> SamplingMetadata:
        """The sampling parameters of the rows; made anew only when rows have changed.

        vLLM: v1/worker/gpu_input_batch.py::InputBatch._make_sampling_metadata
        """
        if self._sampling_metadata is None:
            states = [self.requests[req_id] for req_id in self.req_ids]
            self._sampling_metadata = make_sampling_metadata(states, self.vocab_size, self.device)
        return self._sampling_metadata


def make_sampling_metadata(states: list[CachedRequestState], vocab_size: int, device: torch.device) -> SamplingMetadata:
    """One row for each state, in order. A parameter that no row uses is None or empty.

    vLLM: v1/worker/gpu_input_batch.py::InputBatch._make_sampling_metadata
    """
    params = [state.sampling_params for state in states]
    greedy = [p.sampling_type is SamplingType.GREEDY for p in params]

    def column(values: list[float], off: float, dtype: torch.dtype = torch.float32) -> torch.Tensor | None:
        return None if all(v == off for v in values) else torch.tensor(values, dtype=dtype, device=device)

    penalties = (None, None, None)
    if any((p.presence_penalty, p.frequency_penalty, p.repetition_penalty) != (0, 0, 1) for p in params):
        names = ("presence_penalty", "frequency_penalty", "repetition_penalty")
        penalties = tuple(torch.tensor([float(getattr(p, name)) for p in params], device=device) for name in names)
    wanted = [vocab_size if p.logprobs == -1 else p.logprobs for p in params if p.logprobs is not None]
    return SamplingMetadata(
        all_greedy=all(greedy),
        all_random=not any(greedy),
        temperature=None
        if all(greedy)
        else torch.tensor([0.0 if g else p.temperature for g, p in zip(greedy, params, strict=True)], device=device),
        top_p=column([p.top_p for p in params], off=1.0),
        top_k=column([p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params], vocab_size, torch.int64),
        min_p=column([p.min_p for p in params], off=0.0),
        generators={row: state.generator for row, state in enumerate(states) if state.generator is not None},
        max_num_logprobs=max(wanted) if wanted else None,
        prompt_token_ids=[state.prompt_token_ids for state in states],
        output_token_ids=[state.output_token_ids for state in states],
        presence_penalties=penalties[0],
        frequency_penalties=penalties[1],
        repetition_penalties=penalties[2],
        allowed_token_ids_mask=_allowed_mask(params, vocab_size, device),
        bad_words_token_ids={r: p._bad_words_token_ids for r, p in enumerate(params) if p._bad_words_token_ids},
        min_tokens={r: (p.min_tokens, p._all_stop_token_ids) for r, p in enumerate(params) if p.min_tokens},
        logit_bias={r: p.logit_bias for r, p in enumerate(params) if p.logit_bias},
    )


def _allowed_mask(params: list[SamplingParams], vocab_size: int, device: torch.device) -> torch.Tensor | None:
    """bool[R, V], True is forbidden; None when every row allows everything."""
    if all(p.allowed_token_ids is None for p in params):
        return None
    mask = torch.zeros(len(params), vocab_size, dtype=torch.bool, device=device)
    for row, p in enumerate(params):
        if p.allowed_token_ids is not None:
            mask[row] = True
            mask[row, p.allowed_token_ids] = False
    return mask
