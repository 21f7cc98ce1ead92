"""Traps 16 to 28 of docs/traps.md: the scheduler."""

from proof.lockstep.tools import EOS_TOKEN_ID, Core

from minivllm.core.sched_output import ModelRunnerOutput
from minivllm.engine.messages import FinishReason


def full_pool(**settings: object) -> Core:
    """Two requests whose blocks fill the pool: the next token of "a" finds no block free."""
    core = Core(**({"num_blocks": 9, "max_model_len": 32} | settings))
    core.add("a", 16)
    core.add("b", 13)
    core.step()
    assert core.free() == []
    return core


def test_running_requests_come_before_waiting_ones() -> None:
    core = Core(max_num_batched_tokens=8)
    core.add("a", 12)
    core.step()
    core.add("b", 12)
    assert list(core.step().num_scheduled_tokens.items()) == [("a", 4), ("b", 4)]


def test_nobody_is_admitted_in_a_step_with_a_preemption() -> None:
    core = full_pool()
    core.add("c", 1)
    plan = core.step()
    assert plan.preempted_req_ids == {"b"}
    assert len(core.free()) >= 1, "the new request would fit"
    assert plan.num_scheduled_tokens == {"a": 1}


def test_a_running_request_with_nothing_to_do_does_not_stop_the_others() -> None:
    core = Core(max_model_len=8)
    core.add("full", 6, max_tokens=50, min_tokens=50)  # can't end, can't go on: the engine refuses it at the door
    core.add("b", 1)
    for _ in range(3):
        core.step()
    assert core.step().num_scheduled_tokens == {"b": 1}
    assert core.requests["full"].num_computed_tokens == 7, "the last place of the context is never computed"


def test_a_waiting_request_that_does_not_fit_holds_up_those_behind_it() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    core.add("a", 16)
    core.step()
    core.add("large", 20)
    core.add("small", 1)
    assert core.step().num_scheduled_tokens == {"a": 1}


def test_the_last_admitted_is_the_victim() -> None:
    core = full_pool()
    assert core.step().preempted_req_ids == {"b"}


def test_the_victim_can_be_the_request_that_needs_the_block() -> None:
    core = Core(num_blocks=9, max_model_len=32)
    core.add("a", 13)
    core.add("b", 16)
    core.step()
    plan = core.step()  # "a" has room in its last block, "b" has none
    assert plan.preempted_req_ids == {"b"}
    assert plan.num_scheduled_tokens == {"a": 1}


def test_under_priority_the_least_important_and_latest_is_the_victim() -> None:
    core = Core(num_blocks=13, max_model_len=32, policy="priority")
    for name, priority in (("a", 1), ("b", 5), ("c", 5), ("d", 0)):
        core.add(name, 12, priority=priority)
    core.step()
    assert core.step().preempted_req_ids == {"c"}


def test_a_victims_tokens_go_back_to_the_budget() -> None:
    core = Core(
        num_blocks=9,
        max_model_len=32,
        policy="priority",
        long_prefill_token_threshold=2,
        max_num_batched_tokens=4,
        max_num_seqs=4,
    )
    core.add("a", 12, priority=5)
    core.step()
    core.add("b", 14)
    core.add("c", 4)
    for _ in range(6):
        core.step()
    plan = core.step()  # "a" has 2 of 4 tokens when "b" finds no block: "b" and "c" share what it had
    (preemption,) = plan.preemptions
    assert (preemption.req_id, preemption.was_scheduled) == ("a", True)
    assert plan.num_scheduled_tokens == {"b": 2, "c": 2}


def test_without_chunks_a_prompt_may_take_the_whole_rest_of_the_budget() -> None:
    core = Core(enable_chunked_prefill=False, num_blocks=33)
    core.add("a", 40)
    core.add("b", 24)
    core.add("c", 1)
    assert core.step().num_scheduled_tokens == {"a": 40, "b": 24}


def test_the_prefix_hit_is_told_once_with_the_first_token() -> None:
    core = full_pool()
    assert core.step().preempted_req_ids == {"b"}
    core.abort("a")
    plan = core.scheduler.schedule()
    assert plan.scheduled_cached_reqs.num_computed_tokens[0] > 0, "it resumes with a hit"
    (output,) = core.update(plan)
    assert output.prefill_stats is None, "it was told with the first token"


def test_a_preempted_request_goes_to_the_front_and_computes_its_outputs_again() -> None:
    core = full_pool(enable_prefix_caching=False)
    core.add("c", 1)
    core.step()
    victim = core.requests["b"]
    assert core.names(core.scheduler.waiting) == ["b", "c"]
    assert (victim.num_computed_tokens, victim.num_output_tokens, victim.num_preemptions) == (0, 1, 1)
    core.abort("a")
    plan = core.step()
    assert plan.num_scheduled_tokens["b"] == 14  # 13 of the prompt and 1 output
    assert plan.scheduled_cached_reqs.resumed_req_ids == {"b"}


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    core = full_pool()
    core.step()
    hashes = list(core.requests["b"].block_hashes)
    core.abort("a")
    plan = core.step()
    assert core.requests["b"].block_hashes == hashes
    assert plan.num_scheduled_tokens["b"] < 14


