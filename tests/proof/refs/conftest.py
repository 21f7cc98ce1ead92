"""A made-up vLLM of two versions, a made-up project that refers to it, and the real wheels where they are at hand."""

import json
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from minivllm.errors import InputError
from minivllm.proof.refs.check import Checked, check
from minivllm.proof.refs.collect import collect, find_project
from minivllm.proof.refs.lock import Lock, make_lock
from minivllm.proof.refs.source import Tree, open_tree

OLD = {
    "__init__.py": "",
    "_version.py": "__version__ = version = '0.22.0'\n",
    "core/__init__.py": "",
    "core/sched.py": '''
        """The scheduler."""
        from vllm.core.pool import BlockPool as Pool
        from .pool import FREE

        LIMIT: int = 8

        class Base:
            def has_requests(self):
                return bool(self.waiting or self.running)

        class Scheduler(Base):
            policy = "fcfs"

            def __init__(self, config):
                self.waiting = []
                self.running, self.finished = [], set()

            def schedule(self, budget: int):
                """Plan one step."""
                planned = {}
                for request in self.running + self.waiting:
                    count = min(budget, request.missing_tokens)
                    planned[request.name] = count
                    budget -= count
                return planned

            @property
            def length(self):
                return len(self.waiting)

            @length.setter
            def length(self, value):
                raise AttributeError(value)
    ''',
    "core/pool.py": '''
        FREE = -1

        class BlockPool:
            def __init__(self, number_of_blocks):
                self.free_blocks = list(range(number_of_blocks))

            def get_new_blocks(self, count):
                """Take blocks from the front of the free list."""
                if count > len(self.free_blocks):
                    raise ValueError("not enough free blocks")
                taken = self.free_blocks[:count]
                del self.free_blocks[:count]
                return taken

            def touch(self, block):
                """Give a block one more owner, and keep it from being evicted."""
                block.owners += 1
                self.untouched.discard(block)
                self.touched.append(block)
                return block.owners

        def count_blocks(tokens, block_size):
            """How many blocks so many tokens fill."""
            whole, rest = divmod(tokens, block_size)
            more = 1 if rest else 0
            return whole + more
    ''',
    "kernels.py": """
        import triton

        @triton.jit
        def copy_kernel(source, target):
            target[0] = source[0]
    """,
}
NEW = OLD | {
    "_version.py": "__version__ = version = '0.23.0'\n",
    # Scheduler.schedule is changed; Base.has_requests stays, one line further down.
    "core/sched.py": OLD["core/sched.py"]
    .replace("LIMIT: int = 8", "LIMIT: int = 8\n        MORE = 9")
    .replace("                    budget -= count\n", "                    budget = budget - count\n"),
    # BlockPool.get_new_blocks moved with its class and its file; touch became hold; count_blocks is gone.
    "core/pool.py": "FREE = -1\n",
    "memory/__init__.py": "",
    "memory/blocks.py": OLD["core/pool.py"]
    .partition("        def count_blocks")[0]
    .replace("FREE = -1", "")
    .replace("def touch(", "def hold("),
}
DOCSTRING = '"""{text}\n\n    vLLM: {reference}\n    """'
PROJECT = {
    "pyproject.toml": "",
    "minivllm/__init__.py": "",
    "minivllm/core.py": '''
        """Ours."""

        class Scheduler:
            """Plans a step.

            vLLM: core/sched.py::Scheduler (simplified: one queue,
            no priorities)
            """

            limit = 8  # vLLM: core/sched.py::LIMIT
            rule = "fcfs"  # vLLM: policy

            @boundary("schedule")
            def schedule(self):
                """vLLM: core/sched.py::Scheduler.schedule"""

        class Pool:
            """Blocks. vLLM: core/pool.py::BlockPool"""

            def take(self):
                """Some.

                vLLM: core/pool.py::BlockPool.get_new_blocks
                """

            def touch(self):
                """vLLM: core/pool.py::BlockPool.touch"""

        class Report:
            """A table.

            vLLM: none, vLLM prints nothing
            """

        class _Private:
            pass
    ''',
    "minivllm/trace/events.py": '''
        from typing import NamedTuple

        class Kind(NamedTuple):
            """A row.

            vLLM: none, no such table
            """

            kind: str
            boundary: str | None
            process: str
            method: str
            vllm: str
            absent: str = ""

        _POOL = "core/pool.py::BlockPool"
        _TABLE = [
            ("schedule", "B10", "core", "Scheduler.schedule", "core/sched.py::Scheduler.schedule (as a list)"),
            ("take", "B12", "core", "Pool.take", f"{_POOL}.get_new_blocks", "no new block"),
            ("table", None, "core", "Report", "none, ours alone"),
        ]

        class Take(Event, tag="take"):
            """Covered by its row."""
    ''',
    "docs/guide.md": """
        # Blocks

        A block is taken from the front. See `core/pool.py::BlockPool.get_new_blocks`, which
        raises if there are too few. The test is `tests/test_core.py::test_take`.

        | `core/pool.py::count_blocks` | rounds up |

        ```
        core/sched.py::Base.has_requests
        ```
    """,
    "tests/test_core.py": "def test_take():\n    pass\n",
}


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    """Write the files, their common indentation taken off."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return folder


@dataclass
class World:
    """The made-up project and the made-up vLLM that it refers to; tests plant mistakes in either."""

    root: Path
    lock: Lock

    @property
    def project(self) -> Path:
        return self.root / "project"

    def old(self) -> Tree:
        return open_tree(str(self.root / "old"))

    def new(self) -> Tree:
        return open_tree(str(self.root / "new"))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace in a file of the project; what is replaced must be there once."""
        self._edit(self.project / name, old, new)

    def edit_vllm(self, name: str, old: str, new: str) -> None:
        """Replace in a file of the old vLLM, after the lock was made."""
        self._edit(self.root / "old/vllm" / name, old, new)

    @staticmethod
    def _edit(path: Path, old: str, new: str) -> None:
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def add_notebook(self, *cells: tuple[str, str]) -> None:
        """A notebook with cells of (type, source)."""
        path = self.project / "notebooks/one.ipynb"
        path.parent.mkdir(exist_ok=True)
        content = {"cells": [{"cell_type": kind, "source": source.splitlines(True)} for kind, source in cells]}
        path.write_text(json.dumps(content), encoding="utf-8")

    def check(self, with_tree: bool = True) -> Checked:
        return check(collect(find_project(self.project)), self.lock, self.old() if with_tree else None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    write_tree(tmp_path / "old/vllm", OLD)
    write_tree(tmp_path / "new/vllm", NEW)
    write_tree(tmp_path / "project", PROJECT)
    uses = collect(find_project(tmp_path / "project")).uses
    lock, missing = make_lock(open_tree(str(tmp_path / "old")), [(use.path, use.name) for use in uses])
    assert missing == []
    return World(tmp_path, lock)


@pytest.fixture(scope="session")
def real_tree() -> Callable[[str], Tree]:
    """The source of a version of the real vLLM: installed, fetched into the cache, or below MINIVLLM_VLLM_TREES.

    Skips the test, and says how to get it, where it is not at hand.
    """

    def find(version: str) -> Tree:
        folder = Path(os.environ.get("MINIVLLM_VLLM_TREES", "/nonexistent"))
        wheels = sorted(folder.glob(f"vllm*-{version}-*.whl"))
        try:
            return open_tree(str(wheels[0]) if wheels else version)
        except InputError:
            pytest.skip(
                f"vLLM {version} is not at hand: `minivllm refs check --fetch {version}` gets its wheel, or set "
                "MINIVLLM_VLLM_TREES to a folder of wheels"
            )

    return find
