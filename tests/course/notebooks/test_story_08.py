"""Notebook 08: the numbers of its story, in the recorded traces and in Triton's interpreter.

They are those of vLLM's kernel, but for the last row of a program, which is idle here.
"""

import importlib.util

import pytest

from minivllm.course.places import repo_path
from minivllm.lessons import facts_07, facts_08, facts_08_ptx, facts_08_run
from minivllm.trace import Trace, load

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton exists for Linux")


def trace(name: str) -> Trace:
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


@pytest.fixture(scope="module")
def together() -> Trace:
    return trace("kernels-together")


@pytest.fixture(scope="module")
def interpreter() -> None:
    pytest.importorskip("triton")
    if not facts_08_run.can_run():
        pytest.skip("triton was imported before its interpreter was chosen")


# ---------------------------------------------------------------------- from the traces


def test_the_write(together: Trace) -> None:
    launch = facts_08.launch_of(together, 1, "reshape_and_cache_kernel")
    assert facts_08.count(launch) == 64
    (line,) = facts_08.write_rows(together, 1, "ABC", [41])
    assert line == {
        "program": 41,
        "token of": "B",
        "position": 32,
        "slot": 64,
        "writes block[cell]": "4[0]",
        "numbers of K": 192,
        "numbers of V": 192,
    }


def test_the_grid(together: Trace) -> None:
    launch = facts_08.launch_of(together, 1, "paged_attention_kernel")
    programs = facts_08.programs_of(together, launch)
    idle = [program.program[:2] for program in programs if not program.writes]
    assert launch.grid == [15, 3]
    assert (len(programs), len(programs) - len(idle)) == (45, 42)
    assert idle == [[11, head] for head in range(3)]
    assert {name: launch.constants[name] for name in ("BLOCK_Q", "BLOCK_M", "G", "TILE")} == {
        "BLOCK_Q": 5,
        "BLOCK_M": 16,
        "G": 3,
        "TILE": 32,
    }


def test_who_reads_what(together: Trace) -> None:
    lines = facts_08.read_rows(together, 1, "ABC")
    assert "".join(line["request"] for line in lines) == "AAAAAAAAABBBCCC"
    assert lines[0]["keys"] == 5  # vLLM's program reads a sixth, for its sixteenth row
    assert lines[10]["reads block[cells]"] == "1[0–15] 2[0–15] 4[0–8]"
    assert lines[11]["reads block[cells]"] == "leaves at once"
    assert facts_08.blocks_of(lines) == [1, 2, 3, 4, 5]
    assert facts_08.keys_by_block(lines)[14] == [16, None, None, None, 14]
    assert facts_08.owners_by_block(lines)[14] == ["C", None, None, None, "C"]


def test_how_a_program_finds_its_request(together: Trace) -> None:
    launch = facts_08.launch_of(together, 1, "paged_attention_kernel")
    first = {one.program[0]: one for one in facts_08.programs_of(together, launch) if one.program[1] == 0}
    borders = [0, 41, 50, 64]
    assert {number: facts_08.searched(first[number], borders)[1] for number in (0, 8, 9, 11, 12, 14)} == {
        0: 0,
        8: 0,
        9: 1,
        11: 1,
        12: 2,
        14: 2,
    }
    assert [facts_08.owner_of(borders, token) for token in (0, 40, 41, 49, 50, 63)] == [0, 0, 1, 1, 2, 2]


def test_a_decode_tile_by_tile() -> None:
    mixed = trace("kernels-mixed")
    program = facts_08.program_of(mixed, 9, row=0)
    assert [facts_08.show_cells(tile.keys) for tile in program.tiles] == ["1[0–15] 2[0–15]", "3[0–15] 7[0]"]
    assert [launch.name for launch in facts_08.launches(mixed, 9)] == ["paged_attention_kernel"]


