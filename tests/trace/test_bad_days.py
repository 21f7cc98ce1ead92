"""Bad days of a traced engine: disks that can't be written, processes that are killed, calls that fail.

The run is never harmed, and what was written can be read.
"""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model
from traced_runs import PROMPTS, generate, greedy, llm_of

from minivllm.errors import EngineDeadError, InputError
from minivllm.trace import Trace


def run_script(script: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A script of its own, in a process of its own; it gets the tiny model's folder and `arguments`."""
    command = [sys.executable, "-c", script, str(tiny_model()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------------- places that can't be written


@pytest.mark.parametrize(
    ("place", "across"),
    [("under a file", False), ("under a file", True), ("on a read-only disk", False), ("a folder", False)],
)
def test_a_place_that_cannot_be_written_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], place: str, across: bool
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    target = {
        "under a file": tmp_path / "file/trace.jsonl",
        "on a read-only disk": Path("/proc/trace.jsonl"),
        "a folder": tmp_path / "folder",
    }[place]
    with caplog.at_level(logging.WARNING), llm_of("plain", multiprocess=across, trace=str(target)) as llm:
        assert generate(llm, "plain")[0].finished
        assert generate(llm, "plain")[0].finished
    warnings = [record.getMessage() for record in caplog.records if "trace" in record.getMessage()]
    assert len(warnings) == 1
    assert str(target) in warnings[0]
    assert "give `trace` another path" in warnings[0]
    assert "trace" not in capfd.readouterr().err  # and the core's process says nothing
    assert names_in(tmp_path) == ["file", "folder"]


FULL_DISK = """
import logging, resource, signal, sys
from minivllm import LLM, SamplingParams
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))  # of the core's process too
with LLM(sys.argv[1], trace=sys.argv[2]) as llm:
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    outputs = [llm.generate("fox", params, use_tqdm=False)[0] for _ in range(3)]
print([len(output.outputs[0].token_ids) for output in outputs])
"""


def test_a_disk_that_fills_up_in_mid_run_warns_once(tmp_path: Path) -> None:
    done = run_script(FULL_DISK, tmp_path / "trace.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[60, 60, 60]"
    assert done.stderr.count("The trace can't be written") == 1
    assert "File too large" in done.stderr
    # what had room is there, up to its last whole line
    trace = Trace.load(tmp_path / "trace.jsonl")
    assert len(trace) > 10
    assert not trace.header.processes[0].complete


# ---------------------------------------------------------------------- processes that die


def test_a_core_that_is_killed_leaves_a_trace_of_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", multiprocess=True, trace=str(path), num_gpu_blocks_override=200, max_model_len=500) as llm:
        core = llm.llm_engine.engine_core.manager.process.pid

        def kill(output: object) -> None:
            if len(output.outputs[0].token_ids) == 5:
                os.kill(core, signal.SIGKILL)

        with pytest.raises(EngineDeadError, match="SIGKILL"):
            llm.generate(PROMPTS[0], greedy(max_tokens=400), use_tqdm=False, on_output=kill)
    assert names_in(tmp_path) == ["trace.jsonl"]
    trace = Trace.load(path)
    assert {process.name: process.complete for process in trace.header.processes} == {"caller": True, "core": False}
    assert len(trace.filter(kind="update_from_output")) >= 5
    (call,) = trace.filter(kind="generate")
    assert call.error.startswith("EngineDeadError")
    # a core that dies in a step leaves the calls that it was in
    for event in trace.filter(kind="unfinished"):
        assert event.of in ("step", "executor.execute_model", "worker.execute_model", "model_forward")
        assert event.reqs == trace.request_ids


DIES_IN_FORWARD = """
import os, sys
from minivllm.worker.model_runner import ModelRunner
forward = ModelRunner.model_forward
def model_forward(self, batch, attn_metadata):
    if batch.positions[0] == 8:
        os._exit(7)
    return forward(self, batch, attn_metadata)
model_forward.__boundary__ = "model_forward"
ModelRunner.model_forward = model_forward
from minivllm.engine.core_proc import run_engine_core
run_engine_core(sys.argv[1], int(sys.argv[2]))
"""


def test_calls_that_never_returned_are_shown_as_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core that dies inside the model, as it does when memory runs out."""
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> subprocess.Popen:
        return real([sys.executable, "-c", DIES_IN_FORWARD, *command[-2:]], **options)

    monkeypatch.setattr("minivllm.engine.core_manager.subprocess.Popen", popen)
    path = tmp_path / "trace.jsonl"
    with (
        llm_of("plain", multiprocess=True, trace=str(path)) as llm,
        pytest.raises(EngineDeadError, match="exit status 7"),
    ):
        llm.generate(PROMPTS[0], greedy(max_tokens=40), use_tqdm=False)
    trace = Trace.load(path)
    unfinished = trace.filter(kind="unfinished")
    assert [event.of for event in unfinished] == [
        "step",
        "executor.execute_model",
        "worker.execute_model",
        "model_forward",
    ]
    assert [trace.parent(event) for event in unfinished] == [None, *unfinished[:-1]]
    last_plan = trace.filter(kind="schedule")[-1]
    assert last_plan.parent == unfinished[0].seq
    assert last_plan.num_computed_tokens[trace.request_ids[0]] == (8, 9)
    assert unfinished[-1].reqs == trace.request_ids
    assert unfinished[-1].step == last_plan.step


KILLED_CALLER = """
import os, signal, sys
from minivllm import LLM, SamplingParams
llm = LLM(sys.argv[1], trace=sys.argv[2])
def die(output):
    if len(output.outputs[0].token_ids) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
llm.generate("fox", SamplingParams(temperature=0, max_tokens=60, ignore_eos=True), use_tqdm=False, on_output=die)
"""


def test_a_caller_that_is_killed_leaves_parts_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    assert run_script(KILLED_CALLER, path).returncode == -signal.SIGKILL
    assert not path.exists()
    trace = Trace.load(path)
    assert [process.name for process in trace.header.processes] == ["caller", "core"]
    assert trace.request_ids
    assert len(trace.filter(kind="detokenize")) >= 4
    opened = [event.of for event in trace.filter(kind="unfinished", proc="caller")]
    assert opened == ["generate", "run_engine"]


FORGOTTEN = """
import sys
from minivllm import LLM, SamplingParams
llm = LLM(sys.argv[1], trace=sys.argv[2])
llm.generate("fox", SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)
"""


def test_a_script_that_never_shuts_down_has_its_trace(tmp_path: Path) -> None:
    """With a path that is relative to where the engine was built, and for the core's process as well."""
    done = run_script(FORGOTTEN, "here/trace.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path) == ["here"]
    assert names_in(tmp_path / "here") == ["trace.jsonl"]
    trace = Trace.load(tmp_path / "here/trace.jsonl")
    assert all(process.complete for process in trace.header.processes)
    assert trace.filter(kind="run_engine")


# ---------------------------------------------------------------------- calls that fail


def test_what_a_caller_did_wrong_is_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", multiprocess=False, trace=str(path)) as llm:
        with pytest.raises(InputError):
            llm.generate([[1, 2], [999_999]], greedy(), use_tqdm=False)
        assert llm.generate([[1, 2]], greedy(), use_tqdm=False)[0].finished
    trace = Trace.load(path)
    failed = trace.filter(kind="render_cmpl")[1]
    assert failed.error.startswith("InputError: Token id 999999")
    assert failed.reqs == []
    assert [event.error is None for event in trace.filter(kind="generate")] == [False, True]
    # the good prompt of the first call was given up
    assert trace.filter(kind="finish_requests")[0].finished == [trace.request_ids[0]]
    assert trace.final_state().requests[trace.request_ids[0]].status == "FINISHED_ABORTED"
    assert trace.final_state().requests[trace.request_ids[1]].status == "FINISHED_LENGTH_CAPPED"


def test_a_call_that_is_interrupted_is_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"

    def interrupt(output: object) -> None:
        raise KeyboardInterrupt

    with llm_of("three", multiprocess=False, trace=str(path)) as llm:
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, greedy(max_tokens=50), use_tqdm=False, on_output=interrupt)
        assert llm.generate(PROMPTS[0], greedy(), use_tqdm=False)[0].finished
    trace = Trace.load(path)
    assert [event.error for event in trace.filter(kind="generate")] == ["KeyboardInterrupt: ", None]
    assert len(trace.filter(kind="abort_requests")[0].reqs) == 3
    end = trace.final_state()
    assert not end.block_tables
    assert not any(request.is_open for request in end.requests.values())


# ---------------------------------------------------------------------- several engines, several ends


def test_two_engines_side_by_side_keep_their_traces_apart(tmp_path: Path) -> None:
    same = str(tmp_path / "same.jsonl")
    with (
        llm_of("plain", multiprocess=True, trace=same) as one,
        llm_of("plain", multiprocess=False, trace=same) as two,
    ):
        generate(one, "plain")
        generate(two, "plain")
        generate(one, "plain")
    # the last to end wins, whole
    trace = Trace.load(same)
    assert len(trace.filter(kind="generate")) == 2
    assert names_in(tmp_path) == ["same.jsonl"]


def test_shutting_down_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    llm = llm_of("plain", multiprocess=False, trace=str(path))
    generate(llm, "plain")
    llm.shutdown()
    written = path.read_bytes()
    llm.shutdown()
    assert path.read_bytes() == written


def test_an_engine_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_model_len"):
        llm_of("plain", multiprocess=False, trace=str(tmp_path / "trace.jsonl"), num_gpu_blocks_override=3)
    assert names_in(tmp_path) == []


def test_a_target_that_is_taken_away_warns_and_keeps_the_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.jsonl"
    with llm_of("plain", multiprocess=False, trace=str(path)) as llm:
        generate(llm, "plain")
        path.mkdir()
    assert caplog.text.count("The trace can't be written") == 1
    (part,) = tmp_path.glob("*.part")
    assert Trace.load(part).request_ids
