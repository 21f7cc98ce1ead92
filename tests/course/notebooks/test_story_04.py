"""Notebook 04: the numbers of its story, in the recorded traces. They are the real vLLM's."""

import pytest

from minivllm.course.notebook.story import Story
from minivllm.course.places import repo_path
from minivllm.lessons.facts_04 import block_sizes, chain, deals, filled, lowest_slot, moment, prompts
from minivllm.trace import load


def story(name: str, cast: str) -> Story:
    return Story(load(str(repo_path("traces") / f"{name}.jsonl.gz")), cast)


@pytest.fixture(scope="module")
def one() -> Story:
    return story("one", "A")


@pytest.fixture(scope="module")
def again() -> Story:
    return story("again", "A A′ B C F")


def test_one_of_the_blocks_is_never_handed_out(one: Story) -> None:
    assert one.trace.header.num_gpu_blocks == 32
    assert one.trace.state_at(0, before=True).free_order == list(range(1, 32))
    assert lowest_slot(one.trace) == 16


def test_the_block_border_in_the_middle_of_decoding(one: Story) -> None:
    assert filled(one, "A", 1) == [16, 16, 9]
    moments = [moment(one, "A", step) for step in (7, 8, 9)]
    assert [(row["known"], row["computed"], row["block table"]) for row in moments] == [
        (47, "46 → 47", "1 2 3"),
        (48, "47 → 48", "1 2 3"),
        (49, "48 → 49", "1 2 3 4"),
    ]
    assert [row["cells in use"] for row in moments] == ["16 + 16 + 15", "16 + 16 + 16", "16 + 16 + 16 + 1"]
    assert [row["free blocks"] for row in moments] == [28, 28, 27]


def test_two_calls_of_fifteen_take_blocks(one: Story) -> None:
    assert len(one.trace.filter(kind="allocate_slots")) == 15
    assert [(call.step, call.new_block_ids) for call in deals(one, "A")] == [(1, [1, 2, 3]), (9, [4])]


def test_the_free_queue_after_the_end(one: Story) -> None:
    assert one.ended(15).free_order == [*range(5, 32), 4, 3, 2, 1]
    assert one.event("update_from_output", 15).num_free_blocks == (27, 31)


def test_names_come_with_the_plan(one: Story) -> None:
    (arrival,) = one.trace.filter(kind="preprocess_add_request")
    assert len(arrival.block_hashes) == 2
    assert [set(one.state(step).block_hashes) for step in (1, 7, 8)] == [{1, 2}, {1, 2}, {1, 2, 3}]
    links = chain(one, "A")
    assert [(link["block"], link["tokens"], link["named in step"]) for link in links] == [
        (1, "0..15", 1),
        (2, "16..31", 1),
        (3, "32..47", 8),
    ]
    assert [link["name before"] for link in links[1:]] == [link["its name"] for link in links[:-1]]
    assert [one.batch(step).positions[-1] for step in (1, 8)] == [40, 47]  # the third is named as its last token is fed


def test_asked_again(again: Story) -> None:
    assert [again.hit(name) for name in again.cast] == [0, 32, 32, 16, 48]
    assert [again.table(name, again.first_step(name)) for name in again.cast] == [
        [1, 2, 3],
        [1, 2, 5],
        [1, 2, 7],
        [1, 9, 10],
        [1, 2, 3, 12, 13],
    ]
    step = again.first_step("A′")
    before, after = again.trace.state_at(again.at(step), before=True), again.state(step)
    assert (before.free_order[:3], before.free_order[-4:]) == ([5, 6, 7], [4, 3, 2, 1])
    assert (after.free_order[:3], after.free_order[-2:]) == ([6, 7, 8], [4, 3])


def test_a_conversation_finds_what_the_model_said(again: Story) -> None:
    lived = again.prompt("A") + again.outputs("A")
    assert len(again.prompt("F")) == 70
    assert again.prompt("F")[:48] == lived[:48]
    assert again.hit("F") - len(again.prompt("A")) == 7
    assert again.computed("A", again.last_step("A"))[1] == 55
    named = again.state(again.first_step("F")).cached_blocks.values()
    assert [blocks for blocks in named if len(blocks) > 1] == [[3, 5]]


def test_everything_is_there_and_a_block_is_computed() -> None:
    full = story("full", "G G′")
    assert (len(full.prompt("G")), full.hit("G′"), full.steps) == (48, 32, 16)
    (look,) = full.trace.filter(kind="get_computed_blocks", request=full.ids["G′"])
    assert (look.num_looked_up, look.first_miss) == (2, None)


def test_twins() -> None:
    twins = story("twins", "A A′")
    assert twins.sent(1) == {"A": 41, "A′": 9}
    assert (twins.table("A", 1), twins.table("A′", 1)) == ([1, 2, 3], [1, 2, 4])


def test_the_tail_is_lost_first() -> None:
    small = story("evict", "A C D A′")
    assert (small.hit("A′"), small.steps) == (16, 106)
    old = small.table("A", small.last_step("A"))
    assert [block for call in deals(small, "D") for block in call.new_block_ids if block in old] == [4, 3, 2]


def test_block_sizes(again: Story) -> None:
    rows = block_sizes({n: story(f"block-{n}", "A A′") for n in (1, 4, 8, 32, 64)} | {16: again})
    assert [row["A′ finds"] for row in rows] == [40, 40, 40, 32, 32, 0]
    assert [row["blocks of A, step 1"] for row in rows] == [41, 11, 6, 3, 2, 1]


def test_caching_saves_work_and_hardly_a_step(again: Story) -> None:
    plain = story("again-nc", "A A′ B C F")
    assert prompts(again) == [41, 9, 9, 20, 22]
    assert prompts(plain) == [41, 41, 41, 36, 70]
    assert (again.steps, plain.steps) == (84, 85)
    assert [plain.sent(step)["F"] for step in (plain.first_step("F"), plain.first_step("F") + 1)] == [64, 6]


def test_together_with_caching() -> None:
    three = story("together", "A B C")
    assert three.sent(1) == {"A": 41, "B": 9, "C": 14}
    assert three.ended(15).free_order[-5:] == [7, 3, 8, 4, 2]
    assert three.table("C", 16)[0] == 1
    assert three.plan(1).num_common_prefix_blocks == 1


def test_a_salt_keeps_requests_apart() -> None:
    salt = story("salt", "A A′ A″")
    assert [salt.hit(name) for name in salt.cast] == [0, 0, 32]


def test_prompt_logprobs_switch_reading_off() -> None:
    asked = story("prompt-logprobs", "A A′")
    assert (asked.hit("A′"), asked.sent(asked.first_step("A′"))["A′"]) == (0, 41)
