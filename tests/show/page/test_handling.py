"""Handling the page: what lights up under the pointer, splitters, larger type, many requests, no needless drawing."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tiny_models import tiny_model
from viewer_pages import Page, traced

from minivllm.show.page.pieces import token_pieces
from minivllm.trace import Trace

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
ROOT = Path(__file__).parents[3]
OVER = """const element = document.querySelector(arguments[0]);
    const box = element.getBoundingClientRect();
    const at = {bubbles: true, clientX: box.left + 2, clientY: box.top + 2};
    element.dispatchEvent(new PointerEvent('pointerover', at));"""
DRAG = """const bar = document.getElementById(arguments[0]), box = bar.getBoundingClientRect();
    bar.setPointerCapture = () => {};
    const at = (type, x, y) => bar.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: y, pointerId: 1}));
    at('pointerdown', box.left, box.top);
    at('pointermove', box.left + arguments[1], box.top + arguments[2]);
    at('pointerup', box.left + arguments[1], box.top + arguments[2]);"""


@pytest.fixture(autouse=True)
def _forgetful(driver) -> None:
    """What one test chose is not what the next one starts with."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "file://", "storageTypes": "all"})


def linked(page: Page, data: str) -> set[str]:
    script = "return [...document.querySelectorAll('.linked')].map((e) => e.dataset[arguments[0]]).filter(Boolean)"
    return set(page.run(script, data))


def letters(text: str) -> str:
    """Without white space and its signs."""
    return "".join(filter(str.isalnum, text))


def plan_of(trace: Trace, step: int) -> int:
    return trace.filter(kind="schedule", step=step)[0].seq


# ---------------------------------------------------------------------- links


def test_a_block_lights_up_everywhere_and_a_card_says_its_numbers(page_of: OpenPage) -> None:
    trace = traced("prefix")
    page = page_of("prefix", trace)
    step = next(e.step for e in trace.filter(kind="get_new_blocks"))
    page.go(plan_of(trace, step), "blocks")
    taken = next(e for e in trace.filter(kind="get_new_blocks", step=step))
    block = str(taken.block_ids[0])
    page.run(OVER, f"#panel .card[data-block='{block}']")
    assert linked(page, "block") == {block}
    fields = ("block_ids", "new_block_ids", "hit_block_ids", "evicted_block_ids")
    handed = {
        e.seq
        for e in trace.filter(step=step)
        if int(block) in [one for field in fields for one in getattr(e, field, [])] + [getattr(e, "block_id", None)]
    }
    shown = {int(piece["seq"]) for piece in page.attributes("#timeline .slice")}
    assert {int(seq) for seq in linked(page, "seq")} == handed & shown != set()
    state = trace.state_at(page.seq)
    card = page.text("#card")
    assert f"Block {block}:" in card and f"ref count {state.ref_cnts[int(block)]}" in card
    if int(block) in state.block_hashes:
        assert state.block_hashes[int(block)] in card
    owner = state.owners(int(block))[0]
    asked = next(e for e in trace.filter(kind="render_cmpl", request=owner))
    place, size = state.block_tables[owner].index(int(block)), trace.header.config["block_size"]
    pieces = token_pieces(trace, tiny_model())
    text = "".join(pieces[token] for token in asked.prompt_token_ids[place * size : (place + 1) * size])
    assert letters(text) in letters(card)
    page.run(OVER, "#footer")
    assert linked(page, "block") == set() and page.run("return document.getElementById('card').hidden")


