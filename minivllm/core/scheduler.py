"""Scheduler: which requests get how many tokens in this step, and what their new tokens mean.

Owns: all live requests, the queues `waiting` and `running`, the ids that have ended since the last plan.
Interface: add_request / finish_requests; schedule / update_from_output; has_requests; reset_prefix_cache.
Must not know: text, tensors, sockets, or whether anybody watches.

A step is two passes over one token budget. Running requests come first; each brings its num_computed_tokens up to its
num_tokens, one token for a decode, more for a prompt. If blocks run out, a running request is preempted. Then, unless
something was preempted, waiting requests are admitted from the head of the queue until budget, seats or blocks end.
"""

import time
from collections.abc import Callable, Iterable

from minivllm.boundary import boundary
from minivllm.config import EngineConfig
from minivllm.core.block_pool import KVCacheBlock
from minivllm.core.kv_cache_manager import KVCacheManager
from minivllm.core.request import Request, RequestStatus, check_stop, update_request_with_output
from minivllm.core.request_queue import create_request_queue
from minivllm.core.sched_output import ModelRunnerOutput, Preemption, SchedulerOutput, Skipped
from minivllm.core.skipped import find_skipped
from minivllm.core.step_plan import StepPlan
from minivllm.engine.messages import EngineCoreEventType, EngineCoreOutput


