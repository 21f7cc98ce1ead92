"""What the interpreter really loads and stores, against what the page table says should be read and written."""

import json

import numpy as np
import pytest
import torch

from minivllm_kernels import probe, reference
from minivllm_kernels.cases import Batch, Case, make_batch
from minivllm_kernels.flash_attention import traffic
from minivllm_kernels.flash_attention.triton_forward import flash_attention
from minivllm_kernels.interpreter import is_interpreting
from minivllm_kernels.kernel_map import render_map
from minivllm_kernels.launch import launch
from minivllm_kernels.paged_attention import paged_attention
from minivllm_kernels.paged_decode import paged_decode, paged_decode_split
from minivllm_kernels.probe import Program, describe_launch, watch_programs
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.tuning import ReadTuning

pytestmark = pytest.mark.skipif(not is_interpreting(), reason="the probe works in the interpreter alone")

CASE = Case((9, 3), 64, 16)
ROWS = [(41, 41), (9, 41), (14, 30)]  # 64 tokens of 3 sequences, as in the notebooks


class Watched:
    """A launcher that keeps the facts and the programs of each launch."""

    def __init__(self) -> None:
        self.facts: list[dict] = []
        self.programs: list[list[Program]] = []

    def launch(self, kernel, grid: tuple[int, ...], **arguments) -> None:
        self.facts.append(describe_launch(kernel, grid, arguments))
        self.programs.append(watch_programs(kernel, grid, arguments))


@pytest.fixture
def batch() -> Batch:
    batch = make_batch(CASE, ROWS)
    reference.reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), batch.slot_mapping)
    return batch


def flat(batch: Batch) -> tuple:
    caches = batch.kv_cache.unbind(1)
    return (batch.q, *caches, batch.query_start_loc, batch.seq_lens, batch.block_table, batch.scale)


