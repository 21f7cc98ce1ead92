"""The verdicts on the made-up vLLM's two versions, and what rests on them."""

import json
from typing import Any

import pytest

from minivllm.proof.refs import report
from minivllm.proof.refs.collect import collect, find_project
from minivllm.proof.refs.drift import STATUSES, Verdict, drift, resting_on
from minivllm.proof.refs.lock import make_lock
from minivllm.proof.refs.source import open_tree


def judge(world: Any) -> dict[str, Verdict]:
    return {verdict.entry.target: verdict for verdict in drift(world.lock, world.new())}


def edit_new(world: Any, name: str, old: str, new: str) -> None:
    world._edit(world.root / "new/vllm" / name, old, new)


def lock_again(world: Any, *targets: str) -> None:
    """Lock these too, of the old version as it is now."""
    more = [tuple(target.split("::")) for target in targets]
    world.lock, missing = make_lock(world.old(), [*world.lock.entries, *more])
    assert missing == []


def test_a_version_against_itself_is_the_same(world: Any) -> None:
    for verdict in drift(world.lock, world.old()):
        entry = verdict.entry
        assert (verdict.status, verdict.first, verdict.last) == ("same", entry.first, entry.last)


def test_each_kind_of_verdict(world: Any) -> None:
    found = {target: (verdict.status, verdict.target) for target, verdict in judge(world).items()}
    assert found == {
        "core/sched.py::LIMIT": ("same", "core/sched.py::LIMIT"),
        "core/sched.py::Base.has_requests": ("same", "core/sched.py::Base.has_requests"),
        "core/sched.py::Scheduler": ("changed", "core/sched.py::Scheduler"),
        "core/sched.py::Scheduler.policy": ("same", "core/sched.py::Scheduler.policy"),
        "core/sched.py::Scheduler.schedule": ("changed", "core/sched.py::Scheduler.schedule"),
        "core/pool.py::BlockPool": ("moved", "memory/blocks.py::BlockPool"),
        "core/pool.py::BlockPool.get_new_blocks": ("moved", "memory/blocks.py::BlockPool.get_new_blocks"),
        "core/pool.py::BlockPool.touch": ("renamed", "memory/blocks.py::BlockPool.hold"),
        "core/pool.py::count_blocks": ("gone", ""),
    }


def test_the_size_of_a_change(world: Any) -> None:
    verdicts = judge(world)
    schedule = verdicts["core/sched.py::Scheduler.schedule"]
    assert (schedule.removed, schedule.added) == (1, 1)
    assert schedule.score == pytest.approx(7 / 8)
    moved = verdicts["core/pool.py::BlockPool.get_new_blocks"]
    assert (moved.removed, moved.added, moved.score) == (0, 0, 1.0)
    renamed = verdicts["core/pool.py::BlockPool.touch"]
    assert (renamed.removed, renamed.added) == (1, 1)
    assert "likeness 0.83" in renamed.note


def test_the_same_text_at_other_lines_is_the_same(world: Any) -> None:
    verdict = judge(world)["core/sched.py::Base.has_requests"]
    assert verdict.first == verdict.entry.first + 1


def test_indentation_and_blank_lines_are_a_change_of_no_size(world: Any) -> None:
    edit_new(world, "core/sched.py", "    def has_requests(self):\n", "    def has_requests(self):\n\n")
    verdict = judge(world)["core/sched.py::Base.has_requests"]
    assert (verdict.status, verdict.removed, verdict.added, verdict.score) == ("changed", 0, 0, 1.0)
    assert report.size_of_change(verdict) == "order, blank lines or indentation only"


def test_an_import_left_behind_leads_to_the_new_place(world: Any) -> None:
    edit_new(world, "core/pool.py", "FREE = -1\n", "from ..memory.blocks import Pages as BlockPool\n")
    path = world.root / "new/vllm/memory/blocks.py"
    path.write_text(path.read_text().replace("class BlockPool", "class Pages"))
    verdicts = judge(world)
    assert (verdicts["core/pool.py::BlockPool"].status, verdicts["core/pool.py::BlockPool"].name) == (
        "renamed",
        "Pages",
    )
    verdict = verdicts["core/pool.py::BlockPool.get_new_blocks"]
    assert (verdict.status, verdict.target) == ("moved", "memory/blocks.py::Pages.get_new_blocks")
    assert "imports it from there" in verdict.note


def test_a_method_that_went_into_a_new_base_has_moved(world: Any) -> None:
    path = world.root / "new/vllm/core/sched.py"
    text = path.read_text()
    start, end = text.index("    def schedule("), text.index("    @property")
    path.write_text(
        text[:start].replace(
            "class Scheduler(Base)", "class Planner:\n" + text[start:end] + "\nclass Scheduler(Planner)"
        )
        + text[end:]
    )
    verdict = judge(world)["core/sched.py::Scheduler.schedule"]
    assert (verdict.status, verdict.target) == ("moved", "core/sched.py::Planner.schedule")
    assert "Scheduler inherits it from there" in verdict.note


def test_a_definition_that_was_there_already_is_nobodys_new_place(world: Any) -> None:
    """Two classes have a method with the same text; one of them loses it."""
    copy = "\nclass Other:\n    def count(self, blocks):\n        total = 0\n        for block in blocks:\n"
    copy += "            total += block.size\n        self.total = total\n        return total\n"
    for version in ("old", "new"):
        path = world.root / version / "vllm/kernels.py"
        path.write_text(path.read_text() + copy + copy.replace("Other", "Another"))
    lock_again(world, "kernels.py::Other.count")
    path.write_text(path.read_text().replace(copy, "\nclass Other:\n    pass\n"))
    verdict = judge(world)["kernels.py::Other.count"]
    assert (verdict.status, verdict.target) == ("gone", "")
    assert "kernels.py::Another.count" in verdict.note