def test_counters_advance_when_a_step_is_planned() -> None:
    core = Core(max_num_batched_tokens=8)
    request = core.add("a", 12)
    core.scheduler.schedule()
    assert request.num_computed_tokens == 8
    plan = core.scheduler.schedule()  # before the first result has come back
    assert plan.scheduled_cached_reqs.num_computed_tokens == [8]
    assert plan.num_scheduled_tokens == {"a": 4}


def test_the_last_token_of_the_context_is_sampled_and_never_computed() -> None:
    core = Core(max_model_len=8)
    request = core.add("a", 7)
    core.step()
    assert request.num_output_tokens == 1
    assert request.get_finished_reason() is FinishReason.LENGTH
    longer = core.add("b", 5)
    while not longer.is_finished:
        core.step()
    assert (longer.num_tokens, longer.num_computed_tokens) == (8, 7)


def test_the_worker_hears_of_an_end_with_the_next_plan() -> None:
    core = Core()
    core.add("a", 4, max_tokens=1)
    core.add("b", 4)
    ending = core.step()
    assert ending.finished_req_ids == set()
    assert core.blocks("a") == [], "its blocks are free already"
    following = core.step()
    assert following.finished_req_ids == {"a"}
    core.step()
    assert following.finished_req_ids == {"a"}, "the plan that holds the set is not emptied afterwards"


def test_there_is_something_to_do_until_the_last_end_is_told() -> None:
    core = Core()
    core.add("a", 4, max_tokens=1)
    core.step()
    assert core.scheduler.has_requests()
    flush = core.step()
    assert (flush.num_scheduled_tokens, flush.finished_req_ids) == ({}, {"a"})
    assert not core.scheduler.has_requests()


def test_a_part_of_a_prompt_gives_no_output() -> None:
    core = Core(max_num_batched_tokens=8)
    core.add("a", 12)
    assert core.update(core.scheduler.schedule()) == []
    (output,) = core.update(core.scheduler.schedule())
    assert len(output.new_token_ids) == 1


def test_what_ends_a_request_is_looked_for_in_order() -> None:
    def end_of(token: int, **params: object) -> tuple[str, object]:
        core = Core()
        request = core.add("a", 4, **params)
        core.step(a=token)
        return str(request.get_finished_reason()), request.stop_reason

    assert end_of(EOS_TOKEN_ID, max_tokens=1, min_tokens=1) == ("stop", None)
    assert end_of(EOS_TOKEN_ID, min_tokens=2) == ("None", None)
    assert end_of(EOS_TOKEN_ID, ignore_eos=True) == ("None", None)
    assert end_of(EOS_TOKEN_ID, stop_token_ids=[EOS_TOKEN_ID]) == ("stop", None), "end of text comes first"
    assert end_of(EOS_TOKEN_ID, stop_token_ids=[EOS_TOKEN_ID], ignore_eos=True) == ("stop", EOS_TOKEN_ID)
    assert end_of(55, stop_token_ids=[55], max_tokens=1) == ("stop", 55), "a stop token comes before the length"
    assert end_of(55, max_tokens=1) == ("length", None)


def test_a_result_for_a_request_that_is_gone_is_ignored() -> None:
    core = Core()
    core.add("a", 4)
    core.add("b", 4)
    plan = core.scheduler.schedule()
    core.abort("a")
    result = ModelRunnerOutput(["a", "b"], {"a": 0, "b": 1}, [[70], [71]])
    (output,) = core.scheduler.update_from_output(plan, result)
    assert (output.request_id, output.new_token_ids) == ("b", [71])


def test_of_several_victims_of_a_step_the_last_is_first_in_the_queue() -> None:
    core = Core(num_blocks=5, max_model_len=16)
    for name, length in (("a", 4), ("b", 4), ("c", 3), ("d", 3)):
        core.add(name, length)
    core.step()
    plan = core.step()  # "a" takes the block of "d", then "b" that of "c"
    assert [preemption.req_id for preemption in plan.preemptions] == ["d", "c"]
    assert core.names(core.scheduler.waiting) == ["c", "d"]


def test_a_common_prefix_is_common_to_all_that_hold_blocks() -> None:
    core = Core(max_num_batched_tokens=20)
    tokens = core.new_tokens(8)
    core.add("a", [*tokens, 1])
    core.add("b", [*tokens, 2])
    assert core.step().num_common_prefix_blocks == 2
    core.add("c", 16)  # holds blocks from now on, and shares none
    assert core.step().num_common_prefix_blocks == 0


def test_a_result_belongs_to_the_row_that_its_index_names() -> None:
    core = Core()
    core.add("a", 4)
    core.add("b", 4)
    plan = core.scheduler.schedule()
    swapped = ModelRunnerOutput(["b", "a"], {"b": 0, "a": 1}, [[71], [70]])
    outputs = core.scheduler.update_from_output(plan, swapped)
    assert {output.request_id: output.new_token_ids for output in outputs} == {"a": [70], "b": [71]}