def test_a_request_and_a_slice_light_up_what_belongs_to_them(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    request = trace.request_ids[1]
    page.go(trace.filter(kind="schedule", request=request)[0].seq, "blocks")
    page.run(OVER, f"#header .chip[data-request='{request}']")
    step = trace[page.seq].step
    for seq in linked(page, "seq"):
        assert request in trace[int(seq)].reqs and trace[int(seq)].step in (step, None)
    assert linked(page, "request") == {request}
    state = trace.state_at(page.seq).requests[request]
    assert f"{state.num_computed_tokens} of {state.num_tokens} tokens computed" in page.text("#card")
    call = next(e for e in trace.filter(kind="get_new_blocks") if e.step == step)
    page.run(OVER, f"#timeline .slice[data-seq='{call.seq}']")
    assert linked(page, "block") >= {str(block) for block in call.block_ids}
    assert f"get_new_blocks, event {call.seq}" in page.text("#card")


def test_a_token_shows_how_it_comes_to_its_slot(page_of: OpenPage) -> None:
    trace = traced("prefix")
    page = page_of("prefix", trace)
    batch = max(trace.filter(kind="prepare_inputs"), key=lambda event: event.num_tokens)
    page.go(batch.seq, "batch")
    flat = batch.num_tokens - 1
    page.run(OVER, f"#panel .token[data-flat='{flat}']")
    assert page.text("#panel .formula").endswith(f"= {batch.slot_mapping[flat]}")
    assert f"position {batch.positions[flat]}" in page.text("#panel .formula")


def test_enter_keeps_a_card_for_the_keyboard(page_of: OpenPage) -> None:
    page = page_of("prefix", traced("prefix"))
    page.go(plan_of(traced("prefix"), 2), "blocks")
    page.run("document.querySelector(\"#panel .card[data-block='1']\").focus()")
    page.press("\ue007")
    page.run(OVER, "#footer")
    assert "Block 1:" in page.text("#card") and not page.run("return document.getElementById('card').hidden")
    page.press("\ue00c")
    assert page.run("return document.getElementById('card').hidden")


# ---------------------------------------------------------------------- sizes


def test_the_splitters_move_and_are_remembered(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    sizes = (
        "const of = (id) => document.getElementById(id); return [of('event').offsetWidth, of('timeline').offsetHeight]"
    )
    width, height = page.run(sizes)
    page.run(DRAG, "split-event", 90, 0)
    page.run(DRAG, "split-timeline", 0, 100)
    page.settle()
    assert page.run(sizes)[0] == width + 90
    assert height + 80 < page.run(sizes)[1] <= height + 100
    rows = page.run("return document.querySelector('#timeline .slice rect').getBoundingClientRect().height")
    assert rows > 16  # the slices use the room
    page.screenshot("splitters")
    page.open()
    assert page.run(sizes)[0] == width + 90
    page.run("document.getElementById('split-event').focus()")
    page.press("\ue012")  # an arrow key moves the splitter, and not the cursor
    assert page.run(sizes)[0] == width + 74 and page.seq == 0
    for name in ("event", "timeline"):
        page.run("document.getElementById(arguments[0]).dispatchEvent(new Event('dblclick'))", f"split-{name}")
    assert page.run(sizes) == [width, height]
    assert page.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_larger_type_for_a_projector(page_of: OpenPage, dark: bool) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace, dark=dark)
    page.go(next(e.seq for e in trace.filter(kind="schedule") if e.preemptions), "blocks")
    sentence = "return document.querySelector('.sentence').getBoundingClientRect().height"
    before = page.run(sentence)
    page.press("e")
    assert page.run(sentence) > before
    for tab in ("blocks", "schedule", "batch", "text", "why"):
        page.go(page.seq, tab)
        page.settle()
        out = page.run(
            "return [...document.querySelectorAll('#header *, #tabs *, #footer *')]"
            ".map((e) => e.getBoundingClientRect())"
            ".filter((box) => box.width && (box.left < -1 || box.right > innerWidth + 1)).length"
        )
        wide = page.run("const p = document.getElementById('panel'); return p.scrollWidth - p.clientWidth")
        assert out == 0 and wide <= 0, tab
    page.screenshot(f"presenter-{'dark' if dark else 'light'}")
    page.press("e")
    assert page.run(sentence) == before


# ---------------------------------------------------------------------- many requests, many events


def with_many_requests(trace: Trace, copies: int) -> Trace:
    """The same trace with more requests that came and went before: only their entries in the caller's table."""
    opened = trace.filter(kind="output_processor.add_request")[0]
    last = trace.events[-1]
    more = [
        msgspec.structs.replace(
            opened,
            seq=last.seq + 1 + copy,
            parent=None,
            t0=last.t1 + 10 * copy + 1,
            t1=last.t1 + 10 * copy + 2,
            reqs=[f"{100 + copy}-x"],
            external_req_id=str(100 + copy),
        )
        for copy in range(copies)
    ]
    return Trace(trace.header, [*trace.events, *more])


def test_with_many_requests_only_neighbours_keep_their_colours(page_of: OpenPage) -> None:
    trace = with_many_requests(traced("three"), 30)
    page = page_of("many", trace)
    assert len(trace.request_ids) > 24
    colours = "return [...document.querySelectorAll('#header .chip')].map((e) => getComputedStyle(e).backgroundColor)"
    page.go(plan_of(trace, 1), "schedule")
    grey = page.run(
        "const e = document.createElement('i'); e.style.background = 'var(--batch)'; document.body.append(e);"
        "const colour = getComputedStyle(e).backgroundColor; e.remove(); return colour"
    )
    near = page.run(colours)
    assert len({colour for colour in near[:8] if colour != grey}) == min(8, len(near))
    page.go(trace.events[-1].seq)
    page.settle()
    far = page.run(colours)
    assert len({colour for colour in far if colour != grey}) >= min(8, len(far)) - 1
    page.go(plan_of(trace, 1))
    page.screenshot("many-requests")
    assert page.complaints() == []


def test_a_walk_inside_a_step_draws_only_what_changes(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    step = next(e.step for e in trace.filter(kind="schedule") if e.preemptions)
    inside = [e.seq for e in trace.filter(step=step) if e.kind != "step"]
    page.go(inside[0], "batch")
    page.run(
        "window.kept = ['#timeline > svg', '#panel > *', '#header .life', '#footer']"
        ".map((selector) => document.querySelector(selector))"
    )
    for seq in inside[1:]:
        page.go(seq)
        assert page.seq == seq
        here = page.attributes("#timeline .slice.here")
        assert not here or (here == [here[0]] and here[0]["seq"] == str(seq))
    same = page.run("return kept.map((e) => e.isConnected)")
    assert same[0] and same[2] and same[3]
    page.press("]")
    assert not page.run("return kept[0].isConnected")  # another step, other slices


def test_a_panel_that_is_kept_looks_as_if_it_were_drawn_anew(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    step = next(e.step for e in trace.filter(kind="schedule") if e.preemptions)
    different = page.run(
        """const panel = document.getElementById('panel'), wrong = [];
        for (const tab of arguments[1]) {
            for (const seq of arguments[0]) {
                minivllm.show(seq, tab);
                const kept = panel.innerHTML;
                minivllm.show(seq, tab, true);
                if (panel.innerHTML !== kept) wrong.push([tab, seq]);
            }
        }
        return wrong;""",
        [event.seq for event in trace.filter(step=step)],
        ["blocks", "schedule", "batch", "attention", "text", "why"],
    )
    assert different == []


def test_a_long_trace_stays_small_on_the_page(page_of: OpenPage) -> None:
    trace = Trace.load(ROOT / "traces" / "evict.jsonl.gz")
    page = page_of("evict", trace)
    for seq in (0, len(trace) // 2, len(trace) - 1):
        for tab in ("blocks", "schedule", "batch", "attention", "text", "why"):
            page.go(trace.events[seq].seq, tab)
            assert page.run("return document.querySelectorAll('*').length") < 1600, tab


# ---------------------------------------------------------------------- the docs


def test_the_docs_name_the_page_s_keys(page_of: OpenPage) -> None:
    page = page_of("three", traced("three"))
    page.press("?")
    keys = page.run("return [...document.querySelectorAll('#keys th')].map((cell) => cell.textContent)")
    table = (ROOT / "docs" / "viewer.md").read_text(encoding="utf-8").partition("## Keys")[2].partition("\n\nUnder")[0]
    cells = " ".join(line.split("|")[1] + line.split("|")[2] for line in table.splitlines() if line.startswith("|"))
    named = {word.rstrip(",;") or word for word in cells.replace("−", "-").split()} | {"1–6", "Shift 0–9"}
    missing = [key for key in keys if key.removeprefix("Shift ") not in named and key not in named]
    assert missing == []


def test_words_and_times(page_of: OpenPage) -> None:
    """A blank is seen, and a real clock has times."""
    trace = traced("prefix")
    page = page_of("prefix", trace)
    batch = max(trace.filter(kind="prepare_inputs"), key=lambda event: event.num_tokens)
    page.go(batch.seq, "batch")
    assert "·w" in page.text("#panel")
    assert trace.header.clock != "logical" and page.text("#place-time").startswith("+")
