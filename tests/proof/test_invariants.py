"""The five rules: they hold on every recorded run, they count their checks, and each notices what is wrong."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from minivllm.proof.invariants import BALANCE, HITS, MESSAGES, OWNERS, RULES, SLOTS, check, swapped_blocks
from minivllm.trace import Trace, load

FOLDER = Path(__file__).resolve().parents[2] / "traces"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))
WRONG_ON_PURPOSE = "poison-as-vllm"  # trap 62, without our rule


def trace_of(name: str) -> Trace:
    return load(FOLDER / f"{name}.jsonl.gz")


def changed(trace: Trace, kind: str, place: int, **fields) -> Trace:
    """A copy in which the fields of one event are others."""
    event = trace.filter(kind=kind)[place]
    other = msgspec.structs.replace(event, **fields)
    return Trace(trace.header, [other if one is event else one for one in trace])


@pytest.mark.parametrize("name", [name for name in NAMES if name != WRONG_ON_PURPOSE])
def test_they_hold(name: str) -> None:
    assert check(trace_of(name)).first is None


def test_the_real_bug_breaks_one_rule_only() -> None:
    result = check(trace_of(WRONG_ON_PURPOSE))
    assert {broken.rule for broken in result.broken} == {HITS}
    assert len(result.broken) == 16  # 144 tokens "cached", 128 of them computed


def test_the_checks_are_counted() -> None:
    checks = check(trace_of("one")).checks
    assert set(checks) == set(RULES)
    assert checks[SLOTS] == 55  # tokens that were fed
    assert checks[HITS] == checks[MESSAGES] == 0  # nothing was cached, and nothing sent
    assert check(trace_of("twins")).checks[HITS] == 32
    assert check(trace_of("one-wall")).checks[MESSAGES] == 16  # one in, fifteen out


def test_swapped_blocks_are_noticed_by_the_slots_first() -> None:
    one = trace_of("one")
    first = one.filter(kind="allocate_slots")[0]
    result = check(swapped_blocks(one, first.seq))
    assert result.first.rule == SLOTS
    assert result.first.step == 1
    assert Counter(broken.rule for broken in result.broken) == {SLOTS: 32}  # two blocks of sixteen
    assert check(one).holds  # the trace itself is as it was


def test_only_two_new_blocks_can_change_places() -> None:
    one = trace_of("one")
    with pytest.raises(ValueError, match="nothing to swap"):
        swapped_blocks(one, one.filter(kind="allocate_slots")[1].seq)


def test_a_slot_that_is_written_twice() -> None:
    slots = trace_of("twins").filter(kind="prepare_inputs")[1].slot_mapping
    result = check(changed(trace_of("twins"), "prepare_inputs", 1, slot_mapping=[slots[0]] * len(slots)))
    assert result.first.rule == SLOTS
    assert "2 times" in result.first.what


def test_a_block_with_two_owners() -> None:
    twins = trace_of("twins")
    own = twins.filter(kind="allocate_slots")[0].new_block_ids[-1]  # partly filled: it has no name
    other = twins.filter(kind="allocate_slots")[1].new_block_ids
    rules = {
        broken.rule for broken in check(changed(twins, "allocate_slots", 1, new_block_ids=[own, *other[1:]])).broken
    }
    assert OWNERS in rules


def test_a_block_that_is_lost() -> None:
    one = trace_of("one")
    first = one.filter(kind="schedule")[0]
    before, after = first.num_free_blocks
    result = check(changed(one, "schedule", 0, num_free_blocks=(before, after - 1)))
    assert [broken.rule for broken in result.broken] == [BALANCE]
    table = one.filter(kind="allocate_slots")[0].new_block_ids
    assert BALANCE in {
        broken.rule for broken in check(changed(one, "allocate_slots", 0, new_block_ids=table[:-1])).broken
    }


def test_a_message_that_is_received_too_early() -> None:
    wall = trace_of("one-wall")
    sent = wall.filter(kind="core.send")[3]
    result = check(changed(wall, "core_client.receive", 3, t0=sent.t0 - 200, t1=sent.t0 - 100))
    assert [broken.rule for broken in result.broken] == [MESSAGES]
