"""What goes into the page, without a browser."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model
from viewer_pages import traced

from minivllm.errors import InputError
from minivllm.show.page import commands, page_text, render, show
from minivllm.show.page.data import page_data
from minivllm.show.page.sources import our_source, vllm_source
from minivllm.show.sentences import SAY
from minivllm.trace import KINDS, Trace


def embedded(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_all_events_are_in_the_page() -> None:
    trace = traced("preempt")
    data = embedded(page_text(trace, "preempt"))
    assert [event["seq"] for event in data["events"]] == [event.seq for event in trace]
    assert data["requests"] == trace.external_ids


def test_paths_stay_at_home() -> None:
    """Folders and process ids of whoever recorded it are not in a page that may be attached to a bug report."""
    trace = traced("plain")
    assert tiny_model().name in trace.header.environment["model"]
    assert str(tiny_model().parent) not in page_text(trace, "plain")
    assert "pids" not in page_text(trace, "plain")


def test_the_page_has_the_size_that_was_promised() -> None:
    trace = traced("preempt")
    size = len(page_text(trace, "preempt").encode())
    fixed = len(page_text(Trace(trace.header, trace.events[:1]), "one").encode())
    assert fixed + (size - fixed) / len(trace) * 2000 < 1_500_000


def test_pieces_come_from_the_tokenizer_that_reads_the_prompts_back() -> None:
    trace = traced("three")
    pieces = page_data(trace, "three", tokenizer=tiny_model())["pieces"]
    prompt = next(event for event in trace if event.kind == "render_cmpl")
    assert "".join(pieces[token_id] for token_id in prompt.prompt_token_ids) == prompt.prompt


def test_without_the_tokenizer_tokens_have_the_text_that_they_added(tmp_path: Path) -> None:
    trace = traced("three")
    pieces = page_data(trace, "three", tokenizer=tmp_path)["pieces"]
    added = [event for event in trace.filter(kind="detokenize") if event.new_text]
    assert added and all(pieces[event.new_token_ids[0]] for event in added)


def test_a_redacted_trace_has_no_texts() -> None:
    trace = traced("three")
    text = page_text(trace.redact(), "redacted")
    assert "The dog sleeps" in page_text(trace, "three")
    assert "The dog sleeps" not in text
    assert embedded(text)["pieces"] == {}


def test_every_kind_has_its_sources() -> None:
    for row in KINDS.values():
        ours = our_source(row.method)
        assert ours is not None, row.method
        lines = Path(__file__).parents[3].joinpath(ours["file"]).read_text().splitlines()
        name = row.method.partition(".")[2]
        assert any(f"def {name}(" in line for line in lines[ours["lines"][0] - 1 : ours["lines"][1]])
        if not row.vllm.startswith("none"):
            vllm = vllm_source(row.vllm)
            assert vllm is not None, row.vllm
            assert vllm["url"].startswith("https://github.com/vllm-project/vllm/blob/v0.22.0/vllm/")


def test_every_kind_has_a_sentence() -> None:
    assert KINDS.keys() <= SAY.keys()


def view(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    commands.add_arguments(parser)
    return commands.run(parser.parse_args([str(argument) for argument in arguments]))


def test_view_writes_a_page_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traced("plain").save(tmp_path / "run.jsonl.gz")
    assert view(tmp_path / "run.jsonl.gz") == 0
    assert str(tmp_path / "run.html") in capsys.readouterr().out
    assert "<!doctype html>" in (tmp_path / "run.html").read_text()


def test_a_bad_trace_gives_a_message_and_no_page(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("not a trace\n")
    with pytest.raises(InputError, match=r"bad\.jsonl"):
        view(tmp_path / "bad.jsonl", "--out", tmp_path / "bad.html")
    assert not (tmp_path / "bad.html").exists()


def test_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    empty = Trace(traced("plain").header, [])
    with pytest.raises(InputError, match="no event"):
        render(empty, tmp_path / "empty.html")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written"):
        render(traced("plain"), tmp_path / "file" / "page.html")


def test_a_notebook_gets_a_panel_that_needs_no_server() -> None:
    trace = traced("plain")
    html = show(trace, "blocks", event=20)._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "</script>" not in html and "http-equiv" not in html
    with pytest.raises(InputError, match="no panel"):
        show(trace, "nothing")
    with pytest.raises(InputError, match="no event"):
        show(trace, "blocks", event=10**6)
    with pytest.raises(InputError, match="no request"):
        show(trace, "why", request="17")


def test_the_viewer_needs_no_torch() -> None:
    code = "import sys, minivllm.show.page, minivllm.show.page.commands; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
