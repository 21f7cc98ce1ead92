"""Notebook 11 as the storyboard tells it: who forgets a request when."""

import pytest

from minivllm.course.notebook import Notebook
from minivllm.course.notebook.story import Story
from minivllm.lessons.facts_10 import verdict
from minivllm.lessons.facts_11 import BLOCKS, CALLER, WORKER, knows, late_abort, late_events, moments
from minivllm.trace import Trace

NB = Notebook("11")


@pytest.fixture(scope="module")
def two() -> Trace:
    return NB.trace("two-process")


def test_sixteen_plans_for_fifteen_tokens(two: Trace) -> None:
    assert len(two.filter(kind="schedule")) == 16
    assert len(two.filter(kind="core.send")) == 15


def test_the_blocks_come_first() -> None:
    for name in ("one-wall", "two-process"):
        found = moments(NB.trace(name))
        assert set(found) == {BLOCKS, WORKER, CALLER}
        assert next(iter(found)) == BLOCKS


def test_the_answer_comes_soon_after_the_blocks() -> None:
    wall = NB.trace("one-wall")
    found, steps = moments(wall), wall.filter(kind="step")
    assert 0 < found[CALLER].t1 - found[BLOCKS].t1 < steps[-2].duration / 10


def test_phase_1(two: Trace) -> None:
    update = two.filter(kind="update_from_output", step=15)[0]
    before, after = knows(two, update.seq, before=True), knows(two, update.seq)
    assert (before["free blocks"], after["free blocks"]) == ("27", "31")
    assert (before["blocks held"], after["blocks held"]) == ("1 2 3 4", "none")
    assert after["in the scheduler's running list"] == "no"
    assert after["note for the worker (finished_req_ids)"] == "yes"
    assert (after["row of the worker"], after["open for the caller"]) == ("0", "yes")


def test_phase_2(two: Trace) -> None:
    plan = two.filter(kind="schedule")[-1]
    assert (plan.step, plan.total_num_scheduled_tokens) == (16, 0)
    assert plan.finished_req_ids == two.request_ids
    assert two.filter(kind="update_states", step=16)[0].removed == two.request_ids
    assert not two.filter(kind=("model_forward", "core.send"), step=16)


def test_in_process_the_flush_travels_with_the_next_request() -> None:
    again = Story(NB.trace("again"), "A A′ B C F")
    assert again.plan(16).finished_req_ids == [again.ids["A"]]
    assert again.sent(16)["A′"] == 9
    assert again.table("A′", 16)[:2] == [1, 2]
    rows = again.event("update_states", 16)
    assert (rows.removed, rows.added) == ([again.ids["A"]], [again.ids["A′"]])


def test_two_leave_and_one_stays() -> None:
    together = Story(NB.trace("together"), "A B C")
    assert together.ended(15).free_order[-5:] == [7, 3, 8, 4, 2]
    assert together.ended(15).owners(1) == [together.ids["C"]]
    assert (together.rows(15), together.rows(16)) == (["A", "B", "C"], ["C"])


def test_the_late_abort() -> None:
    late = late_abort(NB.trace("two-process-late-abort"))
    assert (late.sampled, late.delivered) == (7, 6)
    assert late.handled == [True, False]  # the fast queue, then the ordinary one


def test_the_late_abort_event_by_event() -> None:
    told = late_events(NB.trace("two-process-late-abort"))
    whats = [one.what for one in told]
    order = [
        "samples the token",
        "sends it",
        "finds the stop string",
        "sends ABORT",
        "applies the abort",
        "nothing to end",
    ]
    places = [next(i for i, what in enumerate(whats) if part in what) for part in order]
    assert places == sorted(places)
    plan = next(i for i, what in enumerate(whats) if what == "plans step 7")
    assert plan < places[2]  # before the caller has read the token
    assert {one.lane for one in told} == {"caller", "core"}


def test_at_rest(two: Trace) -> None:
    state = two.final_state()
    assert (len(state.free_blocks), len(state.ref_cnts), len(state.rows)) == (31, 0, 0)
    assert sorted(state.block_hashes) == [1, 2, 3]


def test_what_if() -> None:
    gone = Story(NB.trace("abort"), "A B")
    assert gone.plan(6).finished_req_ids == [gone.ids["A"]]
    assert (gone.rows(5), gone.rows(6)) == (["A", "B"], ["B"])
    single = NB.trace("max-tokens-1")
    assert single.steps == [1]
    assert verdict(single).finish_reason == "length"
    assert single.final_state().free_order[-4:] == [31, 3, 2, 1]
    capped = Story(NB.trace("max-len-48"), "A")
    assert (len(capped.outputs("A")), verdict(capped.trace).finish_reason) == (7, "length")
