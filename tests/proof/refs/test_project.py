"""The project's own references: all right against the lock, and against the real vLLM where it is at hand.

The generated pages are as they would be generated now.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from minivllm.proof.refs import drift_page, map_page
from minivllm.proof.refs.check import check
from minivllm.proof.refs.collect import collect, find_project
from minivllm.proof.refs.drift import drift
from minivllm.proof.refs.events import boundary_marks, event_kinds
from minivllm.proof.refs.ideas import IDEAS
from minivllm.proof.refs.lock import PINNED, Lock, make_lock, read_lock
from minivllm.proof.refs.report import checked_text
from minivllm.proof.refs.source import Tree
from minivllm.proof.refs.uses import Collected

ROOT = Path(__file__).parents[3]
SAMPLE = json.loads(Path(__file__).with_name("drift_sample.json").read_text())
RealTree = Callable[[str], Tree]


@pytest.fixture(scope="module")
def collected() -> Collected:
    return collect(find_project(ROOT))


@pytest.fixture(scope="module")
def lock() -> Lock:
    return read_lock()


def test_every_reference_is_right_by_the_lock(collected: Collected, lock: Lock) -> None:
    checked = check(collected, lock)
    assert not checked.findings, "\n" + checked_text(checked)
    assert checked.symbols > 200


def test_references_come_from_code_events_and_docs(collected: Collected) -> None:
    kinds = Counter(use.kind for use in collected.uses)
    assert kinds["code"] > 200 and kinds["event"] > 40 and kinds["docs"] > 0


def test_every_mark_is_an_event_kind_and_stands_for_a_symbol() -> None:
    kinds = {kind.kind: kind for kind in event_kinds(ROOT)}
    marks = boundary_marks(ROOT, ROOT / "minivllm")
    assert {mark.kind for mark in marks} <= set(kinds)
    assert all(kind.reference for kind in kinds.values())


def test_every_boundary_has_a_title_and_a_kind() -> None:
    numbers = {kind.boundary for kind in event_kinds(ROOT)} - {None}
    assert numbers == set(map_page.HANDOVERS) == {f"B{number}" for number in range(1, 28)}


def test_every_idea_rests_on_locked_symbols(lock: Lock) -> None:
    known = {entry.target for entry in lock.entries.values()}
    for verdicts in drift_page.read_data(ROOT).verdicts.values():
        known &= {verdict.entry.target for verdict in verdicts}
    assert {target for idea in IDEAS for target in idea.targets} <= known


def test_the_map_is_up_to_date(collected: Collected, lock: Lock) -> None:
    page = map_page.page(find_project(ROOT), lock, collected)
    assert (ROOT / map_page.PAGE).read_text() == page, "run: minivllm refs map"


def test_the_drift_page_is_up_to_date(collected: Collected, lock: Lock) -> None:
    page = drift_page.page(drift_page.read_data(ROOT), find_project(ROOT), lock, collected)
    assert (ROOT / drift_page.PAGE).read_text() == page, "run: minivllm refs drift --page"


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, minivllm.proof.refs.cli; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert not {"torch", "numpy", "transformers", "zmq", "vllm", "triton"} & set(result.stdout.split())


# against the real vLLM


@pytest.mark.vllm
def test_every_reference_is_right_by_the_real_source(collected: Collected, lock: Lock, real_tree: RealTree) -> None:
    checked = check(collected, lock, real_tree(PINNED))
    assert not checked.findings, "\n" + checked_text(checked)
    assert checked.verified == len(lock.entries)


@pytest.mark.vllm
def test_the_lock_is_what_would_be_made_now(lock: Lock, real_tree: RealTree) -> None:
    again, missing = make_lock(real_tree(PINNED), lock.entries)
    assert missing == []
    assert again == lock


def test_the_sample_has_every_verdict_and_a_reason_for_each() -> None:
    assert len(SAMPLE) >= 30
    assert {item["verdict"] for item in SAMPLE} == {"same", "changed", "moved", "renamed", "gone"}
    assert all(item["because"] for item in SAMPLE)
    assert len({(item["to"], item["symbol"]) for item in SAMPLE}) == len(SAMPLE)


def expect(item: dict[str, str | int], found: tuple[str, str, int, int, str]) -> None:
    status, target, removed, added, note = found
    assert status == item["verdict"], item["because"]
    if status in ("moved", "renamed"):
        assert target == item["now"]
    assert (removed, added) == (item.get("removed", removed), item.get("added", added))
    assert item.get("note", "") in note


@pytest.mark.vllm
@pytest.mark.parametrize("version", sorted({item["to"] for item in SAMPLE}))
def test_verdicts_on_the_sample_that_was_checked_by_hand(lock: Lock, real_tree: RealTree, version: str) -> None:
    items = {item["symbol"]: item for item in SAMPLE if item["to"] == version}
    entries = [entry for entry in lock.entries.values() if entry.target in items]
    assert len(entries) == len(items)
    for it in drift(lock, real_tree(version), entries):
        expect(items[it.entry.target], (it.status, it.target, it.removed, it.added, it.note))


def test_the_page_has_the_verdicts_of_the_sample() -> None:
    """The same without the wheels, from what was computed with them."""
    verdicts = drift_page.read_data(ROOT).verdicts
    assert list(verdicts) == ["0.22.1", "0.24.0", "0.28.0", "0.32.0"]
    found = {(version, it.entry.target): it for version, its in verdicts.items() for it in its}
    for item in SAMPLE:
        it = found[item["to"], item["symbol"]]
        expect(item, (it.status, it.target, it.removed, it.added, it.note))


@pytest.mark.vllm
@pytest.mark.parametrize("version", ["0.22.1", "0.24.0", "0.28.0", "0.32.0"])
def test_the_page_s_verdicts_are_what_would_be_found_now(lock: Lock, real_tree: RealTree, version: str) -> None:
    tree = real_tree(version)
    data = drift_page.read_data(ROOT)
    assert data.files[version] == len(tree.paths)
    then = {it.entry.target: (it.status, it.target, it.removed, it.added) for it in data.verdicts[version]}
    judged = [entry for entry in lock.entries.values() if entry.target in then]
    now = {it.entry.target: (it.status, it.target, it.removed, it.added) for it in drift(lock, tree, judged)}
    assert now == then
