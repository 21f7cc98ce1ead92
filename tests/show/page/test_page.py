"""The page in a real browser: it opens from disk, all numbers are the trace's, keys walk, and no text is ever run."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.ui import WebDriverWait
from tiny_models import tiny_model
from viewer_pages import Page, traced

from minivllm.printable import UNSEEN
from minivllm.show.explain import explain
from minivllm.show.page import show
from minivllm.show.page.pieces import token_pieces
from minivllm.show.sentences import Teller
from minivllm.show.steps import Steps
from minivllm.trace import Trace
from minivllm.trace.schema import from_raw
from minivllm.trace.state import State

pytestmark = pytest.mark.browser
SCENARIOS = ("three", "chunked", "prefix", "preempt", "priority", "stop", "samples")
TABS = ("blocks", "schedule", "batch", "attention", "text", "why")
OpenPage = Callable[..., Page]


def plain(state: State) -> dict[str, Any]:
    """A state as the page hands it out."""
    return {
        "step": state.step,
        "waiting": state.waiting,
        "running": state.running,
        "free": state.free_order,
        "refs": {str(block): count for block, count in state.ref_cnts.items()},
        "hashes": {str(block): block_hash for block, block_hash in state.block_hashes.items()},
        "tables": state.block_tables,
        "cached": state.num_cached_blocks,
        "rows": [
            {"req_id": row.req_id, "num_computed_tokens": row.num_computed_tokens, "block_ids": list(row.block_ids)}
            for row in state.rows
        ],
        "requests": {
            request_id: {
                "status": request.status,
                "num_prompt_tokens": request.num_prompt_tokens,
                "num_tokens": request.num_tokens,
                "num_computed_tokens": request.num_computed_tokens,
                "num_preemptions": request.num_preemptions,
                "priority": request.priority,
                "output": list(request.output_token_ids),
                "text": request.output_text,
                "open": request.is_open,
            }
            for request_id, request in state.requests.items()
        },
    }


def pick(trace: Trace, kind: str, wanted: Callable[[Any], bool] = lambda event: True) -> Any:
    return next(event for event in trace if event.kind == kind and wanted(event))


# ---------------------------------------------------------------------- opening


def test_it_opens_from_disk_in_silence(page_of: OpenPage) -> None:
    page = page_of("three", traced("three"))
    assert page.complaints() == []
    assert page.requests() == []
    assert page.seq == 0
    assert page.text("#event .sentence") != ""


@pytest.mark.parametrize("name", ["chunked", "preempt", "stop", "samples"])
def test_all_events_and_tabs_are_drawn_without_an_error(page_of: OpenPage, name: str) -> None:
    trace = traced(name)
    page = page_of(name, trace)
    kinds = {(event.kind, getattr(event, "refused", None)): event.seq for event in trace}
    shown = page.run(
        """return arguments[0].flatMap((seq) => arguments[1].map((tab) => {
            minivllm.show(seq, tab);
            const text = document.getElementById('main').textContent;
            const fine = document.getElementById('panel').textContent && !/undefined|NaN|\\[object/.test(text);
            return [Number(document.body.dataset.seq), tab, Boolean(fine)];
        }));""",
        list(kinds.values()),
        TABS,
    )
    assert shown == [[seq, tab, True] for seq in kinds.values() for tab in TABS]
    assert page.complaints() == []


def test_a_place_in_the_address_is_opened_and_an_unknown_one_is_the_first(page_of: OpenPage) -> None:
    trace = traced("preempt")
    seq = trace.filter(kind="free")[0].seq
    assert page_of("preempt", trace, f"#e={seq}&t=why&f=0").seq == seq
    assert page_of("preempt", trace, "#e=999999&t=nothing").seq == 0


def test_the_address_keeps_the_place(page_of: OpenPage) -> None:
    page = page_of("preempt", traced("preempt"))
    page.go(40)
    page.press("1")
    page.driver.execute_async_script("setTimeout(arguments[0], 400)")
    address = page.run("return location.hash")
    assert "e=40" in address and "t=blocks" in address
    page.open(address)
    assert page.seq == 40 and page.run("return document.getElementById('panel').dataset.tab") == "blocks"


# ---------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_state_is_the_trace_s_at_every_event(page_of: OpenPage, name: str) -> None:
    trace = traced(name)
    page = page_of(name, trace)
    script = "return JSON.stringify(arguments[0].map((seq) => [minivllm.state(seq, true), minivllm.state(seq, false)]))"
    # backwards, so that no state can be had by walking on from the one before
    seqs = [event.seq for event in reversed(trace.events)]
    shown = json.loads(page.run(script, seqs))
    for seq, (before, after) in zip(seqs, shown, strict=True):
        assert after == plain(trace.state_at(seq)), seq
        assert before == plain(trace.state_at(seq, before=True)), seq


def test_the_state_across_two_processes(page_of: OpenPage) -> None:
    trace = traced("three", multiprocess=True)
    page = page_of("three-processes", trace)
    seqs = [event.seq for event in trace]
    shown = json.loads(page.run("return JSON.stringify(arguments[0].map((seq) => minivllm.state(seq, false)))", seqs))
    assert shown == [plain(trace.state_at(seq)) for seq in seqs]
    page.go(pick(trace, "core.send").seq)
    assert len(page.attributes("#timeline .pill")) >= 2
    page.screenshot("timeline-processes")


@pytest.mark.parametrize("name", ["prefix", "preempt"])
def test_blocks(page_of: OpenPage, name: str) -> None:
    trace = traced(name)
    page = page_of(name, trace)
    kinds = ("allocate_slots", "get_new_blocks", "touch", "free_blocks", "free", "schedule", "update_from_output")
    seen: set[str] = set()
    for event in trace.filter(kind=kinds)[::2]:
        page.go(event.seq, "blocks")
        state, before = trace.state_at(event.seq), trace.state_at(event.seq, before=True)
        queues = {queue["when"]: queue for queue in page.attributes("#panel .queue")}
        after = queues.get("after") or queues["next ▸"]
        assert after["blocks"].split() == [str(block) for block in state.free_order][:40]
        if "before" in queues:
            assert queues["before"]["blocks"].split() == [str(block) for block in before.free_order][:40]
        for card in page.attributes("#panel .card"):
            block = int(card["block"])
            owned, hashed = block in state.ref_cnts, block in state.block_hashes
            assert card["state"] == ("owned" if owned else "idle" if hashed else "free")
        tags = page.run(TAGS)
        assert {int(block): tag for block, tag in tags.items()} == tags_of(before, state)
        seen |= set(tags.values())
    assert seen >= {"new", "freed", "hit" if name == "prefix" else "evicted"}


TAGS = """return Object.fromEntries([...document.querySelectorAll("#panel .tag-text")].map((tag) => [
    tag.closest("[data-block]").dataset.block, tag.textContent]))"""


def tags_of(before: State, after: State) -> dict[int, str]:
    """What an event did to each block, told by the two states alone."""
    found = {}
    for block in sorted({*before.ref_cnts, *after.ref_cnts, *before.block_hashes}):
        was, now = before.ref_cnts.get(block, 0), after.ref_cnts.get(block, 0)
        owners = len(after.owners(block)) - len(before.owners(block))
        if block in before.block_hashes and after.block_hashes.get(block) != before.block_hashes[block]:
            found[block] = "evicted"
        elif bool(was) != bool(now):
            found[block] = ("hit" if block in before.block_hashes else "new") if now else "freed"
        elif now > was:
            found[block] = "shared"
        elif owners:
            found[block] = "taken" if owners > 0 else "let go"
    return found


def committed(name: str) -> Trace:
    return Trace.load(Path(__file__).parents[3] / f"traces/{name}.jsonl.gz")


def tag_of(block: int, before: State, after: State) -> str | None:
    """What happened to a block between two moments, in the page's words; None if nothing did."""
    was, now = before.ref_cnts.get(block, 0), after.ref_cnts.get(block, 0)
    if block in before.block_hashes and before.block_hashes[block] != after.block_hashes.get(block):
        return "evicted"  # also where it is named anew at once
    if not was and now:
        return "hit" if block in before.block_hashes else "new"
    if was and not now:
        return "freed"
    if now > was:
        return "shared"
    held, held_before = len(after.owners(block)), len(before.owners(block))
    return None if held == held_before else "taken" if held > held_before else "let go"


def test_what_happened_to_each_block(page_of: OpenPage) -> None:
    trace = committed("evict")
    page = page_of("evict", trace)
    seen = set()
    script = """const out = {};
        for (const card of document.querySelectorAll('#panel .card'))
            out[card.dataset.block] = card.querySelector('.tag-text')?.textContent ?? null;
        return out;"""
    pool = trace.header.num_gpu_blocks
    renamed = []
    for event in trace.filter(kind=("allocate_slots", "free", "get_new_blocks", "update_from_output")):
        before, after = trace.state_at(event.seq, before=True), trace.state_at(event.seq)
        tags = {str(block): tag_of(block, before, after) for block in range(1, pool)}
        if not any(tags.values()) or (set(tags.values()) <= seen and "evicted" not in tags.values()):
            continue
        seen |= set(tags.values())
        renamed += [b for b, name in before.block_hashes.items() if after.block_hashes.get(b, name) != name]
        page.go(event.seq, "blocks")
        assert page.run(script) == tags, event.seq
    assert renamed and {"evicted", "new", "hit", "freed"} <= seen


def test_tokens_in_a_block(page_of: OpenPage) -> None:
    """Squares: in the cache before the step, written in it, not there yet."""
    trace = committed("pool-7")
    page = page_of("pool-7", trace)
    size = trace.header.config["block_size"]
    script = """const out = {};
        for (const card of document.querySelectorAll('#panel .card[data-state=owned]'))
            out[card.dataset.block] = ['.in-cache', '.written', '.not-yet']
                .map((kind) => card.querySelectorAll(kind).length);
        return out;"""
    for plan in trace.filter(kind="schedule")[::4]:
        page.go(plan.seq, "blocks")
        shown, state = page.run(script), trace.state_at(plan.seq)
        for request_id, table in state.block_tables.items():
            computed = state.requests[request_id].num_computed_tokens
            old = computed - plan.num_scheduled_tokens.get(request_id, 0)
            for place, block in enumerate(table):
                if len(state.owners(block)) == 1:
                    cut = [min(size, max(0, n - place * size)) for n in (old, computed)]
                    assert shown[str(block)] == [cut[0], cut[1] - cut[0], size - cut[1]], (plan.seq, block)


def test_a_refusal_says_how_many_blocks_it_needs(page_of: OpenPage) -> None:
    trace = committed("pool-7")
    page = page_of("pool-7", trace)
    for event in [e for e in trace.filter(kind="allocate_slots") if e.refused]:
        page.go(event.seq, "blocks")
        boxes = page.run(
            "return [...document.querySelectorAll('#panel .needs + text')].map((text) => text.textContent)"
        )
        assert boxes == [f"needs {event.blocks_needed}"]


def test_the_sentence_is_pythons(page_of: OpenPage) -> None:
    """Each part, which of them is the key word, whether it is a loss, and the note."""
    for name in ("pool-7", "two-process"):
        trace = committed(name)
        page = page_of(name, trace)
        teller = Teller(trace, Steps(trace), token_pieces(trace, tiny_model()))
        kinds = {(event.kind, getattr(event, "refused", None)): event for event in trace}
        for event in [*kinds.values(), *trace.filter(kind=("schedule", "sample_tokens"))[::5]]:
            followed = event.reqs[-1] if event.reqs else None
            if followed:  # its number is its name in the address
                page.open(f"#e={event.seq}&r={teller.steps.name(followed)}")
            page.go(event.seq)
            shown = page.run(
                """return [[...document.querySelector('#event .sentence').children].map((part) =>
                [part.textContent, part.localName === 'b', part.className === 'loss']),
                document.querySelector('#event .note')?.textContent ?? ''];"""
            )
            said = teller.tell(event, followed)
            parts = [[p, False, False] if isinstance(p, str) else [p.text, True, p.is_loss] for p in said.parts]
            assert shown == [parts, said.note], event.seq


def test_schedule(page_of: OpenPage) -> None:
    trace = traced("chunked")
    page = page_of("chunked", trace)
    for plan in trace.filter(kind="schedule")[::2]:
        page.go(plan.seq, "schedule")
        cells = page.attributes("#panel .heat-cell")
        shown = {c["request"]: int(c["tokens"]) for c in cells if int(c["step"]) == plan.step and int(c["tokens"])}
        assert shown == plan.num_scheduled_tokens
        state = trace.state_at(plan.seq)
        queues = {queue["queue"]: queue["ids"].split() for queue in page.attributes("#panel .chips")}
        assert queues == {"running": state.running, "waiting": state.waiting}
    page.screenshot("schedule-light")


def test_batch(page_of: OpenPage) -> None:
    trace = traced("prefix")
    page = page_of("prefix", trace)
    for batch in trace.filter(kind="prepare_inputs")[:4]:
        page.go(batch.seq, "batch")
        tokens = {int(token["flat"]): token for token in page.attributes("#panel .token")}
        assert sorted(tokens) == list(range(batch.num_tokens))
        assert [int(tokens[flat]["slot"]) for flat in sorted(tokens)] == batch.slot_mapping
        assert [int(tokens[flat]["position"]) for flat in sorted(tokens)] == batch.positions
        flagged = [int(token["flat"]) for token in page.attributes("#panel .token.here")]
        assert flagged == batch.logits_indices
        assert [int(cut["start"]) for cut in page.attributes("#panel .cut")] == batch.query_start_loc[:-1]


def test_attention_reads_and_writes(page_of: OpenPage) -> None:
    trace = traced("prefix")
    page = page_of("prefix", trace)
    for batch in trace.filter(kind="prepare_inputs")[:4]:
        states = trace.filter(kind="update_states", step=batch.step)[0]
        page.go(batch.seq, "attention")
        rows = {row["request"]: row for row in page.attributes("#panel .reads-row")}
        starts = batch.query_start_loc
        queries = [end - start for start, end in pairwise(starts)]
        assert [int(rows[request]["queries"]) for request in states.req_ids] == queries
        assert [int(rows[request]["keys"]) for request in states.req_ids] == batch.seq_lens
        assert page.attributes("#panel .writes")[0]["slots"] == str(batch.num_tokens)


def with_programs(trace: Trace) -> Trace:
    """The same trace with one launch of two programs in its first attention; the second finds no work."""
    attention = pick(trace, "attention")
    batch = trace.filter(kind="prepare_inputs", step=attention.step)[0]
    common = {"proc": attention.proc, "t0": attention.t0 + 1, "t1": attention.t1 - 1, "step": attention.step}
    common["reqs"] = attention.reqs
    seq = trace.events[-1].seq + 1
    tiles = [
        {"keys": [[1, 0, 3, 0]], "row_max": [1.0], "row_sum": [2.0], "correction": [None]},
        {"keys": [[2, 0, 1, 0]], "row_max": [2.0], "row_sum": [3.0], "correction": [0.5]},
    ]
    raw = [
        {
            "kind": "kernel.launch",
            "seq": seq,
            "parent": attention.seq,
            "name": "paged_attention_kernel",
            "grid": [2, 1],
        },
        {"kind": "kernel.program", "seq": seq + 1, "parent": seq, "program": [0, 0, 0], "rows": [0], "tiles": tiles}
        | {"reads": {"q": [[batch.num_tokens - 1, 0, 0]]}, "writes": {"out": [[batch.num_tokens - 1, 0, 0]]}},
        {"kind": "kernel.program", "seq": seq + 2, "parent": seq, "program": [1, 0, 0]},
    ]
    return Trace(trace.header, [*trace.events, *(from_raw({**common, **event}) for event in raw)])


def test_attention_walks_the_tiles_of_a_program(page_of: OpenPage) -> None:
    trace = with_programs(traced("plain"))
    page = page_of("programs", trace)
    page.go(pick(trace, "kernel.launch").seq, "attention")
    programs = page.attributes("#panel .program")
    assert [(program["program"], program["tiles"]) for program in programs] == [("0 0 0", "2"), ("1 0 0", "0")]
    assert "2 × 1 programs" in page.text("#event") and "1 do work; 1 find" in page.text("#event")
    # of the final sum 3 the first tile gives 2 × 0.5, the second the rest
    walk = page.text("#panel .walk")
    assert "33.3 %" in walk and "66.7 %" in walk and "0: keys 0–3" in walk and "1: keys 4–5" in walk
    assert page.complaints() == []


def test_text(page_of: OpenPage) -> None:
    trace = traced("stop")
    page = page_of("stop", trace)
    for event in trace.filter(kind="detokenize")[::4]:
        page.go(event.seq, "text")
        text = trace.state_at(event.seq).requests[event.reqs[0]].output_text
        assert page.attributes("#panel .output")[0]["text"] == text
        assert page.attributes("#panel .token-name.here")[0]["token"] == str(event.new_token_ids[-1])


def test_what_the_trace_lacks_is_said_with_how_to_get_it(page_of: OpenPage) -> None:
    trace = traced("plain")
    page = page_of("plain", trace)
    page.go(trace.filter(kind="detokenize")[0].seq, "text")
    assert "no candidates. Record with --detail 2." in page.text("#panel")
    page.go(pick(trace, "attention").seq, "attention")
    assert 'attention_backend="triton", trace_detail=2' in page.text("#panel .thin")
    page.go(trace.events[0].seq, "batch")
    assert "same process: no messages" in page.text("#timeline")
    logical = Trace.load(Path(__file__).parents[3] / "traces" / "hello.jsonl.gz")
    page = page_of("hello", logical, "#c=time")
    assert "no times recorded" in page.text("#timeline")
    page.press("c")  # a logical clock has no true time to show
    assert page.run("return document.querySelector('#clock [aria-pressed=true]').textContent") == "order"


def test_why(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    asked = [event for event in trace if event.kind == "allocate_slots"][::4]
    for event in asked:
        page.go(event.seq, "why")
        answer = explain(trace, event.reqs[0], event.step)
        assert page.text("#panel .answer") == answer.sentence
        assert page.attributes("#panel .answer")[0]["verdict"] == answer.verdict


def test_changes_are_the_event_s(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    fields = {"free blocks": "num_free_blocks", "blocks held": "num_blocks", "budget left": "token_budget"}
    for event in trace.filter(kind=("allocate_slots", "free", "get_new_blocks"))[::2]:
        page.go(event.seq)
        changes = page.attributes("#event .change")
        assert changes
        for change in changes:
            if change["label"] in fields:
                assert [int(change["before"]), int(change["after"])] == list(getattr(event, fields[change["label"]]))


def test_the_payload_has_every_field(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    event = pick(trace, "prepare_inputs")
    page.go(event.seq)
    page.press("p")
    names = page.run("return [...document.querySelectorAll('#payload th')].map((cell) => cell.textContent)")
    own = [name for name in msgspec.to_builtins(event) if name not in ("proc", "t0", "t1", "reqs")]
    assert set(own) <= set(names)
    assert str(event.slot_mapping[-1]) in page.text("#payload")
    page.press("p")
    assert page.run("return document.querySelector('dialog[open]')") is None


# ---------------------------------------------------------------------- moving


def test_the_keyboard_walks_a_whole_request(page_of: OpenPage) -> None:
    from selenium.webdriver.common.keys import Keys

    trace = traced("plain")
    page = page_of("plain", trace)
    request_id = trace.request_ids[0]
    page.run(
        """window.walked = [];
        addEventListener('keydown', () => walked.push(minivllm.seq()));"""
    )
    path = [event.seq for event in trace.path(request_id)]
    page.press("r" * len(path))
    assert page.run("return walked") == [*path[1:], path[-1]]
    page.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.seq == trace.events[2].seq
    page.press(Keys.ARROW_LEFT)
    assert page.seq == trace.events[1].seq
    page.press("]", "]")
    assert trace[page.seq].kind == "schedule"
    page.press(Keys.ARROW_DOWN)
    assert trace[page.seq].parent is not None and trace[trace[page.seq].parent].kind == "schedule"
    page.press(Keys.ARROW_UP, "3")
    assert page.run("return document.getElementById('panel').dataset.tab") == "batch"
    page.press("?")
    assert "next event" in page.text("#keys")
    assert page.complaints() == []


def test_play_walks_and_stops(page_of: OpenPage) -> None:
    trace = traced("plain")
    page = page_of("plain", trace, f"#e={trace.events[-3].seq}")
    page.press(".... ")
    wait = "const done = arguments[0]; setTimeout(done, 700)"
    page.driver.execute_async_script(wait)
    assert page.seq == trace.events[-1].seq
    assert page.text("#footer .play") == "▶"


def test_the_strip_and_the_slices_are_clicked(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    last = max(trace.steps)
    page.run(
        """const slider = document.querySelector('[role=slider]'), box = slider.getBoundingClientRect();
        slider.setPointerCapture = () => {};
        slider.dispatchEvent(new PointerEvent('pointerdown', {clientX: box.right - 2, clientY: 60, pointerId: 1}));"""
    )
    page.settle()
    assert trace[page.seq].step == last
    slices = [int(piece["seq"]) for piece in page.attributes("#timeline .slice")]
    target = next(seq for seq in slices if trace[seq].kind in ("model_forward", "update_states"))
    click = "dispatchEvent(new Event('click', {bubbles: true}))"
    page.run(f"document.querySelector(`.slice[data-seq='${{arguments[0]}}']`).{click}", target)
    page.settle()
    assert page.seq == target


def test_answers_can_be_hidden_to_predict_them(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    event = pick(trace, "allocate_slots", lambda event: not event.refused)
    page.press("h")
    page.go(event.seq)
    assert "?" in page.text("#event .sentence") and "gets" not in page.text("#event .sentence")
    page.press("\ue007")
    assert f"{trace.external_ids[event.reqs[0]]}" in page.text("#event .sentence")


# ---------------------------------------------------------------------- texts


HOSTILE = [
    "</script><script>document.title = 'broken'</script>",
    "<img src=x onerror=\"document.title='broken'\"> &amp; <b>bold</b>",
    "${document.title='broken'} `x` <!-- --> \\u003c/script> ]]>",
]
WORLD = ["Grüße aus Köln, ß ẞ", "你好,世界。", "👩‍👩‍👧 🙂 🇩🇪", "שלום עולם", "مرحبا بالعالم 123"]


def with_texts(trace: Trace, prompt: str, text: str) -> Trace:
    """The same events with other texts in them."""
    raw = [msgspec.json.decode(msgspec.json.encode(event)) for event in trace]
    for event in raw:
        if event["kind"] == "render_cmpl":
            event["prompt"] = prompt
        if event["kind"] == "detokenize":
            event["new_text"] = text
            event["num_chars"] = [0, len(text) * 999]
            event["stop_string"] = text
    return Trace(trace.header, [msgspec.convert(event, type(old)) for event, old in zip(raw, trace, strict=True)])


@pytest.mark.parametrize("place", range(len(HOSTILE)))
def test_text_is_shown_and_never_run(page_of: OpenPage, place: int) -> None:
    hostile = HOSTILE[place]
    trace = with_texts(traced("plain"), hostile, hostile)
    page = page_of(f"hostile-{place}", trace)
    title = page.run("return document.title")
    seen = []
    for event in [pick(trace, "render_cmpl"), *trace.filter(kind="detokenize")[:2]]:
        page.go(event.seq, "text")
        page.press("p")
        seen.append(page.text("#payload"))
        page.press("p")
        page.go(event.seq, "why")
    page.go(trace.filter(kind="detokenize")[0].seq, "text")
    assert hostile in page.text("#panel .prompt") and hostile in seen[0] and hostile in page.text("#event")
    assert page.run("return document.title") == title
    assert page.run("return document.querySelectorAll('#main img, #main script, #main b b').length") == 0
    assert page.complaints() == [] and page.requests() == []


def test_no_character_is_unseen(page_of: OpenPage) -> None:
    """Orders to a terminal, ends of texts, turns of direction: shown by their numbers, also in what is read aloud."""
    unseen = [chr(n) for n in range(0xE0080) if UNSEEN.match(chr(n)) and not 0xD800 <= n < 0xE000]
    text = "".join(f"a{letter}" for letter in unseen)
    trace = with_texts(traced("plain"), "x\u202ey\x1b[2J\x00z", text)
    page = page_of("unseen", trace)
    page.go(trace.filter(kind="detokenize")[0].seq, "text")
    assert page.text("#panel .prompt") == "x⟨U+202E⟩y⟨U+001B⟩[2J⟨U+0000⟩z"
    assert page.text("#panel .output") == "".join(f"a⟨U+{ord(letter):04X}⟩" for letter in unseen)
    for kind in ("render_cmpl", "detokenize"):
        page.go(pick(trace, kind).seq)
        page.press("p")
        read = page.run(
            """const texts = [document.getElementById('main'), document.getElementById('payload')].flatMap((part) => [
                part.textContent, ...[...part.querySelectorAll('[title], [aria-label]')].flatMap((one) =>
                [one.getAttribute('title') ?? '', one.getAttribute('aria-label') ?? ''])]);
            return texts.join(' ');"""
        )
        assert "⟨U+202E⟩" in read and not UNSEEN.search(read)
        page.press("p")


def test_texts_of_the_world(page_of: OpenPage) -> None:
    text = " ".join(WORLD)
    trace = with_texts(traced("plain"), text, text)
    page = page_of("world", trace)
    page.go(trace.filter(kind="detokenize")[0].seq, "text")
    assert page.text("#panel .prompt") == text
    assert page.run(
        "return [...document.querySelectorAll('#panel .prompt, #panel .output')].every(e => e.tagName === 'BDI')"
    )
    page.screenshot("text-world")


# ---------------------------------------------------------------------- looks


def luminance(rgb: list[float]) -> float:
    parts = [value / 255 for value in rgb[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_both_themes_are_legible_and_nothing_leaves_the_page(page_of: OpenPage, dark: bool) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace, dark=dark)
    victim = pick(trace, "schedule", lambda event: event.preemptions)
    theme = "dark" if dark else "light"
    colours = page.run(
        "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        ".map((text) => text.match(/\\d+/g).map(Number))"
    )
    page_light, ink_light = map(luminance, colours)
    assert (page_light < ink_light) == dark
    assert (max(page_light, ink_light) + 0.05) / (min(page_light, ink_light) + 0.05) > 12
    for tab in TABS:
        page.go(victim.seq, tab)
        page.screenshot(f"{tab}-{theme}")
        small, out = page.run(
            """const texts = [...document.querySelectorAll('body *')].filter((e) => e.children.length === 0
                && e.textContent.trim() && e.getClientRects().length
                && !['SCRIPT', 'STYLE', 'TITLE'].includes(e.tagName.toUpperCase()));
            const small = texts.filter((e) => parseFloat(getComputedStyle(e).fontSize) < 12);
            const out = texts.filter((e) => { const r = e.getBoundingClientRect();
                return !e.closest('#panel, #event') && r.width && (r.left < -1 || r.right > innerWidth + 1); });
            const say = (list) => list.map((e) => `${e.tagName} ${e.textContent}`.slice(0, 60));
            return [say(small), say(out)];"""
        )
        assert small == []
        assert out == []
        overflow = page.run("const p = document.getElementById('panel'); return p.scrollWidth - p.clientWidth")
        assert overflow <= 0, tab
    assert page.run("return document.documentElement.scrollHeight <= innerHeight")


def test_names_for_screen_readers(page_of: OpenPage) -> None:
    page = page_of("preempt", traced("preempt"))
    assert page.run("return document.querySelector('[role=slider]').getAttribute('aria-valuetext')").startswith("step ")
    nameless = page.run(
        "return [...document.querySelectorAll('button, [role=button], a, [role=tab]')]"
        ".filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert nameless == 0


def test_a_panel_in_a_notebook(page_of: OpenPage, tmp_path: Path) -> None:
    trace = traced("preempt")
    page = page_of("preempt", trace)
    for panel in ("timeline", "event", "blocks"):
        path = tmp_path / f"{panel}.html"
        path.write_text(f"<!doctype html><meta charset='utf-8'>{show(trace, panel, event=40)._repr_html_()}")
        page.driver.get(path.as_uri())
        page.driver.switch_to.frame(0)
        unpacked = WebDriverWait(page.driver, 30, ignored_exceptions=[WebDriverException])  # its document is replaced
        unpacked.until(lambda _: page.run("return document.body?.dataset.ready") == "yes")
        assert page.seq == 40
        shown = page.run(
            "return ['timeline', 'event', 'panel'].filter((id) => document.getElementById(id).offsetHeight)"
        )
        assert shown == [panel if panel != "blocks" else "panel"]
        page.driver.switch_to.default_content()
        page.screenshot(f"notebook-{panel}")
    assert page.complaints() == []


def test_paper_has_all_panels(page_of: OpenPage) -> None:
    page = page_of("preempt", traced("preempt"), dark=True)
    background = "return getComputedStyle(document.body).backgroundColor"
    screen = page.run(background)
    page.run("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('resize'))")
    page.settle()
    assert [section["tab"] for section in page.attributes("#panel .printed")] == list(TABS)
    assert page.run(background) == "rgb(255, 255, 255)" != screen
    page.run("dispatchEvent(new Event('afterprint'))")
    page.settle()
    assert page.attributes("#panel .printed") == []
    assert page.run(background) == screen


def test_a_truncated_trace_says_so(page_of: OpenPage) -> None:
    trace = traced("preempt")
    page = page_of("truncated", Trace(trace.header, trace.events[: len(trace) // 2], truncated=True))
    assert "ends early" in page.text("#banner")
    page.go(trace.events[len(trace) // 2 - 1].seq)
    assert page.complaints() == []


def test_a_redacted_trace_is_shown_without_texts(page_of: OpenPage) -> None:
    trace = traced("three").redact()
    page = page_of("redacted", trace)
    page.go(trace.filter(kind="detokenize")[3].seq, "text")
    assert "left out on purpose" in page.text("#panel")
    page.go(pick(trace, "prepare_inputs").seq, "batch")
    assert page.attributes("#panel .token")
    assert page.complaints() == []
