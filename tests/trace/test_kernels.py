"""Launches and programs of kernels in a trace, with the Triton backend in Triton's interpreter."""

from pathlib import Path

import pytest
from traced_runs import Run, llm_of, record

from minivllm.trace import Trace

pytest.importorskip("triton")

from minivllm_kernels import interpreter

pytestmark = pytest.mark.skipif(not interpreter.is_interpreting(), reason="programs are watched in the interpreter")
TRITON = {"multiprocess": False, "attention_backend": "triton", "device": "cpu"}


@pytest.fixture(scope="module")
def run() -> Run:
    return record("plain", **TRITON, trace_detail=2)


def test_the_tokens_are_the_same(run: Run) -> None:
    assert run.token_ids == record("plain", multiprocess=False).token_ids


def test_every_layer_launches_its_kernels(run: Run) -> None:
    trace = run.trace
    launches = trace.filter(kind="kernel.launch")
    assert {trace.parent(launch).kind for launch in launches} == {"do_kv_cache_update", "attention"}
    first = [launch for launch in launches if launch.step == 1]
    assert [launch.name for launch in first] == ["reshape_and_cache_kernel", "paged_attention_kernel"] * 2
    for launch in launches:
        assert launch.grid
        assert launch.tensors
        assert launch.device_us is None
        assert not launch.view_error
    assert launches[0].tensors["slot_mapping"].dtype == "int64"


def test_programs_of_the_first_layer_say_what_they_touched(run: Run) -> None:
    trace = run.trace
    for launch in trace.filter(kind="kernel.launch"):
        programs = trace.children(launch)
        layer = trace.parent(launch).layer
        assert bool(programs) == (layer == 0)
        count = 1
        for size in launch.grid:
            count *= size
        assert layer != 0 or len(programs) == count
    # what was written in a step are its slots
    for step in trace.steps[:-1]:
        batch = trace.filter(step=step, kind="prepare_inputs")
        if not batch:
            continue
        block_size = trace.header.config["block_size"]
        slots = {
            block * block_size + offset
            for program in trace.filter(step=step, kind="kernel.program")
            for block, first, last, _ in program.writes.get("k_cache", [])
            for offset in range(first, last + 1)
        }
        assert slots == set(batch[0].slot_mapping)


def test_attention_reads_every_key_of_the_sequence(run: Run) -> None:
    trace = run.trace
    decode = trace.filter(step=5, kind="prepare_inputs")[0]
    table = trace.state_at(decode.seq).block_tables[trace.request_ids[0]]
    block_size = trace.header.config["block_size"]
    read = {
        block * block_size + offset
        for program in trace.filter(step=5, kind="kernel.program")
        for block, first, last, _ in program.reads.get("k_cache", [])
        for offset in range(first, last + 1)
    }
    expected = {table[p // block_size] * block_size + p % block_size for p in range(decode.seq_lens[0])}
    assert read == expected
    tiles = [tile for program in trace.filter(step=5, kind="kernel.program") for tile in program.tiles]
    assert tiles
    assert all(len(tile.row_max) == len(tile.row_sum) for tile in tiles)


def test_a_launch_without_its_programs_at_detail_1() -> None:
    trace = record("plain", **TRITON, trace_detail=1).trace
    assert trace.filter(kind="kernel.launch")
    assert not trace.filter(kind="kernel.program")
    assert not record("plain", **TRITON).trace.filter(kind=("kernel.launch", "kernel.program"))


def test_a_kernel_that_fails_leaves_the_interpreter_as_it_was(tmp_path: Path) -> None:
    from triton.runtime.interpreter import interpreter_builder

    path = tmp_path / "trace.jsonl"
    with llm_of("plain", **TRITON, trace_detail=2, trace=str(path)) as llm:
        backend = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.backend

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("out of registers")

        from minivllm.attention import triton_backend

        with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="out of registers"):
            patch.setattr(triton_backend, "launch_kernel", fail)
            llm.generate("fox", use_tqdm=False)
        assert backend.probe.interpreter.is_interpreting()
    assert not {"create_masked_load", "create_masked_store", "set_grid_idx"} & set(vars(interpreter_builder))
    (launch,) = Trace.load(path).filter(kind="kernel.launch")
    assert launch.error == "RuntimeError: out of registers"
    assert launch.view_error is None