def test_the_split_form(together: Trace) -> None:
    split, join = facts_08.launches(together, 9)
    working = [one for one in facts_08.programs_of(together, split) if one.writes]
    assert (split.grid, facts_08.count(split), len(working), facts_08.count(join)) == ([3, 3, 16], 144, 33, 27)
    assert [len(facts_08.segments(together, 9, row)) for row in range(3)] == [4, 4, 3]
    one = trace("kernels-one")
    alone = facts_08.launch_of(one, 9, "paged_decode_segments_kernel")
    assert (alone.grid, sum(1 for part in facts_08.programs_of(one, alone) if part.writes)) == ([1, 3, 16], 12)
    assert facts_08.segments(trace("kernels-one-block-32"), 9, 0) == ["1[0–15]", "1[16–31]", "2[0–15]", "2[16]"]
    with pytest.raises(LookupError):
        facts_08.launch_of(together, 2, "paged_attention_kernel")


def test_bytes_of_a_decode() -> None:
    assert trace("one").filter(step=9, kind="prepare_inputs")[0].seq_lens[0] * facts_08.KV_BYTES == 75_264


def test_the_running_max() -> None:
    pytest.importorskip("torch")
    head = facts_07.read_by_head(trace("values-rome"), step=13, layer=16, head=0)
    carried = list(facts_08_run.carried(head.query, head.keys, tile=16))
    assert [(first, last) for first, last, *_ in carried] == [(0, 15), (16, 31), (32, 47), (48, 52)]
    assert [round(top, 3) for _, _, top, _, _ in carried] == [0.732, 0.732, 0.732, 3.544]
    assert [round(factor, 4) for *_, factor, _ in carried] == [1, 1, 1, 0.0601]
    assert [total for *_, total in carried] == pytest.approx([1.009, 1.0124, 1.0402, 1.1176], abs=1e-4)


def test_the_map_in_the_terminal(together: Trace, capsys: pytest.CaptureFixture[str]) -> None:
    facts_08.show_map(together, facts_08.launches(together, 9)[0])
    assert "(0, 0-2, 3)  reads 7[0] for token 0" in capsys.readouterr().out


# ---------------------------------------------------------------------- in the interpreter


def test_a_negative_slot_is_skipped(together: Trace) -> None:
    pytest.importorskip("torch")
    slots = together.filter(step=1, kind="prepare_inputs")[0].slot_mapping
    assert facts_08_run.cells_written(slots) == 64
    assert facts_08_run.cells_written([-1, *slots[1:]]) == 63


@pytest.mark.usefixtures("interpreter")
def test_unwritten_slots_do_not_matter(together: Trace) -> None:
    batch = facts_08_run.flat_batch(together, 9)
    assert batch.tables == [[1, 2, 3, 7], [1, 2, 4, 8], [1, 5, 6]]
    assert facts_08_run.change(batch, batch.without_nan()) == "0, to the last bit"
    assert facts_08_run.change(batch, batch, "decode") == "below one in a million"
    assert facts_08_run.change(batch, batch, "varlen") == "below one in a million"


@pytest.mark.usefixtures("interpreter")
def test_one_spoilt_key(together: Trace) -> None:
    batch = facts_08_run.flat_batch(together, 9).with_nan(block=2, cell=5, kv_head=0)
    spoilt = facts_08_run.attend(batch).isnan().any(-1).tolist()
    assert spoilt == [[True] * 3 + [False] * 6, [True] * 3 + [False] * 6, [False] * 9]


# ---------------------------------------------------------------------- down to PTX


@needs_triton
def test_the_machine_code() -> None:
    write, read, half = facts_08_ptx.machine_code(
        ("reshape_and_cache", "float32"), ("paged_decode", "float32"), ("paged_decode", "bfloat16")
    )
    assert facts_08_ptx.found(read, "ex2.approx") == "6"
    assert "shr.u64" in write["ptx"] and "and.b64" in write["ptx"]
    for one in (write, read, half):
        assert one["counts"]["e^x"] == one["counts"]["integer division (div, rem)"] == one["spills"] == 0
    assert read["counts"]["tensor core, tf32"] == 0  # vLLM's has some
    assert half["counts"]["tensor core, bfloat16"] > 0