def test_the_method_of_a_sibling_is_not_the_new_place(world: Any) -> None:
    classes = "\nclass Backend:\n    pass\n\nclass Fast(Backend):\n    def shape(self, blocks, size):\n"
    lines = ("check_blocks(blocks)", "check_size_of_blocks(size)", "pair = (2, blocks, size)", "return pair")
    body = "".join(f"        {line}\n" for line in lines)
    for version, text in (("old", body), ("new", "        pass\n")):
        path = world.root / version / "vllm/kernels.py"
        path.write_text(path.read_text() + classes + text)
    lock_again(world, "kernels.py::Fast.shape")
    path.write_text(path.read_text().replace("    def shape(self, blocks, size):\n", "    size = 1\n"))
    path.write_text(path.read_text() + "\nclass New(Backend):\n    def shape(self, blocks, size):\n" + body)
    verdict = judge(world)["kernels.py::Fast.shape"]
    assert (verdict.status, verdict.target) == ("gone", "")


def test_a_text_that_left_its_name_behind_is_told(world: Any) -> None:
    lines = [f"        self.count_{number} += request.number_of_{number}\n" for number in range(12)]
    long = "\nclass Engine:\n    def step(self, request):\n" + "".join(lines)
    short = "\nclass Engine:\n    def step(self, request):\n        return self.count_all(request)\n\n"
    for version, text in (("old", long), ("new", short + "    def count_all(self, request):\n" + "".join(lines))):
        path = world.root / version / "vllm/kernels.py"
        path.write_text(path.read_text() + text)
    lock_again(world, "kernels.py::Engine.step")
    verdict = judge(world)["kernels.py::Engine.step"]
    assert verdict.status == "changed"
    assert "more of its text is in kernels.py::Engine.count_all" in verdict.note


def test_a_file_that_can_not_be_parsed_has_nothing(world: Any) -> None:
    edit_new(world, "memory/blocks.py", "class BlockPool", "class class BlockPool")
    assert judge(world)["core/pool.py::BlockPool"].status == "gone"


def test_drift_needs_no_source_of_the_pinned_version(world: Any) -> None:
    before = judge(world)
    for path in (world.root / "old").rglob("*.py"):
        path.unlink()
    assert judge(world) == before


# reports


def reported(world: Any) -> tuple[Any, ...]:
    world.add_notebook(("markdown", "Take. See `core/pool.py::BlockPool.get_new_blocks`, and then more."))
    places = resting_on(collect(find_project(world.project)).uses)
    return "0.22.0", "0.23.0", drift(world.lock, world.new()), places


def test_the_table_tells_what_rests_on_each(world: Any) -> None:
    text = report.drift_table(*reported(world))
    head, *blocks = text.split("\n\n")
    assert head.startswith("vLLM 0.22.0 -> 0.23.0, 9 symbols: 3 same, 2 changed, 2 moved, 1 renamed, 1 gone; ")
    assert head.endswith("2 of the same at other lines")
    assert [block.split()[0] for block in blocks] == ["gone", "renamed", "moved", "moved", "changed", "changed"]
    block = next(block for block in blocks if "moved" in block and "get_new_blocks" in block)
    assert "-> memory/blocks.py::BlockPool.get_new_blocks, lines 5-11" in block
    for place in (
        "code     minivllm/core.py:",
        "event    minivllm/trace/events.py:",
        'docs     docs/guide.md:3  Blocks: "See `core/pool.py::BlockPool.get_new_blocks`, which raises',
        'notebook notebooks/one.ipynb, cell 1  "See `core/pool.py::BlockPool.get_new_blocks`, and then more."',
    ):
        assert place in block


def test_json_has_all_of_it(world: Any) -> None:
    content = json.loads(report.drift_json(*reported(world)))
    assert (content["from"], content["to"]) == ("0.22.0", "0.23.0")
    assert content["counts"] == {"same": 3, "changed": 2, "moved": 2, "renamed": 1, "gone": 1}
    symbols = {f"{symbol['file']}::{symbol['name']}": symbol for symbol in content["symbols"]}
    moved = symbols["core/pool.py::BlockPool.get_new_blocks"]
    assert (moved["status"], moved["to_file"], moved["to_lines"]) == ("moved", "memory/blocks.py", [5, 11])
    assert [place["kind"] for place in moved["places"]] == ["code", "event", "docs", "notebook"]
    assert moved["places"][3]["owner"] == "cell 1"
    assert symbols["core/pool.py::count_blocks"]["to_file"] is None


def test_markdown_is_a_table_with_a_row_for_each_that_is_not_the_same(world: Any) -> None:
    text = report.drift_markdown(*reported(world))
    rows = [line for line in text.split("\n") if line.startswith("| `")]
    assert len(rows) == 6
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert [row.split(" | ")[1].split()[0] for row in rows] == [
        "gone",
        "renamed",
        "moved",
        "moved",
        "changed",
        "changed",
    ]


def test_worst_comes_first(world: Any) -> None:
    ordered = report.worst_first(drift(world.lock, world.new()))
    ranks = [STATUSES.index(verdict.status) for verdict in ordered]
    assert ranks == sorted(ranks, reverse=True) and len(set(ranks)) > 1


def test_an_older_version_can_be_compared_too(world: Any) -> None:
    lock, missing = make_lock(world.new(), [("memory/blocks.py", "BlockPool.hold")])
    assert missing == []
    (verdict,) = drift(lock, open_tree(str(world.root / "old")))
    assert (verdict.status, verdict.target) == ("renamed", "core/pool.py::BlockPool.touch")
