"""The cache of compiled kernels: what is damaged is made again, what others may have written is not run, and each of
these is told in one line."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults import fault

from minivllm_kernels import library
from minivllm_kernels.compiler import find_compiler
from minivllm_kernels.library import LibraryError, load_library

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")

SOURCE = """
#ifndef ANSWER
#define ANSWER 7
#endif
int answer(void) { return ANSWER; }
"""
PLANTED = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { FILE *f = fopen("%s", "w"); if (f) fclose(f); }
int answer(void) { return 13; }
"""
Cache = Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    source = tmp_path / "small.c"
    source.write_text(SOURCE)
    monkeypatch.setattr(library, "SOURCE", source)
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "cache" / "kernels"


def answer(cache: Cache, *defines: str) -> int:
    return load_library(cache, "small", defines).answer()


def entry(cache: Cache) -> tuple[Path, Path]:
    """(record, library), the only files there."""
    (record,), (made,) = cache.glob("*.json"), cache.glob("*.so")
    assert sorted(cache.iterdir()) == sorted([record, made])
    return record, made


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    caplog.clear()
    assert all("\n" not in line for line in told)
    return told


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(command: list[str]) -> str:
        raise AssertionError(f"compiled: {command}")

    monkeypatch.setattr(library, "_run", never)


