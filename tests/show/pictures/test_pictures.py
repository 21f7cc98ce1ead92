"""Pictures: their values are the trace's, the same trace gives the same bytes, and each can be read without eyes."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from minivllm.errors import InputError
from minivllm.show import pictures
from minivllm.show.pictures.facts import written_slots
from minivllm.trace import Trace

ROOT = Path(__file__).parents[3]
ALT = "Three requests over 25 steps of the core. C's first word comes in step 2, together with B's."
LARGEST = 40_000  # bytes
SVG = "{http://www.w3.org/2000/svg}"


@cache
def trace(name: str) -> Trace:
    return Trace.load(ROOT / f"traces/{name}.jsonl.gz")


def plan(name: str, step: int) -> int:
    return next(event.seq for event in trace(name).filter(kind="schedule", step=step))


ALL: dict[str, Callable[[], pictures.Picture]] = {
    "road": lambda: pictures.road(["B10..B12", 21], alt=ALT),
    "pool": lambda: pictures.pool(trace("together"), plan("together", 9), owners="ABC", alt=ALT, wrong=[7]),
    "pool at the end": lambda: pictures.pool(trace("evict"), owners=["A", "C", "D", "A′"], alt=ALT),
    "pool of a state": lambda: pictures.pool(trace("together").state_at(plan("together", 9)), owners="ABC", alt=ALT),
    "queue": lambda: pictures.queue(trace("together"), alt=ALT, mark=[1]),
    "block table": lambda: pictures.block_table(trace("one"), plan("one", 9), "A", owners="A", positions=[48], alt=ALT),
    "schedule": lambda: pictures.schedule(trace("pool-8"), owners="ABC", alt=ALT, caption="C goes."),
    "schedule, long": lambda: pictures.schedule(trace("evict"), alt=ALT),
    "budget": lambda: pictures.budget(trace("together"), (1, 2, 3), owners="ABC", alt=ALT),
    "blocks over time": lambda: pictures.blocks_over_time(trace("evict"), owners="ACDA", alt=ALT),
    "flat batch": lambda: pictures.flat_batch(trace("together"), 1, owners="ABC", alt=ALT),
    "flat batch, numbered": lambda: pictures.flat_batch(trace("late"), 5, owners="AC", pieces={504: "The"}, alt=ALT),
    "timeline": lambda: pictures.timeline(trace("together"), owners="ABC", alt=ALT),
    "timeline, two processes": lambda: pictures.timeline(trace("one-wall"), owners="A", alt=ALT),
    "latency, steps": lambda: pictures.ttft_tpot(trace("together"), owners="ABC", alt=ALT),
    "latency, ms": lambda: pictures.ttft_tpot(trace("one-wall"), owners="A", alt=ALT),
    "bars": lambda: pictures.bars({"pool 10": 25, "pool 8": 32}, unit="steps", mark=["pool 8"], limit=40, alt=ALT),
    "bars in parts": lambda: pictures.bars({"step 1": [("A", 41), ("B", 9)]}, alt=ALT),
    "grid": lambda: pictures.grid([[1, None], ["x", 0.5]], rows="ab", columns=["0", "1"], mark=[(0, 1)], alt=ALT),
    "triangle": lambda: pictures.grid([[k <= q or None for k in range(41)] for q in range(41)], alt=ALT),
    "weights": lambda: pictures.weights([0.1, 0.7, 0.2], [" a", "b", "c"], block_size=2, alt=ALT),
}


@pytest.mark.parametrize("name", ALL)
def test_a_picture_is_the_same_twice_small_and_described(name: str) -> None:
    picture = ALL[name]()
    assert picture.svg == ALL[name]().svg == picture._repr_svg_()
    assert len(picture.svg.encode()) <= LARGEST
    root = ET.fromstring(picture.svg)
    assert root.attrib["role"] == "img" and root.attrib["aria-label"] == ALT
    assert root.find(f"{SVG}title").text and root.find(f"{SVG}desc").text == ALT
    assert root.attrib["width"] == "800"
    # a unit of the picture is a pt: it is 600 wide, and drawn 800 px wide
    assert all(float(size) >= 9 for size in re.findall(r"font(?:-size)?: (?:bold |700 )?([\d.]+)px", picture.svg))
    assert "<style" not in picture.svg and "<script" not in picture.svg  # nothing that reaches the page around it


@pytest.mark.parametrize("name", ALL)
def test_nothing_leaves_the_sheet(name: str) -> None:
    root = ET.fromstring(ALL[name]().svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for path in root.iter(f"{SVG}path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.attrib["d"])]
        assert min(numbers[::2]) >= -1 and max(numbers[::2]) <= width + 1, name
        assert min(numbers[1::2]) >= -1 and max(numbers[1::2]) <= height + 1, name


def test_another_process_draws_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "from minivllm import trace\n"
        "from minivllm.show import pictures\n"
        "t = trace.load('traces/together.jsonl.gz')\n"
        f"pictures.schedule(t, owners='ABC', alt={ALT!r}).save({str(tmp_path / 'a.svg')!r})"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120, env={"PYTHONHASHSEED": "7"})
    picture = pictures.schedule(trace("together"), owners="ABC", alt=ALT)
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == picture.svg
    picture.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_neither_torch_nor_matplotlib_is_needed_to_import() -> None:
    code = (
        "import sys, minivllm.show.pictures, minivllm.trace, minivllm.show.pictures.plan; "
        "bad = {'torch', 'matplotlib'} & sys.modules.keys(); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


@pytest.mark.parametrize("alt", ["", "   ", "A pool."])
def test_a_picture_needs_its_alternative_text(alt: str) -> None:
    with pytest.raises(InputError, match="two sentences"):
        pictures.road(alt=alt)
    with pytest.raises(TypeError, match="alt"):
        pictures.road()


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize("name", ["together", "pool-8", "evict", "twins"])
def test_the_pool_is_the_traces_state(name: str) -> None:
    for event in list(trace(name).filter(kind=("schedule", "update_from_output")))[::7]:
        for before in (False, True):
            model = pictures.pool(trace(name), event.seq, before=before, alt=ALT).model
            state = trace(name).state_at(event.seq, before=before)
            names = trace(name).external_ids
            assert list(model) == list(range(trace(name).header.num_gpu_blocks))
            for block_id, block in model.items():
                owners = state.owners(block_id)
                assert block["owners"] == [names[i] for i in owners]
                assert block["named"] == (block_id in state.block_hashes)
                assert (block["form"] in ("free", "cached")) == (block_id in state.free_blocks)
                assert len(owners) == state.ref_cnts.get(block_id, 0)


def test_written_slots_are_those_of_forward_passes_that_are_over() -> None:
    first = trace("together").filter(kind="schedule", step=1)[0]
    forward = trace("together").filter(kind="model_forward", step=1)[0]
    batch = trace("together").filter(kind="prepare_inputs", step=1)[0]
    assert written_slots(trace("together"), first.seq) == {}
    assert written_slots(trace("together"), forward.seq, before=True) == {}
    written = written_slots(trace("together"), forward.seq)
    assert sorted(block * 16 + offset for block, offsets in written.items() for offset in offsets) == sorted(
        batch.slot_mapping
    )


def test_a_block_that_is_handed_out_again_counts_as_empty() -> None:
    """Trap 62: the name stays on what no step has written."""
    trapped = trace("poison-as-vllm")
    hit = next(e for e in trapped.filter(kind="get_computed_blocks") if e.step is not None and e.num_hit_tokens == 144)
    written = written_slots(trapped, hit.seq)
    model = pictures.pool(trapped, hit.seq, owners="VR", alt=ALT, wrong=[11]).model
    assert model[11]["named"] and len(written.get(11, ())) == model[11]["written"] < 16


def test_the_free_queue_and_a_block_table() -> None:
    assert pictures.queue(trace("one"), alt=ALT).model[-4:] == [4, 3, 2, 1]
    state = trace("one").state_at(plan("one", 9))
    table = pictures.block_table(trace("one"), plan("one", 9), "0", positions=[40, 48], alt=ALT).model
    assert table["blocks"] == next(iter(state.block_tables.values())) == [1, 2, 3, 4]
    assert table["num_computed_tokens"] == 49 and table["written"] == [16, 16, 16, 0]
    assert table["slots"] == {40: 56, 48: 64}
    with pytest.raises(InputError, match="beyond the 4 blocks"):
        pictures.block_table(trace("one"), plan("one", 9), "0", positions=[64], alt=ALT)


def test_the_schedule_and_the_budget_are_the_plans() -> None:
    ran = trace("pool-8")
    model = pictures.schedule(ran, owners="ABC", alt=ALT).model
    names = dict(zip(ran.request_ids, "ABC", strict=True))
    for event in ran.filter(kind="schedule"):
        drawn = {name: cells[event.step]["tokens"] for name, cells in model.items() if event.step in cells}
        assert {n: t for n, t in drawn.items() if t} == {names[i]: t for i, t in event.num_scheduled_tokens.items()}
        preempted = {name for name, cells in model.items() if event.step in cells and cells[event.step]["preempted"]}
        assert preempted == {names[p.req_id] for p in event.preemptions}
        if event.total_num_scheduled_tokens:
            bar = pictures.budget(ran, event.step, owners="ABC", alt=ALT).model[event.step]
            assert (bar["budget"], bar["left"]) == event.token_budget
            assert sum(bar["tokens"].values()) == event.total_num_scheduled_tokens
    assert model["C"][9]["what"] == "preempted" and model["C"][16] == {
        "what": "recompute",
        "tokens": 11,
        "hit": 32,
        "preempted": False,
        "last": False,
    }
    assert [name for name, cells in model.items() if cells[15]["last"]] == ["A", "B"]


def test_blocks_over_time_are_the_states_after_the_plans() -> None:
    ran = trace("evict")
    model = pictures.blocks_over_time(ran, owners="ACDA", alt=ALT).model
    names = dict(zip(ran.request_ids, "ACDA", strict=True))
    for event in list(ran.filter(kind="schedule"))[::9]:
        state = ran.state_at(event.seq)
        held = {b: c[event.step]["owners"] for b, c in model.items() if event.step in c and c[event.step]["owners"]}
        assert held == {b: [names[i] for i in state.owners(b)] for b in sorted(state.ref_cnts)}
        named = {b for b, cells in model.items() if event.step in cells and cells[event.step]["named"]}
        assert named == set(state.block_hashes)


def test_the_flat_batch_is_the_workers() -> None:
    for step in (1, 2, 16):
        batch = trace("together").filter(kind="prepare_inputs", step=step)[0]
        model = pictures.flat_batch(trace("together"), step, owners="ABC", alt=ALT).model
        for field in ("query_start_loc", "seq_lens", "positions", "slot_mapping", "logits_indices"):
            assert model[field] == getattr(batch, field)
    assert pictures.flat_batch(trace("together"), 1, owners="ABC", alt=ALT).model["discarded"] == ["C"]
    with pytest.raises(InputError, match="no model ran"):
        pictures.flat_batch(trace("one"), 16, alt=ALT)


def test_the_timelines_slices_and_messages_are_events() -> None:
    ran = trace("one-wall")
    model = pictures.timeline(ran, owners="A", alt=ALT).model
    for one in model["slices"]:
        event = ran[one.seq]
        assert (one.kind, one.t0, one.t1) == (event.kind, event.t0 / 1e6, event.t1 / 1e6)
    sent = ran.filter(kind=("core_client.send", "core.send"))
    assert len(model["messages"]) == len(sent)
    assert all(ran[a].msg == ran[b].msg and ran[a].t0 <= ran[b].t1 for a, b in model["messages"])


def test_latencies() -> None:
    model = pictures.ttft_tpot(trace("together"), owners="ABC", alt=ALT).model
    assert model["A"] == {"ttft": 1, "tpot": 1, "num_tokens": 15}
    assert model["C"]["ttft"] == 2
    late = pictures.ttft_tpot(trace("late16-nc"), owners="AC", alt=ALT).model
    assert late["C"]["ttft"] == 3  # its prompt needs three steps
    wall = pictures.ttft_tpot(trace("one-wall"), owners="A", alt=ALT).model["A"]
    texts = trace("one-wall").filter(kind="detokenize")
    assert wall["num_tokens"] == len(texts) == 15
    assert wall["tpot"] == pytest.approx((texts[-1].t1 - texts[0].t1) / 14e6)
    with pytest.raises(InputError, match="logical clock"):
        pictures.ttft_tpot(trace("together"), unit="ms", alt=ALT)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: pictures.road(["B28"], alt=ALT), "B1 to B27"),
        (lambda: pictures.road(["here"], alt=ALT), "is no stop"),
        (lambda: pictures.schedule(trace("together"), owners="AB", alt=ALT), "names 2 requests, and there are 3"),
        (lambda: pictures.pool(trace("one"), 10**6, alt=ALT), "no event 1000000"),
        (lambda: pictures.budget(trace("one"), (99,), alt=ALT), "steps 1 to 15"),
        (lambda: pictures.block_table(trace("one"), 30, "Z", alt=ALT), "no request 'Z'"),
        (lambda: pictures.timeline(trace("one"), steps=(90, 99), alt=ALT), "no event in steps"),
        (lambda: pictures.weights([1.0], [], alt=ALT), "one label for each weight"),
        (lambda: pictures.grid([[0] * 100] * 100, alt=ALT), "100 × 100 cells"),
    ],
)
def test_a_mistake_says_what_to_do(draw: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw()