class Scheduler:
    """vLLM: v1/core/sched/scheduler.py::Scheduler (simplified: synchronous, no speculative tokens, no connectors)"""

    def __init__(
        self,
        config: EngineConfig,
        kv_cache_manager: KVCacheManager,
        check_stop: Callable[[Request, int], bool] = check_stop,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_num_running_reqs = config.max_num_seqs
        self.max_num_scheduled_tokens = config.max_num_batched_tokens
        self.max_model_len = config.max_model_len
        self.long_prefill_token_threshold = config.long_prefill_token_threshold
        self.enable_chunked_prefill = config.enable_chunked_prefill
        self.policy = config.scheduling_policy
        self.scheduler_reserve_full_isl = config.scheduler_reserve_full_isl
        self.kv_cache_manager = kv_cache_manager
        self.check_stop = check_stop
        self.clock = clock
        self.requests: dict[str, Request] = {}
        self.waiting = create_request_queue(self.policy)
        self.running: list[Request] = []  # in order of admission
        self.finished_req_ids: set[str] = set()  # ended since the last plan; the worker has not been told yet

    # ------------------------------------------------------------------ requests come and go

    @boundary("scheduler.add_request")
    def add_request(self, request: Request) -> None:
        """Put a new request at the back of the waiting queue.

        vLLM: v1/core/sched/scheduler.py::Scheduler.add_request
        """
        assert request.request_id not in self.requests, f"{request} is in the scheduler already"
        self.requests[request.request_id] = request
        self.waiting.add_request(request)
        request.record_event(EngineCoreEventType.QUEUED, self.clock())

    @boundary("finish_requests")
    def finish_requests(self, request_ids: Iterable[str], status: RequestStatus) -> list[str]:
        """End requests from outside, as an abort does. Unknown and ended ids are ignored; returns those that ended.

        vLLM: v1/core/sched/scheduler.py::Scheduler.finish_requests
        """
        finished, from_waiting = [], []
        for request_id in dict.fromkeys(request_ids):
            request = self.requests.get(request_id)
            if request is None or request.is_finished:
                continue
            if request.status is RequestStatus.RUNNING:
                self.running.remove(request)
            else:
                from_waiting.append(request)
            finished.append(request)
        self.waiting.remove_requests(from_waiting)  # all at once: each one alone would walk through the queue
        for request in finished:
            request.status = status
            self._free_request(request)
        return [request.request_id for request in finished]

    def has_requests(self) -> bool:
        """True while a request lives, or an end has not been told to the worker.

        vLLM: v1/core/sched/interface.py::SchedulerInterface.has_requests
        """
        return bool(self.running or self.waiting or self.finished_req_ids)

    def reset_prefix_cache(self) -> bool:
        """Forget the prefix cache. False, and nothing happens, while any request holds blocks.

        vLLM: v1/core/sched/scheduler.py::Scheduler.reset_prefix_cache
        """
        return self.kv_cache_manager.block_pool.reset_prefix_cache()

    # ------------------------------------------------------------------ the plan of a step

    @boundary("schedule")
    def schedule(self) -> SchedulerOutput:
        """Plan one step. num_computed_tokens advances here, before anything is computed.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        step = StepPlan(token_budget=self.max_num_scheduled_tokens, timestamp=self.clock())
        # >>> lab 03.4 the two passes
        self._schedule_running(step)
        if not step.preempted:
            self._schedule_waiting(step)
        # <<< lab 03.4
        return self._finish_plan(step)

    def _num_new_tokens(self, missing: int, token_budget: int) -> int:
        """Tokens that a request gets of its `missing` ones: at most the threshold (0: none), and at most the budget."""
        if 0 < self.long_prefill_token_threshold < missing:
            missing = self.long_prefill_token_threshold
        return min(missing, token_budget)

    def _schedule_running(self, step: StepPlan) -> None:
        """Pass 1: every running request gets what it misses, in order of admission.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        while step.req_index < len(self.running) and step.token_budget > 0:
            request = self.running[step.req_index]
            n = self._num_new_tokens(request.num_tokens - request.num_computed_tokens, step.token_budget)
            # the token at the last position is sampled, but never fed to the model
            n = min(n, self.max_model_len - 1 - request.num_computed_tokens)
            if n == 0:
                step.req_index += 1
                continue
            new_blocks = self._allocate_or_preempt(request, n, step)
            if new_blocks is None:
                break
            step.scheduled_running.append(request)
            step.new_blocks[request.request_id] = new_blocks
            step.num_scheduled_tokens[request.request_id] = n
            step.token_budget -= n
            step.req_index += 1

    def _allocate_or_preempt(self, request: Request, n: int, step: StepPlan) -> list[KVCacheBlock] | None:
        """Slots for `n` tokens of a running request, at the cost of others if need be. None: it had to go itself.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        while (new_blocks := self.kv_cache_manager.allocate_slots(request, n)) is None:
            victim = self._select_victim()
            self._preempt_for(request, n, victim, step)
            if victim is request:
                return None
        return new_blocks

    def _preempt_for(self, request: Request, n: int, victim: Request, step: StepPlan) -> None:
        """Preempt `victim`, since `n` tokens of `request` do not fit; note it in the plan, with the numbers behind it.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        needed, num_free = self.kv_cache_manager.get_shortage(request, n)
        note = Preemption(
            req_id=victim.request_id,
            for_req_id=request.request_id,
            blocks_needed=needed,
            blocks_free=num_free,
            num_computed_tokens=victim.num_computed_tokens,
            was_scheduled=victim.request_id in step.num_scheduled_tokens,
        )
        self._take_from_running(victim, step)
        self._preempt_request(victim)
        victim.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        note.blocks_returned = self.kv_cache_manager.block_pool.get_num_free_blocks() - num_free
        step.preempted.append(victim)
        step.preemptions.append(note)

    def _select_victim(self) -> Request:
        """Who gives up its blocks: the latest admitted; by priority, the least important, of equals the latest.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        if self.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival_time))
        return self.running[-1]

    def _take_from_running(self, victim: Request, step: StepPlan) -> None:
        """Take the victim out of the running list, and out of the plan if it is in it already.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        self.running.remove(victim)
        if victim.request_id in step.num_scheduled_tokens:
            step.scheduled_running.remove(victim)
            step.token_budget += step.num_scheduled_tokens.pop(victim.request_id)
            del step.new_blocks[victim.request_id]
            step.req_index -= 1

    def _preempt_request(self, victim: Request) -> None:
        """Take a request's blocks and put it back to the front of the waiting queue.

        It keeps its output tokens and its hashes and loses its progress: it will compute prompt and outputs again, as
        far as they can't be found in the prefix cache.

        vLLM: v1/core/sched/scheduler.py::Scheduler._preempt_request
        """
        victim.num_preemptions += 1
        # >>> lab 06.2 blocks, status, progress, queue
        self._forget_uncomputed_blocks(victim)
        self.kv_cache_manager.free(victim)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = 0
        self.waiting.prepend_request(victim)
        # <<< lab 06.2

    def _forget_uncomputed_blocks(self, victim: Request) -> None:
        """Keep blocks that this step was to fill out of the prefix cache.

        vLLM: none, vLLM can hit such blocks and then answers from K and V never written (docs/differences.md)
        """
        self.kv_cache_manager.forget_uncomputed_blocks(victim)

    def _schedule_waiting(self, step: StepPlan) -> None:
        """Pass 2: admit from the head of the waiting queue. The first that can't be admitted ends the pass.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        while self.waiting and step.token_budget > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting.peek_request()
            hits, num_hit_tokens = self.kv_cache_manager.get_computed_blocks(request)
            # num_tokens, not the prompt: a resumed request computes its outputs again too
            missing = request.num_tokens - num_hit_tokens
            if not self.enable_chunked_prefill and self._num_new_tokens(missing, missing) > step.token_budget:
                step.refuse(request, "not_fit_in_budget", len(self.running), num_hit_tokens)
                break
            n = self._num_new_tokens(missing, step.token_budget)
            fits = self.kv_cache_manager.allocate_slots(
                request, n, num_hit_tokens, hits, full_sequence_must_fit=self.scheduler_reserve_full_isl
            )
            if fits is None:
                needed, num_free = self.kv_cache_manager.get_shortage(
                    request, n, num_hit_tokens, hits, full_sequence_must_fit=self.scheduler_reserve_full_isl
                )
                step.refuse(request, "blocks", len(self.running), num_hit_tokens, needed, num_free)
                break
            self._admit(self.waiting.pop_request(), n, num_hit_tokens, step)

    def _admit(self, request: Request, n: int, num_hit_tokens: int, step: StepPlan) -> None:
        """Give a waiting request, which has left its queue, a seat and `n` tokens. Its hits count as computed.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        request.record_event(EngineCoreEventType.SCHEDULED, step.timestamp)
        request.set_prefill_stats(num_hit_tokens)
        (step.resumed if request.status is RequestStatus.PREEMPTED else step.new).append(request)
        # >>> lab 03.3 seat, status, progress, tokens
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_hit_tokens
        step.num_scheduled_tokens[request.request_id] = n
        step.token_budget -= n
        # <<< lab 03.3

    def _finish_plan(self, step: StepPlan) -> SchedulerOutput:
        """Write the plan down for the worker, and take it as done.

        vLLM: v1/core/sched/scheduler.py::Scheduler.schedule
        """
        plan = step.to_scheduler_output(self.running, self.kv_cache_manager, self.finished_req_ids)
        self._update_after_schedule(plan)
        return plan

    def _update_after_schedule(self, plan: SchedulerOutput) -> None:
        """Count the planned tokens as computed; the next plan carries the next ends.

        vLLM: v1/core/sched/scheduler.py::Scheduler._update_after_schedule
        """
        for request_id, n in plan.num_scheduled_tokens.items():
            self.requests[request_id].num_computed_tokens += n
        # a new set, since the plan holds the old one
        self.finished_req_ids = set()

    def find_skipped(self, plan: SchedulerOutput) -> list[Skipped]:
        """Why each request without tokens got none; to be asked before anything else happens. O(live requests)."""
        return find_skipped(plan, self.running, self.waiting, self.max_num_running_reqs)

    # ------------------------------------------------------------------ what came back

    @boundary("update_from_output")
    def update_from_output(self, plan: SchedulerOutput, result: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Take the sampled tokens in, end what ends, and say what is new. A request without new tokens says nothing.

        vLLM: v1/core/sched/scheduler.py::Scheduler.update_from_output
        """
        outputs: list[EngineCoreOutput] = []
        stopped: set[str] = set()
        for request_id in plan.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None:
                continue  # aborted while the step ran
            row = result.req_id_to_index[request_id]
            new_token_ids, ended = result.sampled_token_ids[row], False
            if new_token_ids:
                new_token_ids, ended = self._update_request_with_output(request, new_token_ids)
            if ended:
                self._free_request(request)
                stopped.add(request_id)
            if new_token_ids:
                outputs.append(self._make_output(request, new_token_ids, result, row))
        if stopped:
            self.running = [request for request in self.running if request.request_id not in stopped]
        return outputs

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """vLLM: v1/core/sched/scheduler.py::Scheduler._update_request_with_output"""
        return update_request_with_output(request, new_token_ids, self.max_model_len, self.check_stop)

    def _make_output(
        self, request: Request, new_token_ids: list[int], result: ModelRunnerOutput, row: int
    ) -> EngineCoreOutput:
        """What the caller is told of a request."""
        wants_logprobs = result.logprobs is not None and request.sampling_params.logprobs is not None
        return EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=new_token_ids,
            new_logprobs=result.logprobs.slice_request(row) if wants_logprobs else None,
            new_prompt_logprobs=result.prompt_logprobs_dict.get(request.request_id),
            finish_reason=request.get_finished_reason(),
            stop_reason=request.stop_reason,
            events=request.take_events(),
            prefill_stats=request.take_prefill_stats(),
        )

    def _free_request(self, request: Request) -> None:
        """The first of two phases: blocks are free now, the worker hears of it with the next plan.

        vLLM: v1/core/sched/scheduler.py::Scheduler._free_request
        """
        self.finished_req_ids.add(request.request_id)
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]