def test_an_entry_says_what_it_is(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(cache, "-DANSWER=9") == 9
    record, made = entry(cache)
    facts = json.loads(record.read_text())
    assert facts["library"] == made.name and facts["sha256"] == hashlib.sha256(made.read_bytes()).hexdigest()
    assert facts["version"] and facts["flags"][-1] == "-DANSWER=9" and "-O3" in facts["flags"]
    assert cache.stat().st_mode & 0o777 == cache.parent.stat().st_mode & 0o777 == 0o700
    forbid_compiling(monkeypatch)
    assert answer(cache, "-DANSWER=9") == 9


def filled(cache: Cache) -> tuple[Path, Path]:
    """An entry that this process has not loaded: the loader would take what it has under that name."""
    answer(cache.parent / "first")
    shutil.copytree(cache.parent / "first", cache)
    return entry(cache)


def replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def cut(record: Path, made: Path) -> None:
    replaced(made, made.read_bytes()[: made.stat().st_size // 2])


def emptied(record: Path, made: Path) -> None:
    replaced(made, b"")


def garbage(record: Path, made: Path) -> None:
    replaced(made, b"no library " * 2000)


def gone(record: Path, made: Path) -> None:
    made.unlink()


def no_json(record: Path, made: Path) -> None:
    record.write_bytes(b"{\xff")


def a_list(record: Path, made: Path) -> None:
    record.write_text("[1, 2]")


def a_number(record: Path, made: Path) -> None:
    record.write_text(json.dumps({"library": 3, "sha256": 4}))


@fault(
    "Memory and kernels",
    "a compiled kernel in the cache is damaged",
    how="the library cut, empty, overwritten or gone; its record no JSON, a list, or of wrong types",
    then="one line; it is compiled again, once",
)
@pytest.mark.parametrize("damage", [cut, emptied, garbage, gone, no_json, a_list, a_number])
def test_a_damaged_entry_is_made_again_once(
    damage, cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(*filled(cache))
    assert answer(cache) == 7
    (told,) = lines(caplog)
    assert str(cache) in told and "made again" in told
    entry(cache)
    forbid_compiling(monkeypatch)
    assert answer(cache) == 7 and lines(caplog) == []


def test_a_record_that_names_a_file_elsewhere(cache: Cache, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record, made = filled(cache)
    other = tmp_path / made.name
    shutil.move(made, other)
    record.write_text(json.dumps({**json.loads(record.read_text()), "library": f"../../{made.name}"}))
    assert answer(cache) == 7
    assert "made again" in lines(caplog)[0]


def plant(cache: Cache, tmp_path: Path) -> Path:
    """Another library under the right name and with a right record. Gives the file that shows that it ran."""
    record, made = filled(cache)
    shown = tmp_path / "planted code has run"
    source = tmp_path / "planted.c"
    source.write_text(PLANTED % shown)
    made.unlink()
    subprocess.run([*find_compiler(), "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    facts = {**json.loads(record.read_text()), "sha256": hashlib.sha256(made.read_bytes()).hexdigest()}
    record.write_text(json.dumps(facts))
    for path in (record, made):
        path.chmod(0o600)
    return shown


def open_folder(cache: Cache) -> None:
    cache.chmod(0o777)


def open_library(cache: Cache) -> None:
    entry(cache)[1].chmod(0o666)


def open_record(cache: Cache) -> None:
    entry(cache)[0].chmod(0o620)


def linked(cache: Cache) -> None:
    made = entry(cache)[1]
    made.rename(cache.parent / "elsewhere.so")
    made.symlink_to(cache.parent / "elsewhere.so")


def owned_folder(cache: Cache) -> None:
    os.chown(cache, 65534, 65534)


def owned_library(cache: Cache) -> None:
    os.chown(entry(cache)[1], 65534, 65534)


@fault(
    "Memory and kernels",
    "a compiled kernel that somebody else may have written",
    how="code is planted under the right name, with a right record; folder or file belongs to another user, can be "
    "written by others, or is a link",
    then="it is not run; one line; the kernels are compiled for this process alone",
)
@pytest.mark.parametrize("trick", [open_folder, open_library, open_record, linked, owned_folder, owned_library])
def test_what_others_may_have_written_is_not_run(
    trick, cache: Cache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if trick in (owned_folder, owned_library) and os.getuid() != 0:
        pytest.skip("only root can give files away")
    shown = plant(cache, tmp_path)
    trick(cache)
    assert answer(cache) == 7
    (told,) = lines(caplog)
    assert "by others" in told or "another user (uid 65534)" in told or "is a link" in told
    assert "for this process alone" in told
    assert not shown.exists()


def test_the_planted_library_would_have_run(cache: Cache, tmp_path: Path) -> None:
    """The test above plants what works."""
    shown = plant(cache, tmp_path)
    assert answer(cache) == 13 and shown.exists()


def test_a_folder_that_can_not_be_made(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    cache.parent.parent.mkdir(exist_ok=True)
    cache.parent.write_text("a file")
    assert answer(cache) == 7
    assert "can't be used" in lines(caplog)[0]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("makes nothing", "exit 0"),
        ("fails", "echo no >&2; exit 1"),
        ("makes garbage", 'while [ "$1" != -o ]; do shift || exit 0; done; echo garbage > "$2"'),
    ],
)
def test_a_compiler_that_does_not_work_leaves_nothing(
    what: str, text: str, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "mycc", text))
    with pytest.raises(LibraryError, match=r"mycc made no library of small\.c"):
        answer(cache)
    assert list(cache.iterdir()) == []
    monkeypatch.delenv("CC")
    assert answer(cache) == 7


def test_a_compiler_with_arguments_or_a_program_in_front(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cc,) = find_compiler()
    monkeypatch.setenv("CC", f"{cc} -DANSWER=5")
    assert answer(cache) == 5
    in_front = script(tmp_path / "my ccache", 'exec "$@" -DANSWER=6')
    monkeypatch.setenv("CC", f"'{in_front}' {cc}")
    assert answer(cache) == 6
    assert len(list(cache.glob("*.so"))) == 2, "each has an entry of its own"
    for nothing in ("no-such-compiler", "'without end", " "):
        monkeypatch.setenv("CC", nothing)
        assert find_compiler() == (cc,)


def test_another_version_of_the_compiler_is_another_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(cache)
    monkeypatch.setattr(library, "compiler_version", lambda compiler: "newer")
    answer(cache)
    assert len(list(cache.glob("*.json"))) == 2


@fault(
    "Memory and kernels",
    "four processes compile the kernels at once",
    how="four processes, an empty cache",
    then="each gets its kernels; one entry is left",
)
def test_four_processes_at_once(cache: Cache) -> None:
    code = (
        "import sys; from pathlib import Path; from minivllm_kernels import library; "
        f"library.SOURCE = Path({str(library.SOURCE)!r}); "
        f"print(library.load_library(Path({str(cache)!r}), 'small').answer())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate(timeout=300) for process in running] == [("7\n", "")] * 4
    assert answer(cache) == 7
    assert len(list(cache.glob("*.json"))) == 1 and not list(cache.glob(".compile-*"))