def slots_of(batch: Batch, row: int, places: range) -> list[tuple[int, int]]:
    """(block, offset) of tokens of a sequence, through the table."""
    block_size = batch.kv_cache.shape[2]
    return [(int(batch.block_table[row, p // block_size]), p % block_size) for p in places]


def test_write_hits_the_slots_and_nothing_else(batch: Batch) -> None:
    watched = Watched()
    slots = batch.slot_mapping.clone()
    slots[5] = -1
    reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), slots, launch=watched.launch)
    (programs,) = watched.programs
    assert len(programs) == len(slots)
    for program, slot in zip(programs, slots.tolist(), strict=True):
        expected = [] if slot < 0 else [(slot // 16, slot % 16, head) for head in range(3)]
        assert program.places("k_cache", store=True) == program.places("v_cache", store=True) == expected
        assert program.idle == (slot < 0)
        assert program.bytes_moved("k_cache", 4, store=True) == (0 if slot < 0 else 3 * 64 * 4)


def test_varlen_reads_each_tokens_past_once(batch: Batch) -> None:
    watched = Watched()
    output = paged_attention(*flat(batch), launch=watched.launch)
    (programs,), (facts,) = watched.programs, watched.facts
    torch.testing.assert_close(output, reference.paged_attention(*flat(batch)), atol=1e-5, rtol=0)
    assert facts["grid"] == [15, 3]  # 64 // 5 + 3 blocks of tokens, 3 KV heads
    expected = {}
    q_block = 0
    for row, (new, length) in enumerate(ROWS):
        for first in range(0, new, 5):
            tokens = range(first, min(first + 5, new))
            keys = range(length - new + tokens[-1] + 1)
            start = int(batch.query_start_loc[row])
            expected[q_block] = slots_of(batch, row, keys), [start + token for token in tokens]
            q_block += 1
        if new % 5 == 0:
            q_block += 1
        q_block = (int(batch.query_start_loc[row + 1])) // 5 + row + 1
    for program in programs:
        q_block, kv_head, _ = program.index
        slots, tokens = expected.get(q_block, ([], []))
        reads = [(block, offset, kv_head) for block, offset in slots]
        assert program.places("k_cache") == program.places("v_cache") == reads
        outputs = [(token, kv_head * 3 + head) for token in tokens for head in range(3)]
        assert program.places("out", store=True) == outputs
        assert program.places("q") == outputs
        assert program.bytes_moved("k_cache", 4) == len(slots) * 64 * 4
    assert sum(program.idle for program in programs) == 3


def test_decode_reads_each_key_once(batch: Batch) -> None:
    watched = Watched()
    queries = batch.q[:3].contiguous()
    shared = (*batch.kv_cache.unbind(1), batch.block_table, batch.seq_lens, batch.scale)
    paged_decode(queries, *shared, torch.empty_like(queries), launch=watched.launch)
    for program in watched.programs[0]:
        row, kv_head, _ = program.index
        slots = slots_of(batch, row, range(ROWS[row][1]))
        assert program.places("k_cache") == [(block, offset, kv_head) for block, offset in slots]
        assert program.places("seq_lens") == [(row,)]


def test_segments_share_the_keys_out(batch: Batch) -> None:
    watched = Watched()
    queries, num_segments = batch.q[:3].contiguous(), 2
    shared = (*batch.kv_cache.unbind(1), batch.block_table, batch.seq_lens, batch.scale)
    paged_decode_split(queries, *shared, torch.empty_like(queries), num_segments, launch=watched.launch)
    segments, joined = watched.programs
    assert [facts["name"] for facts in watched.facts] == ["paged_decode_segments_kernel", "reduce_segments_kernel"]
    for program in segments:
        row, kv_head, segment = program.index
        tiles = -(-ROWS[row][1] // (num_segments * 16))
        keys = range(min(segment * tiles * 16, ROWS[row][1]), min((segment + 1) * tiles * 16, ROWS[row][1]))
        assert program.places("k_cache") == [(block, place, kv_head) for block, place in slots_of(batch, row, keys)]
    written = {place for program in segments for place in program.places("segment_max", store=True)}
    read = {place for program in joined for place in program.places("segment_max")}
    assert read == written, "no dead segment is read"


def test_running_maximum_and_sum_are_those_of_the_scores(batch: Batch) -> None:
    """One sequence's token, tile by tile of 16, against the scores computed from the cache."""
    watched = Watched()
    query = batch.q[:1].contiguous()
    shared = (*batch.kv_cache.unbind(1), batch.block_table[:1], batch.seq_lens[:1], batch.scale)
    tuning = ReadTuning(tile=16, num_warps=4, num_stages=1)
    paged_decode(query, *shared, torch.empty_like(query), tuning=tuning, launch=watched.launch)
    keys = reference.gather_kv(batch.kv_cache[:, 0], batch.block_table[0], 41)
    for program in watched.programs[0]:
        kv_head = program.index[1]
        scores = batch.scale * query[0, kv_head * 3 : kv_head * 3 + 3] @ keys[:, kv_head].T  # [3, 41]
        assert program.rows.tolist() == [0, 1, 2]
        assert len(program.tiles) == 3
        before = torch.full((3,), -torch.inf)
        for number, tile in enumerate(program.tiles):
            so_far = scores[:, : (number + 1) * 16]
            places = range(number * 16, min(number * 16 + 16, 41))
            assert tile.keys.tolist() == [[block, place, kv_head] for block, place in slots_of(batch, 0, places)]
            largest = so_far.amax(1)
            np.testing.assert_allclose(tile.row_max[:3], largest, atol=1e-5)
            np.testing.assert_allclose(tile.row_sum[:3], (so_far - largest[:, None]).exp().sum(1), rtol=1e-5)
            np.testing.assert_allclose(tile.correction[:3], (before - largest).exp(), atol=1e-5)
            before = largest


def test_records_are_json_and_small(batch: Batch) -> None:
    watched = Watched()
    paged_attention(*flat(batch), launch=watched.launch)
    records = [program.as_dict() for program in watched.programs[0]]
    assert json.loads(json.dumps([watched.facts, records])) == [watched.facts, records]
    assert len(json.dumps(records)) < 60_000
    first_block = int(batch.block_table[0, 0])
    assert records[0]["reads"]["k_cache"] == [[first_block, 0, 4, 0]]
    assert records[0]["rows"] == list(range(15)), "the sixteenth row has no token"
    facts = watched.facts[0]
    assert facts["name"] == "paged_attention_kernel"
    assert facts["tensors"]["q"] == {"shape": [64, 9, 64], "strides": [9 * 64 + 16, 64, 1], "dtype": "float32"}
    assert facts["tensors"]["k_cache"]["strides"] == [2 * 16 * 3 * 64, 3 * 64, 64, 1]
    assert facts["constants"] == {
        "G": 3,
        "D": 64,
        "D2": 64,
        "BLOCK_SIZE": 16,
        "BLOCK_Q": 5,
        "BLOCK_M": 16,
        "TILE": 32,
        "LONGEST_FIRST": False,
        "SLIDING_WINDOW": 0,
        "SOFTCAP": 0.0,
    }
    assert facts["numbers"]["num_seqs"] == 3 and facts["num_warps"] == 4


def test_map_for_the_terminal(batch: Batch) -> None:
    watched = Watched()
    paged_attention(*flat(batch), launch=watched.launch)
    reshape_and_cache(batch.key, batch.value, *batch.kv_cache.unbind(1), batch.slot_mapping[:2], launch=watched.launch)
    read, write = (
        render_map(facts, [program.as_dict() for program in programs])
        for facts, programs in zip(watched.facts, watched.programs, strict=True)
    )
    first, second = batch.block_table[0, :2].tolist()
    assert "paged_attention_kernel: grid 15 x 3 = 45 programs" in read
    assert f"(0, 0-2)   reads {first}[0-4] for tokens 0-4" in read
    assert f"(3, 0-2)   reads {first}[0-15] {second}[0-3] for tokens 15-19" in read
    assert "left at once, with nothing to do: 3" in read
    assert f"(1, 0)  writes {first}[1]" in write


def test_watching_changes_nothing(batch: Batch) -> None:
    unwatched = paged_attention(*flat(batch))
    assert torch.equal(paged_attention(*flat(batch), launch=Watched().launch), unwatched)
    assert torch.equal(paged_attention(*flat(batch)), unwatched)


def test_an_address_outside_of_all_tensors(batch: Batch) -> None:
    """A kernel that is told a wrong stride is caught before its memory access does harm."""

    def wrong_stride(kernel, grid: tuple[int, ...], **arguments) -> None:
        watch_programs(kernel, grid, arguments | {"q_stride": 10**7})

    with pytest.raises(Exception, match=r"ProbeError.*outside of its tensors: q at"):
        paged_attention(*flat(batch), launch=wrong_stride)
    paged_attention(*flat(batch), launch=launch)  # and nothing stays behind


@pytest.mark.parametrize(("block_m", "tile"), [(16, 16), (64, 32), (32, 64)])
def test_computed_traffic_is_what_the_kernel_asks_for(block_m: int, tile: int) -> None:
    heads, tokens, size = 2, 150, 16
    q, k, v = (torch.randn(heads, tokens, size) for _ in range(3))
    watched = Watched()
    tuning = ReadTuning(block_m=block_m, tile=tile, num_warps=4, num_stages=1)
    flash_attention(q, k, v, tuning=tuning, launch=watched.launch)
    asked = sum(
        program.bytes_moved(tensor, 4, store)
        for program in watched.programs[0]
        for tensor, store in (("q", False), ("k", False), ("v", False), ("out", True))
    )
    assert asked == traffic.tiled(traffic.Shapes(tokens, heads, heads, size), block_m, tile)


def test_device_timer_without_a_device() -> None:
    timer = probe.DeviceTimer("cpu")
    timer.start()
    timer.stop()
    assert timer.microseconds() is None
