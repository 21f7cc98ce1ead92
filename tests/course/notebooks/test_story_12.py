"""Notebook 12 as the storyboard tells it: the form of H, the walks, the whole road."""

import pytest

from minivllm.course.notebook import Notebook
from minivllm.course.places import repo_path
from minivllm.lessons import facts_12 as facts
from minivllm.proof.invariants import HITS, check
from minivllm.trace import Trace

NB = Notebook("12")


@pytest.fixture(scope="module")
def hello() -> Trace:
    return NB.trace("hello-again")


def test_the_form_of_h(hello: Trace) -> None:
    assert facts.told(hello) == {
        facts.BLOCKS: "1 2 3",
        facts.PROMPT_SLOTS: "16..52",
        facts.DECODE_SLOTS: "53..59",
        facts.STEPS: "8",
        facts.BORDER: "never",
        facts.QUEUE: "3 2 1",
        facts.HIT: "32",
        facts.AGAIN_TOKENS: "5",
        facts.AGAIN_TABLE: "1 2 4",
    }
    ended = hello.filter(kind="update_from_output", step=8)[0]
    assert hello.state_at(ended.seq).free_order == [*range(4, 32), 3, 2, 1]


def test_h_asked_again_is_in_slots_64_to_68(hello: Trace) -> None:
    batch = hello.filter(kind="prepare_inputs", step=9)[0]
    assert batch.slot_mapping == [*range(64, 69)]


@pytest.mark.parametrize(
    ("name", "prompt", "outputs", "size"),
    [
        ("hello-again", 37, 8, 16),
        ("again", 41, 15, 16),
        ("full", 48, 8, 16),
        ("block-8", 41, 15, 8),
        ("block-32", 41, 15, 32),
    ],
)
def test_two_lengths_foretell_it(name: str, prompt: int, outputs: int, size: int) -> None:
    assert facts.foretold(prompt, outputs, size) == facts.told(NB.trace(name))
    assert facts.score(NB.trace(name)) == (prompt, outputs, size, "9 of 9")


def test_marks(hello: Trace) -> None:
    told = facts.told(hello)
    mine = {facts.BLOCKS: "[1, 2, 3]", facts.STEPS: 9}
    rows = {line: (said, truth, mark) for line, said, truth, mark in facts.marked(mine, told)}
    assert rows[facts.BLOCKS] == ("[1, 2, 3]", "1 2 3", "✓")
    assert rows[facts.STEPS] == ("9", "8", "✗")
    assert rows[facts.HIT][0] == "?" and told[facts.HIT] not in rows[facts.HIT][1]


def test_the_life_of_block_3() -> None:
    life = facts.block_life(NB.trace("again"), 3)
    assert [(one.step, one.what.split(":")[0].split(" and ")[0].split(",")[0]) for one in life] == [
        (1, "is taken from the head of the free queue"),
        (8, "gets its name"),
        (8, "its last cell"),
        (15, "returns to the tail of the free queue"),
        (70, "is found by its name"),
        (84, "returns to the tail of the free queue"),
    ]


def test_the_life_of_token_51() -> None:
    life = facts.token_life(NB.trace("one"), "0", 51)
    assert [one.step for one in life] == [11, 11, 12, 13, 15]
    assert "known tokens 51 → 52" in life[0].what
    assert "' Italy'" in life[1].what
    assert "slot 67" in life[2].what


def test_the_whole_road() -> None:
    found = facts.counts(NB.trace("two-process"))
    assert len(found.boundaries) == 27
    by_name = dict(zip(found.boundaries, found.calls, strict=True))
    assert sum(c or 0 for c in by_name["B10"]) == 16
    assert sum(c or 0 for c in by_name["B18"]) == 450
    assert not any(by_name["B26"])
    assert by_name["B16"][-1] is None  # the flush


def test_the_viewer_knows_every_token_without_a_tokenizer() -> None:
    pieces = facts.known_pieces(NB.trace("one"))
    assert (pieces[7042], pieces[2]) == (" Paris", "<|im_end|>")
    assert not [piece for piece in pieces.values() if piece.startswith("⟨")]


def test_where_free_blocks_change() -> None:
    assert [(e.boundary, e.step) for e in facts.free_changes(NB.trace("one"))] == [("B10", 1), ("B10", 9), ("B21", 15)]


def test_what_vanishes_in_one_process() -> None:
    assert facts.absent(NB.trace("one")) == ["B7", "B22", "B26"]


def test_the_invariants_on_all_recorded_traces() -> None:
    results = {name: check(trace) for name, trace in facts.recorded(repo_path("traces")).items()}
    broken = {name: [one.rule for one in result.broken] for name, result in results.items() if not result.holds}
    assert broken == {"poison-as-vllm": [HITS] * 16}


def test_hand_overs_of_step_1() -> None:
    stops = {boundary for boundary, _, _ in facts.hand_overs(NB.trace("two-process"), 1)}
    assert stops == {f"B{n}" for n in range(1, 28)} - {"B26"}
