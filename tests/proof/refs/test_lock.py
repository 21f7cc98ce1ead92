"""The lock: made, written, read; and what it says when it can't be."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from minivllm.errors import InputError
from minivllm.proof.refs.lock import LINES_FILE, LOCK_FILE, PINNED, make_lock, read_lock, write_lock
from minivllm.proof.refs.resolve import Source


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "some.lock.json", folder / "some.lines.json.gz"


def test_what_is_written_is_read(world: Any, tmp_path: Path) -> None:
    write_lock(world.lock, *files(tmp_path))
    assert read_lock(*files(tmp_path)) == world.lock


def test_the_same_lock_is_the_same_file_and_has_a_line_a_symbol(world: Any, tmp_path: Path) -> None:
    lock_file, lines_file = files(tmp_path)
    write_lock(world.lock, lock_file, lines_file)
    first = lock_file.read_bytes(), lines_file.read_bytes()
    write_lock(world.lock, lock_file, lines_file)
    assert (lock_file.read_bytes(), lines_file.read_bytes()) == first
    text = lock_file.read_text()
    assert all(text.count(f'"{entry.sha256}"') == 1 for entry in world.lock.entries.values())
    assert all(len(line) < 200 for line in text.split("\n"))


def test_lines_are_locked_without_their_text(world: Any, tmp_path: Path) -> None:
    tree = world.old()
    for entry in world.lock.entries.values():
        source = Source(tree.text(entry.path))
        assert world.lock.keys_of(entry) == source.keys_of(source.symbols[entry.name])
    write_lock(world.lock, *files(tmp_path))
    assert "not enough free blocks" not in files(tmp_path)[0].read_text()


def test_definitions_of_the_pinned_version_are_known(world: Any) -> None:
    assert world.lock.was_defined("core/pool.py", "BlockPool.__init__")
    assert not world.lock.was_defined("core/pool.py", "BlockPool.hold")
    assert not world.lock.was_defined("core/sched.py", "BlockPool.touch")


def test_what_can_not_be_locked_is_told(world: Any) -> None:
    lock, missing = make_lock(world.old(), [("core/pool.py", "FREE"), ("core/pool.py", "USED"), ("no.py", "X")])
    assert list(lock.entries) == [("core/pool.py", "FREE")]
    assert missing == ["core/pool.py::USED", "no.py::X"]


def test_a_lock_that_can_not_be_read_says_how_to_make_it(world: Any, tmp_path: Path) -> None:
    lock_file, lines_file = files(tmp_path)
    with pytest.raises(InputError, match=r"can't be read.*minivllm refs lock --vllm 0\.22\.0"):
        read_lock(lock_file, lines_file)
    write_lock(world.lock, lock_file, lines_file)
    content = json.loads(lock_file.read_text())
    lock_file.write_text(json.dumps(content | {"vllm": "0.21.0"}))
    with pytest.raises(InputError, match=r"is of vLLM 0\.22\.0, but some\.lock\.json is of 0\.21\.0"):
        read_lock(lock_file, lines_file)
    lock_file.write_text(lock_file.read_text()[:-9])
    with pytest.raises(InputError, match="can't be read"):
        read_lock(lock_file, lines_file)


def test_the_project_ships_its_lock() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    for path in (LOCK_FILE, LINES_FILE):
        assert path.parent.name == "refs" and any(path.match(pattern) for pattern in patterns)
    lock = read_lock()
    assert lock.version == PINNED
    assert all(len(lock.keys_of(entry)) == entry.last - entry.first + 1 for entry in lock.entries.values())
