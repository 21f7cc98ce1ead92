"""Planted mistakes of every kind are found, where they are, and nothing else is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minivllm.proof.refs.check import KINDS

CORE, EVENTS, GUIDE = "minivllm/core.py", "minivllm/trace/events.py", "docs/guide.md"
POOL_LINE = "Blocks. vLLM: core/pool.py::BlockPool"
SENTENCE = "`core/pool.py::BlockPool.get_new_blocks`"


def test_the_unharmed_world_is_all_right(world: Any) -> None:
    for with_tree in (True, False):
        checked = world.check(with_tree)
        assert checked.findings == []
        assert (checked.uses, checked.symbols, checked.nones) == (12, 9, 3)
    assert world.check().verified == len(world.lock.entries) == 9
    assert world.check(with_tree=False).verified == 0


Plant = Callable[[Any], None]
Where = tuple[str, str]  # a file of the project, and a text in the line


def place_of(world: Any, where: Where) -> str:
    """The place in a message: the first line with the text."""
    file, text = where
    if not text:
        return file
    lines = (world.project / file).read_text().split("\n")
    return f"{file}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


# name: how it is planted, the kind found with a tree, the kind found with the lock alone, where, what the message says
OURS: dict[str, tuple[Plant, str, str, Where, str]] = {
    "wrong file": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks. vLLM: core/pools.py::BlockPool"),
        "wrong-file",
        "wrong-file",
        (CORE, "core/pools.py"),
        "nearest: core/pool.py",
    ),
    "wrong case of a file": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks. vLLM: core/Pool.py::BlockPool"),
        "wrong-file",
        "wrong-file",
        (CORE, "core/Pool.py"),
        "core/Pool.py",
    ),
    "wrong class": (
        lambda world: world.edit(CORE, "BlockPool.touch", "BlocksPool.touch"),
        "wrong-class",
        "wrong-class",
        (CORE, "BlocksPool.touch"),
        "BlocksPool; nearest: BlockPool",
    ),
    "missing symbol": (
        lambda world: world.edit(CORE, "BlockPool.touch", "BlockPool.touched_by"),
        "missing",
        "missing",
        (CORE, "touched_by"),
        "nearest: BlockPool.touch",
    ),
    "a class in place of a module's function": (
        lambda world: world.edit(GUIDE, "core/pool.py::count_blocks", "core/pool.py::BlockPool.count_blocks"),
        "missing",
        "missing",
        (GUIDE, "BlockPool.count_blocks"),
        "BlockPool.count_blocks",
    ),
    "imported, not defined there": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks. vLLM: core/sched.py::Pool"),
        "imported",
        "wrong-class",
        (CORE, "core/sched.py::Pool"),
        "core/pool.py::BlockPool",
    ),
    "inherited, not defined there": (
        lambda world: world.edit(GUIDE, "core/sched.py::Base.has_requests", "core/sched.py::Scheduler.has_requests"),
        "inherited",
        "missing",
        (GUIDE, "Scheduler.has_requests"),
        "core/sched.py::Base.has_requests",
    ),
    "the package's name in the path": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks. vLLM: vllm/core/pool.py::BlockPool"),
        "prefix",
        "prefix",
        (CORE, "vllm/core"),
        "leave out `vllm/`",
    ),
    "malformed": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks. vLLM: core/pool.py, BlockPool"),
        "malformed",
        "malformed",
        (CORE, "core/pool.py, BlockPool"),
        "is not of the form",
    ),
    "not the last of the docstring": (
        lambda world: world.edit(CORE, "BlockPool.get_new_blocks\n", "BlockPool.get_new_blocks\n        And more.\n"),
        "malformed",
        "malformed",
        (CORE, "BlockPool.get_new_blocks"),
        "must be the last",
    ),
    "none without a reason": (
        lambda world: world.edit(CORE, "vLLM: none, vLLM prints nothing", "vLLM: none"),
        "malformed",
        "malformed",
        (CORE, "vLLM: none"),
        "gives no reason",
    ),
    "a class without": (
        lambda world: world.edit(CORE, POOL_LINE, "Blocks."),
        "class-without",
        "class-without",
        (CORE, "class Pool"),
        "Pool",
    ),
    "a boundary without": (
        lambda world: world.edit(CORE, '"""vLLM: core/sched.py::Scheduler.schedule"""', "pass"),
        "boundary-without",
        "boundary-without",
        (CORE, "def schedule"),
        "'schedule'",
    ),
    "an event kind without": (
        lambda world: world.edit(EVENTS, ', "none, ours alone"', ""),
        "event-without",
        "event-without",
        (EVENTS, '"table"'),
        "names no symbol",
    ),
    "a wrong event kind": (
        lambda world: world.edit(EVENTS, 'f"{_POOL}.get_new_blocks"', 'f"{_POOL}.get_blocks"'),
        "missing",
        "missing",
        (EVENTS, "get_blocks"),
        "nearest: BlockPool.get_new_blocks",
    ),
    "a wrong field in a comment": (
        lambda world: world.edit(CORE, "# vLLM: policy", "# vLLM: polices"),
        "missing",
        "missing",
        (CORE, "polices"),
        "nearest: Scheduler.policy",
    ),
    "a wrong sentence": (
        lambda world: world.edit(GUIDE, SENTENCE, "`core/pool.py::BlockPool.get_blocks`"),
        "missing",
        "missing",
        (GUIDE, "BlockPool.get_blocks"),
        "nearest: BlockPool.get_new_blocks",
    ),
    "a wrong notebook cell": (
        lambda world: world.add_notebook(("markdown", "See `core/pool.py::BlockPool.take`.")),
        "missing",
        "missing",
        ("notebooks/one.ipynb, cell 1", ""),
        "core/pool.py::BlockPool.take",
    ),
    "stale lines of a symbol": (
        lambda world: world.edit(GUIDE, SENTENCE, "`core/pool.py::BlockPool.get_new_blocks:7-14`"),
        "stale-lines",
        "stale-lines",
        (GUIDE, ":7-14"),
        "it stands at 7-13",
    ),
    "stale lines of a file": (
        lambda world: world.edit(GUIDE, SENTENCE, "`core/pool.py:8-13`"),
        "stale-lines",
        "stale-lines",
        (GUIDE, "pool.py:8-13"),
        "name the symbol",
    ),
    "new, not in the lock": (
        lambda world: world.edit(GUIDE, SENTENCE, "`core/pool.py::BlockPool.__init__`"),
        "not-locked",
        "not-locked",
        (GUIDE, "__init__"),
        "minivllm refs lock --vllm 0.22.0",
    ),
}


@pytest.mark.parametrize("name", OURS)
def test_a_mistake_of_ours_is_found(world: Any, name: str) -> None:
    plant, with_tree, with_lock, where, message = OURS[name]
    plant(world)
    for kind, tree in ((with_tree, True), (with_lock, False)):
        (finding,) = world.check(tree).findings
        assert (finding.kind, finding.place) == (kind, place_of(world, where))
        assert message in finding.message or not tree
        assert finding.kind in KINDS


# name: how it is planted in vLLM's source, the kind, where
THEIRS: dict[str, tuple[Plant, str, Where]] = {
    "changed text": (
        lambda world: world.edit_vllm("core/pool.py", "not enough free blocks", "too few free blocks"),
        "changed",
        (CORE, "vLLM: core/pool.py::BlockPool"),
    ),
    "a changed decorator": (
        lambda world: world.edit_vllm("core/pool.py", "def count_blocks", "@cached\ndef count_blocks"),
        "changed",
        (GUIDE, "count_blocks"),
    ),
    "stale lines": (
        lambda world: world.edit_vllm("core/pool.py", "FREE = -1\n", "FREE = -1\nUSED = 1\n"),
        "stale-lines",
        (CORE, "vLLM: core/pool.py::BlockPool"),
    ),
    "a symbol that went": (
        lambda world: world.edit_vllm("core/pool.py", "def count_blocks", "def count_the_blocks"),
        "missing",
        (GUIDE, "count_blocks"),
    ),
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_source_that_is_not_the_locked_one_is_found(world: Any, name: str) -> None:
    plant, kind, where = THEIRS[name]
    plant(world)
    found = [(finding.kind, finding.place) for finding in world.check().findings]
    assert (kind, place_of(world, where)) in found
    assert world.check(with_tree=False).findings == []


def test_a_source_that_can_not_be_parsed_is_told(world: Any) -> None:
    world.edit_vllm("core/pool.py", "FREE = -1", "FREE = = -1")
    messages = [finding.message for finding in world.check().findings if finding.kind == "wrong-file"]
    assert messages and all("can't parse" in message for message in messages)


def test_a_damaged_entry_of_the_lock_is_found(world: Any) -> None:
    key = ("core/pool.py", "count_blocks")
    world.lock.entries[key] = replace(world.lock.entries[key], sha256="0" * 64)
    (finding,) = world.check().findings
    assert (finding.kind, finding.place) == ("changed", place_of(world, (GUIDE, "count_blocks")))


def test_an_unused_entry_of_the_lock_is_compared_too(world: Any) -> None:
    world.edit(GUIDE, "| `core/pool.py::count_blocks` | rounds up |", "")
    world.edit_vllm("core/pool.py", "whole + more", "whole - more")
    (finding,) = world.check().findings
    assert (finding.kind, finding.place) == ("changed", "the lock")


def test_right_lines_are_right_with_and_without_decorators(world: Any) -> None:
    world.edit(GUIDE, SENTENCE, "`core/pool.py::BlockPool.get_new_blocks:7-13` and `core/pool.py:3-20`")
    assert world.check().findings == []
