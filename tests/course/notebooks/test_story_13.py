"""Notebook 13: the numbers of its story, from shapes, from a recorded trace, and counted in Triton's interpreter."""

import pytest

from minivllm.course.places import repo_path
from minivllm.trace import load

torch = pytest.importorskip("torch")

from minivllm.lessons import facts_08_run, facts_13  # noqa: E402
from minivllm_kernels.flash_attention.naive import naive_attention  # noqa: E402
from minivllm_kernels.flash_attention.tiled import tiled_attention  # noqa: E402
from minivllm_kernels.flash_attention.traffic import Shapes, naive, needed, tiled  # noqa: E402


def trace(name: str):
    return load(str(repo_path("traces") / f"{name}.jsonl.gz"))


@pytest.fixture(scope="module")
def interpreter() -> None:
    pytest.importorskip("triton")
    if not facts_08_run.can_run():
        pytest.skip("triton was imported before its interpreter was chosen")


def test_traffic_from_shapes() -> None:
    sizes = [Shapes(tokens) for tokens in (41, 256, 1024, 4096)]
    assert sizes[0].score_bytes == 60_516
    assert [facts_13.megabytes(one.score_bytes) for one in sizes] == ["60.5 kB", "2.36 MB", "37.7 MB", "604 MB"]
    totals = [sum(naive(one).values()) for one in sizes]
    assert [facts_13.megabytes(one) for one in totals] == ["494 kB", "11.0 MB", "157 MB", "2,441 MB"]
    assert [facts_13.megabytes(needed(one)) for one in sizes] == ["252 kB", "1.57 MB", "6.29 MB", "25.2 MB"]
    assert [round(total / needed(one)) for total, one in zip(totals, sizes, strict=True)] == [2, 7, 25, 97]
    assert round(totals[3] / totals[2], 1) == 15.5
    assert facts_13.megabytes(sizes[3].query_bytes) == "9.44 MB"
    dial = [tiled(sizes[1], rows, rows) - 2 * sizes[1].query_bytes for rows in (64, 128)]
    assert [facts_13.megabytes(one) for one in dial] == ["2.95 MB", "1.77 MB"]


def test_numbers_are_written_as_everywhere() -> None:
    assert [facts_13.megabytes(one) for one in (9_999, 10_000, 99_950, 5e6)] == [
        "9,999 bytes",
        "10.0 kB",
        "100.0 kB",
        "5.00 MB",
    ]


def test_the_three_ways_agree_on_the_prompt() -> None:
    q, k, v = facts_13.prompt(trace("values-prompt"))
    assert q.shape == k.shape == (9, 41, 64)
    whole = naive_attention(q, k, v)
    for tile in (16, 64):
        torch.testing.assert_close(tiled_attention(q, k, v, tile, tile), whole, atol=1e-5, rtol=0)


def test_the_lines_side_by_side() -> None:
    lines = facts_13.side_by_side("tiled.py", "triton_forward.py")
    assert len(lines) == len(facts_13.STEPS)
    for ours, theirs in lines:
        assert ours.split(" = ")[0] == theirs.split(" = ")[0]


def test_a_decode_reads_each_number_once() -> None:
    assert facts_13.decode_bytes(trace("kernels-one"), 9) == (37_632, 37_632, 75_264)


@pytest.mark.usefixtures("interpreter")
def test_measured_equals_computed() -> None:
    counted = facts_13.measured(facts_13.flash(*facts_13.random_heads(256), block_m=64, tile=64))
    assert sum(counted.values()) == tiled(Shapes(256), 64, 64)
    assert counted == facts_13.expected_flash(256, 64)


@pytest.mark.usefixtures("interpreter")
def test_the_serving_kernel_saves_nothing_on_a_prompt() -> None:
    """10.6 MB; vLLM's asks for one key more in each program, 10.7 MB."""
    assert facts_13.blocks_of_queries(256) == (5, 52)
    counted = facts_13.measured(facts_13.serving(256))
    expected = facts_13.expected(256)
    assert {name: counted[name] for name in expected} == expected
    assert facts_13.megabytes(sum(expected.values())) == "10.6 MB"
