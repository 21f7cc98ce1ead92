"""Notebooks 00 to 02: the numbers of their story, in the recorded traces."""

import pytest

from minivllm.course.notebook import tokens
from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons import facts_00, facts_01, facts_02
from minivllm.proof.refs.map_page import HANDOVERS
from minivllm.trace import Trace, load


def trace(name: str) -> Trace:
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


# 00


def test_counts_of_a() -> None:
    wall = trace("one-wall")
    kinds = ("schedule", "model_forward", "attention", "get_new_blocks", "cache_full_blocks", "core.send", "free")
    assert [facts_00.num_calls(wall, kind) for kind in kinds] == [16, 15, 450, 2, 2, 15, 1]
    assert len(facts_00.answer_of(wall)) == 64
    assert [row[3] for row in facts_00.counts(wall)] == [16, 15, 450, 2, 2, 15, 15, 1]


def test_a_passes_all_stops_but_one() -> None:
    passed = facts_00.first_pass(trace("one-wall"), "0")
    assert set(HANDOVERS) - set(passed) == {"B26"}
    assert [one for one in passed if one not in ("B27", "B23")] == [
        one for one in HANDOVERS if one in passed[:8] + passed[10:]
    ]
    assert [stop for stop, _ in facts_00.stops()] == list(HANDOVERS)


def test_the_first_plan() -> None:
    plan = Story(trace("one-wall"), "A").plan(1)
    assert list(plan.num_computed_tokens.values()) == [(0, 41)]
    assert plan.num_free_blocks == (31, 28)


def test_header_and_why() -> None:
    rows = dict(facts_00.header_rows(trace("one-wall")))
    assert rows["settings that differ from the defaults"].startswith("`num_gpu_blocks_override` 32")
    assert rows["processes"] == "caller and core"
    assert facts_00.story(trace("one-wall"), "0", 1)[0] == (
        "answer",
        "Request 0 is admitted and gets the 41 tokens that it misses.",
    )


# 01


def test_who_wrote_the_prompt() -> None:
    parts = facts_01.segments(tokens(Story(trace("one"), "A").prompt("A")))
    assert [(part.first, part.last) for part in parts] == [(0, 20), (21, 23), (24, 34), (35, 36), (37, 40)]
    assert [part.size for part in parts if part.yours] == [11]


def test_what_becomes_of_the_parameters() -> None:
    rows = {row[1]: row[2:] for row in facts_01.completed(trace("one"))}
    assert rows["`output_kind`, on your own object"] == ("CUMULATIVE", "FINAL_ONLY")
    assert rows["end token, on the copy"] == (None, "2")
    assert rows["id"] == ("`0`", "`0-00000000`")


def test_the_caller_knows_first() -> None:
    rows = facts_01.who_knows(trace("one-wall"), "0")
    assert [row["stop"] for row in rows] == ["B4", "B4", "B5", "B6", "B7", "B8", "B9"]
    assert [row["in the caller's table"] for row in rows] == [False, False, True, True, True, True, True]
    assert [row["in the core's queue"] for row in rows] == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("name", "calls"), [("chunk-16", (17, 15)), ("one", (15, 15)), ("two-process-chunk-16", (15, 15))]
)
def test_calls_of_step(name: str, calls: tuple[int, int]) -> None:
    assert facts_01.calls(trace(name)) == calls
    assert facts_01.loop(trace(name))[-1]["open requests after it"] == 0


def test_ends_and_refusals() -> None:
    assert facts_01.endings(trace("order")) == [("1", 8), ("0", 15)]
    assert len(facts_01.untold(trace("one"))) == 1
    assert "greedy" in facts_01.refusal(n=2, temperature=0)
    with pytest.raises(ValueError, match="are taken"):
        facts_01.refusal(temperature=1)


def test_two_answers_are_two_requests() -> None:
    pair = trace("n2")
    plan = pair.filter(kind="schedule")[0]
    assert list(plan.num_scheduled_tokens.values()) == [41, 9]
    assert list(pair.state_at(plan.seq).block_tables.values()) == [[1, 2, 3], [1, 2, 4]]


# 02


def test_the_nap() -> None:
    slept = facts_02.nap(trace("nap"))
    assert slept.calls == 15
    assert slept.waiting == list(range(15, 0, -1))
    assert slept.ratio > 100
    assert slept.reading * 10 < slept.one_step


def test_the_wire() -> None:
    wall = trace("one-wall")
    sizes = {name: size for name, size, _ in facts_02.add_bytes(wall)}
    assert sum(sizes.values()) == wall.filter(kind="core_client.send")[0].num_bytes
    assert sizes["`prompt_token_ids`"] == 106
    replies = facts_02.replies(wall)
    assert len(replies) == 15
    usual, rare = facts_02.odd_ones(wall)[0]
    assert usual - rare == 2
    assert [size for _, size, _ in replies[1:]].count(usual) == 12
    assert facts_02.odd_ones(wall)[1] == [30, 2]
    assert [facts_02.id_bytes(token_id) for token_id in (30, 7042)] == [1, 3]


def test_hashes_are_made_beside_the_step() -> None:
    wall = trace("one-wall")
    assert facts_02.hashing_thread(wall) == "the core's input thread"
    assert len(wall.filter(kind="preprocess_add_request")[0].block_hashes) == 2
    assert len(facts_02.threads(wall)) == 5


def test_the_core_does_not_wait() -> None:
    events = [(event.kind, event.step) for event in facts_02.around_step(trace("one-wall"), 1)]
    assert events.index(("schedule", 2)) < events.index(("core_client.receive", 1))


def test_chunks_are_silent() -> None:
    small = trace("two-process-chunk-16")
    assert sum(1 for step in small.filter(kind="step") if step.executed) == 17
    assert len(small.filter(kind="core.send")) == 15


def test_who_runs_the_plan() -> None:
    assert facts_02.inside(trace("one"), "schedule") == ["chat", "run_engine", "get_output", "step", "schedule"]
    assert facts_02.inside(trace("one-wall"), "schedule") == ["step", "schedule"]


def test_freely_running_processes_plan_otherwise() -> None:
    pair = trace("together-wall")
    assert [(row["A"], row["B"]) for row in facts_02.plans(pair, 2, "AB")] == [(41, 0), (1, 9)]
    assert [len(event.reqs) for event in pair.filter(kind="core.send")].count(2) == 14
